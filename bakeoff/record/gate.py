"""Decides whether a candidate is slower than its baseline, and how large a change must be to be found on this host.

All figures are logarithms of a ratio of times, candidate over baseline: one for each pair of fresh processes, which is
the unit in which a host's noise repeats. Pairs of the baseline with itself (A/A) show that noise before anything is
compared, and count in the spread of the pairs that are compared. Tests are Student's: of each row at its share of the
false alarms, divided among the moments at which it may be decided (Bonferroni).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import log, sqrt
from typing import Literal

import numpy as np

from bakeoff.record.schema import Status

FALSE_ALARMS = 0.01
"""Probability that a gate of any number of unchanged rows calls one slower."""
POWER = 0.97
"""Probability with which a change of the stated size is called slower."""
SAME_PAIRS = 5
"""Number of pairs of the baseline with itself."""
LOOKS = (4, 7, 11)
"""Numbers of pairs after which a row may be decided; the size is that which the second decides."""
LEAST_SPREAD = 0.0075
"""Least standard deviation that is assumed of pairs: five that agree by chance would promise too much. It makes 2 % the
smallest size."""
LARGEST_SIZE = 1.5
"""Largest size with which a row is called unchanged: one that need not be found at half as long again is undecided."""
PROCESSES = 5
"""Fresh processes of a candidate that is compared with records."""
Word = Literal["slower", "faster", "no change shown", "undecided"]


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one row's time, as ratios: 1.1 is 10 % slower."""

    word: Word
    ratio: float
    low: float
    """Lower end of the interval of the ratio, which holds for all rows of a gate together."""
    high: float
    size: float
    """The smallest ratio that is found with the probability `POWER`."""
    pairs: int
    """Number of pairs, or of the candidate's processes where the baseline is of records."""


def size_of(same: Sequence[float], rows: int) -> float:
    """Return the logarithm of the smallest change that a gate of so many rows finds, by the pairs of A/A."""
    spread = _spread(float(np.sum(np.square(same))), len(same))
    return _sum_of_quantiles(_level(rows, len(LOOKS)), len(same)) * spread / sqrt(LOOKS[1])


def change_of_pairs(same: Sequence[float], pairs: Sequence[float], rows: int, size: float) -> Change | None:
    """Return the change that the pairs show; None if more of them are needed. `same` are those of A/A."""
    count = len(pairs)
    if count < LOOKS[0] or (count not in LOOKS and count < LOOKS[-1]):
        return None
    mean, freedom = float(np.mean(pairs)), len(same) + count - 1
    error = _spread(float(np.sum(np.square(same))) + _squares(pairs), freedom) / sqrt(count)
    found = _change(mean, error, freedom, size, rows, len(LOOKS), count)
    return None if found.word == "undecided" and count < LOOKS[-1] else found


def change_of_records(candidate: Sequence[float], baseline: Sequence[float], rows: int) -> Change | None:
    """Return the change between processes that were measured at different times; None if they are too few.

    The figures are logarithms of the processes' median times. The size follows from the spread between these processes.
    """
    freedom = len(candidate) + len(baseline) - 2
    if not len(candidate) or not len(baseline) or freedom < LOOKS[0] - 1:
        return None
    error = _spread(_squares(candidate) + _squares(baseline), freedom) * sqrt(1 / len(candidate) + 1 / len(baseline))
    size = _sum_of_quantiles(_level(rows, 1), freedom) * error
    mean = float(np.mean(candidate) - np.mean(baseline))
    return _change(mean, error, freedom, size, rows, 1, len(candidate))


def _change(mean: float, error: float, freedom: int, size: float, rows: int, looks: int, count: int) -> Change:
    half = _quantile(1 - _level(rows, looks), freedom) * error
    missed = _quantile(1 - (1 - POWER) / looks, freedom) * error
    word: Word = "undecided"
    if abs(mean) > half:
        word = "slower" if mean > 0 else "faster"
    elif mean + missed < size <= log(LARGEST_SIZE):
        word = "no change shown"
    ratio, low, high, least = (float(np.exp(value)) for value in (mean, mean - half, mean + half, size))
    return Change(word, ratio, low, high, least, count)


def _level(rows: int, looks: int) -> float:
    return FALSE_ALARMS / max(1, rows) / looks


def _spread(squares: float, freedom: int) -> float:
    return max(LEAST_SPREAD, sqrt(squares / freedom))


def _squares(values: Sequence[float]) -> float:
    """Return the sum of squared deviations from the mean."""
    return float(np.var(values)) * len(values)


def _sum_of_quantiles(level: float, freedom: int) -> float:
    return _quantile(1 - level, freedom) + _quantile(POWER, freedom)


def _quantile(share: float, freedom: int) -> float:
    from scipy.special import stdtrit  # importing scipy takes long

    return float(stdtrit(freedom, share))


Outcome = Literal[
    "unchanged", "faster", "regression", "status changed", "now ok", "expected failure", "unexpected pass", "undecided",
    "not measured",
]  # fmt: skip
FAILING: tuple[Outcome, ...] = ("regression", "status changed")


@dataclass(frozen=True, slots=True)
class Expected:
    """An expected status of rows."""

    row: str
    """Variant, with `*` for any text."""
    reason: str
    status: Status | None = None
    """None: any status but ok."""

    def fits(self, variant: str) -> bool:
        return re.fullmatch(".*".join(map(re.escape, self.row.split("*"))), variant) is not None


@dataclass(frozen=True, slots=True)
class GatedRow:
    """One row of a gate: how the candidate ended, how the baseline did, and the change of the time."""

    variant: str
    batch: int
    candidate: Status
    baseline: Status | None
    """None if the baseline has no such row."""
    reason: str = ""
    """Why the candidate is not ok, or why nothing is compared."""
    change: Change | None = None
    """None if times are not compared."""
    same: tuple[float, ...] = ()
    """Ratios of the pairs of the baseline with itself."""
    pairs: tuple[float, ...] = ()
    """Ratios of the pairs of candidate and baseline; with records as baseline none."""
    expected: str = ""
    """Reason why its status was expected not to be ok; "" if it was not."""
    expects: Status | None = None

    @property
    def name(self) -> str:
        return f"{self.variant}, batch {self.batch}" if self.batch > 1 else self.variant

    @property
    def outcome(self) -> Outcome:
        if self.expected and self.candidate == "ok":
            return "unexpected pass"
        if self.expected and self.expects in (None, self.candidate):
            return "expected failure"
        if self.candidate == "unstable":  # the host was busy: neither status nor time is known
            return "not measured"
        if self.baseline not in (None, "unstable", self.candidate):
            return "now ok" if self.candidate == "ok" else "status changed"
        if self.change is None:
            return "not measured"
        return _OUTCOMES[self.change.word]


_OUTCOMES: dict[Word, Outcome] = {
    "slower": "regression",
    "faster": "faster",
    "no change shown": "unchanged",
    "undecided": "undecided",
}


def exit_code(rows: Sequence[GatedRow]) -> int:
    """Return 1 if a row fails, 3 if no row is decided, else 0."""
    outcomes = {row.outcome for row in rows}
    if outcomes.intersection(FAILING) or any(row.change and row.change.word == "slower" for row in rows):
        return 1
    return 0 if outcomes - {"not measured", "undecided"} else 3
