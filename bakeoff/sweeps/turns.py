"""Runs workers that build at the same time and are timed in turn, so that nothing is timed while anything is built."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from math import inf

from bakeoff.process.jobs import Job
from bakeoff.process.supervisor import Launch, LiveWorker, wait_for


@contextmanager
def in_turns(
    jobs: Sequence[tuple[Job, Launch]], patience_s: Callable[[int], float] = lambda _: inf
) -> Iterator[Iterator[LiveWorker | None]]:
    """Start a worker for each job, and wait until each is built or has ended, or for as long as `patience_s` says,
    given how many are built.

    Yields the workers in order, each when its turn is over or it has ended; None for one whose build was stopped so
    that others have their turns. A worker announces the phase "turn" before it times or traces anything, or ends first.
    Leaving the block kills the workers that have not ended. Raises BakeoffError if a worker cannot be started.
    """
    with ExitStack() as stack:
        workers = [stack.enter_context(LiveWorker(job, launch)) for job, launch in jobs]
        built = wait_for(dict.fromkeys(workers, "turn"), patience_s)

        def turns() -> Iterator[LiveWorker | None]:
            for worker in workers:
                if built.get(worker) is not None:
                    worker.tell("go")
                    worker.wait()
                yield worker if worker in built else None

        yield turns()
