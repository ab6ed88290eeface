"""The time limit of a sweep: which finals still fit, what is left out, and a hard stop."""

import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from types import FrameType

from bakeoff.plan.costs import FINAL_S, Costs
from bakeoff.plan.plan import Plan
from bakeoff.plan.request import grace_s
from bakeoff.plan.rows import Key
from bakeoff.process.jobs import Subject
from bakeoff.process.signals import raised_again
from bakeoff.record.store import Stored


class TimeIsUpError(KeyboardInterrupt):
    """The time limit and its grace period are over.

    A KeyboardInterrupt, so that the handlers of Ctrl-C end all workers.
    """


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A row that was not measured for lack of time."""

    label: str
    expected_s: float
    begun: bool
    """Whether the row was running when the time was over, and was stopped."""


@dataclass(frozen=True, slots=True)
class OutOfTime:
    """Rows and finals that were left out because a sweep's time limit was over."""

    time_limit_s: float
    used_s: float
    left_out: tuple[LeftOut, ...]
    undecided: tuple[str, ...]
    """Pairs of rows whose final was left out, one for each subject, as `A and B`."""


@dataclass(slots=True)
class TimeLimit:
    """Time limit of a sweep, if its plan has one."""

    plan: Plan
    costs: Costs
    started: float
    """Start of the command by time.monotonic(), moved later by the wait for another sweep."""
    finals_ended: list[Subject] = field(default_factory=list)
    """Subjects whose final has ended, or cannot be run."""

    @property
    def seconds(self) -> float:
        """The limit; 0 if there is none."""
        return self.plan.request.time_limit_s

    @property
    def used_s(self) -> float:
        return time.monotonic() - self.started

    @property
    def left_s(self) -> float:
        """Seconds until the time is up; infinite without a limit."""
        return self.seconds - self.used_s if self.seconds else inf

    @property
    def final_fits(self) -> bool:
        """Whether a final may begin: half of the time that is kept for one is left, and the limit stops it."""
        return self.left_s >= FINAL_S / 2

    def left_out(
        self, stored: Mapping[Key, Stored], begun: Sequence[Key], undecided: Sequence[str]
    ) -> OutOfTime | None:
        """Return the rows without a record in `stored` and the pairs in `undecided`; None if there are neither."""
        left = [row for row in self.plan.rows if row.key not in stored]
        if not left and not undecided:
            return None
        rows = tuple(LeftOut(row.label, self.costs.of(row).seconds, row.key in begun) for row in left)
        return OutOfTime(self.seconds, self.used_s, rows, tuple(undecided))

    @contextmanager
    def enforced(self) -> Iterator[None]:
        """Raise TimeIsUpError within the block when the limit and its grace period are over. Works in the main thread
        only."""
        if not self.seconds:
            yield
            return
        handler = signal.signal(signal.SIGALRM, _stop)
        left_s = self.left_s + grace_s(self.seconds)
        signal.setitimer(signal.ITIMER_REAL, max(left_s, 0.001))
        try:
            with raised_again(TimeIsUpError):
                yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, handler)


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise TimeIsUpError
