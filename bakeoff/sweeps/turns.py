"""Workers that build beside each other and are timed in turns: nothing is timed while anything is built."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType

from bakeoff.process.jobs import Job
from bakeoff.process.supervisor import Launch, LiveWorker, Outcome, wait_for
from bakeoff.sweeps.session import TimeSpent


@dataclass(frozen=True, slots=True)
class Task:
    """One worker, which announces the phase "turn" before it times or traces anything, or ends without it."""

    job: Job
    result_type: type
    launch: Launch


@dataclass(frozen=True, slots=True)
class WorkerEnd:
    """End of a worker."""

    outcome: Outcome
    timeline: tuple[tuple[str, float], ...]
    """Each phase that it entered, and when by time.monotonic(); "" at its end."""

    @property
    def built(self) -> tuple[float, float]:
        """Times between which it built, possibly at the same time as others."""
        ends = [at for phase, at in self.timeline if phase in ("turn", "")]
        return self.timeline[0][1], ends[0]

    @property
    def alone(self) -> tuple[float, float] | None:
        """Times between which it had the machine to itself; None where it ended before its turn."""
        phases = [phase for phase, _ in self.timeline]
        if "turn" not in phases:
            return None
        after = phases.index("turn") + 1
        return self.timeline[after][1], self.timeline[-1][1]


class Turns:
    """All workers are started at once, and go on one after the other when all are built or have ended.

    A context manager: entering it waits until then, leaving it kills the workers that have not ended.
    """

    def __init__(self, tasks: Sequence[Task], spent: TimeSpent) -> None:
        """`spent` is told what workers did that are stopped."""
        self._tasks, self._spent = tasks, spent
        self._stack = ExitStack()
        self._left: list[LiveWorker] = []

    def __enter__(self) -> "Turns":
        """Raises BakeoffError when no worker can be started at all."""
        try:
            for task in self._tasks:
                self._left.append(self._stack.enter_context(LiveWorker(task.job, task.launch)))
            self._workers = tuple(self._left)
            self._built = wait_for(dict.fromkeys(self._workers, "turn"))
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._stack.close()
        for worker in self._left:
            self._spent.stopped(worker.timeline)

    def run(self, place: int) -> None:
        """Let the worker of the task at this place go on until it has ended."""
        worker = self._workers[place]
        if self._built[worker] is not None:
            worker.tell("go")
            worker.wait()

    def end(self, place: int) -> WorkerEnd:
        """Return how that worker ended."""
        worker = self._workers[place]
        outcome = worker.finish(self._tasks[place].result_type)
        self._left.remove(worker)
        return WorkerEnd(outcome, tuple(worker.timeline))
