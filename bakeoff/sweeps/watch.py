"""Workers that build beside each other and are timed in turns.

Nothing is timed while anything is built, or built while anything is timed.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from bakeoff.process.jobs import Job
from bakeoff.process.supervisor import Launch, LiveWorker, Outcome, wait_for


@dataclass(frozen=True, slots=True)
class Task:
    """One worker, which announces the phase "turn" before it times or traces anything, or ends without it."""

    job: Job
    result_type: type
    launch: Launch


Timeline = tuple[tuple[str, float], ...]
"""Each phase that a worker entered, and when by time.monotonic(); "" at its end."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a worker ended."""

    outcome: Outcome
    timeline: Timeline

    @property
    def built(self) -> tuple[float, float]:
        """From when to when it built, possibly beside others."""
        ends = [at for phase, at in self.timeline if phase in ("turn", "")]
        return self.timeline[0][1], ends[0]

    @property
    def alone(self) -> tuple[float, float] | None:
        """From when to when it had the machine to itself; None where it ended before its turn."""
        phases = [phase for phase, _ in self.timeline]
        if "turn" not in phases:
            return None
        after = phases.index("turn") + 1
        return self.timeline[after][1], self.timeline[-1][1]


def _ignore(_timeline: Timeline) -> None:
    pass


def in_turns(tasks: Sequence[Task], on_stopped: Callable[[Timeline], None] = _ignore) -> Generator[Ended, None, None]:
    """Start all workers at once; when all are built or have ended, let one after the other go on.

    Yields how each ended, in their order. Close the iterator where it is not read to its end: that ends the workers,
    and `on_stopped` is told what each of them did until then. Raises BakeoffError when no worker can be started at all.
    """
    with ExitStack() as stack:
        left: list[LiveWorker] = []

        def tell() -> None:
            for worker in left:
                on_stopped(tuple(worker.timeline))

        stack.callback(tell)  # called after the workers have ended
        workers = [stack.enter_context(LiveWorker(task.job, task.launch)) for task in tasks]
        left += workers
        waiting = wait_for(dict.fromkeys(workers, "turn"))
        for task, worker in zip(tasks, workers, strict=True):
            if waiting[worker] is not None:
                worker.tell("go")
                worker.wait()
            outcome = worker.finish(task.result_type)
            left.remove(worker)
            yield Ended(outcome, tuple(worker.timeline))
