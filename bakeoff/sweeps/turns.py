"""Runs workers that build at the same time and are timed in turn, so that nothing is timed while anything is built."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import inf
from types import TracebackType

from bakeoff.process.jobs import Job
from bakeoff.process.supervisor import Launch, LiveWorker, Outcome, wait_for


@dataclass(frozen=True, slots=True)
class Task:
    """The job of one worker, which announces the phase "turn" before it times or traces anything, or ends first."""

    job: Job
    result_type: type
    launch: Launch


@dataclass(frozen=True, slots=True)
class WorkerEnd:
    """How one worker ended, and when its phases began."""

    outcome: Outcome
    timeline: tuple[tuple[str, float], ...]
    """Each phase of the worker with its start by time.monotonic(); the last entry is "" with the time of the end."""

    @property
    def built(self) -> tuple[float, float]:
        """Start and end of the worker's build, during which other workers may have been building too."""
        ends = [at for phase, at in self.timeline if phase in ("turn", "")]
        return self.timeline[0][1], ends[0]

    @property
    def alone(self) -> tuple[float, float] | None:
        """Start and end of the time in which the worker had the machine to itself; None if it ended before its turn."""
        phases = [phase for phase, _ in self.timeline]
        if "turn" not in phases:
            return None
        after = phases.index("turn") + 1
        return self.timeline[after][1], self.timeline[-1][1]


class Turns:
    """Workers that start at once and build at the same time, then go on one after the other.

    A context manager: entering it starts the workers and waits until each is built or has ended, or for as long as
    `patience_s` says, given how many are built; leaving it kills the workers that have not ended.
    """

    def __init__(self, tasks: Sequence[Task], patience_s: Callable[[int], float] = lambda _: inf) -> None:
        """Prepare without starting a worker."""
        self._tasks, self._patience_s = tasks, patience_s
        self._stack = ExitStack()

    def __enter__(self) -> "Turns":
        """Start the workers and wait until each is built or has ended. Raises BakeoffError if a worker cannot be
        started."""
        try:
            self._workers = [self._stack.enter_context(LiveWorker(task.job, task.launch)) for task in self._tasks]
            self._built = wait_for(dict.fromkeys(self._workers, "turn"), self._patience_s)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def stopped(self, place: int) -> bool:
        """Return whether the build of the task at the index `place` was stopped, so that others have their turns."""
        return self._workers[place] not in self._built

    def run(self, place: int) -> None:
        """Let the worker of the task at the index `place` take its turn, and wait until the worker has ended."""
        worker = self._workers[place]
        if self._built[worker] is not None:
            worker.tell("go")
            worker.wait()

    def end(self, place: int) -> WorkerEnd:
        """Return how the worker of the task at the index `place` ended."""
        worker = self._workers[place]
        outcome = worker.finish(self._tasks[place].result_type)
        return WorkerEnd(outcome, tuple(worker.timeline))
