"""Decides whether a candidate is slower than its baseline by a size that matters, and what it takes to know.

All figures are logarithms of a ratio of times, candidate over baseline: one for each pair of fresh processes, which is
the unit in which a host's noise repeats. Pairs of the baseline with itself (A/A) show that noise before anything is
compared, and count in the spread of the pairs that are compared. Intervals are Student's: of each row at its share of
the false alarms, divided among the moments at which it may be decided (Bonferroni). A row is slower if its interval
lies above 1 and reaches the size that matters, and unchanged if it ends below that size.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log1p, sqrt
from typing import Literal

import numpy as np

from bakeoff.record.schema import Status

FALSE_ALARMS = 0.01
"""Probability that a gate of any number of unchanged rows calls one slower."""
POWER = 0.97
"""Probability with which a change of the size that a host can find is called slower."""
SAME_PAIRS = 5
"""Number of pairs of the baseline with itself."""
LOOKS = (4, 7, 11)
"""Numbers of pairs after which a row may be decided; the size that a host can find is that which the second decides."""
LEAST_SPREAD = 0.0075
"""Least standard deviation that is assumed of pairs: five that agree by chance would promise too much. It makes 2 % the
smallest size."""
MOST_PAIRS = 1000
"""More pairs than anyone waits for."""
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
    pairs: int
    """Number of pairs, or of the candidate's processes where the baseline is of records."""
    more: int = 0
    """Of an undecided row, about how many more pairs would decide it, at most `MOST_PAIRS`."""


def size_of(same: Sequence[float], rows: int) -> float:
    """Return the logarithm of the smallest change that a gate of so many rows finds, by the pairs of A/A."""
    spread = _spread(float(np.sum(np.square(same))), len(same))
    reach = _quantile(1 - _level(rows, len(LOOKS)), len(same)) + _quantile(POWER, len(same))
    return reach * spread / sqrt(LOOKS[1])


def change_of_pairs(same: Sequence[float], pairs: Sequence[float], rows: int, find: float) -> Change | None:
    """Return the change that the pairs show; None if more of them are needed. `same` are those of A/A, and `find` is
    the slowdown that matters, as a share of the time."""
    count = len(pairs)
    if count < LOOKS[0] or (count not in LOOKS and count < LOOKS[-1]):
        return None
    spread = _spread(float(np.sum(np.square(same))) + _squares(pairs), len(same) + count - 1)
    found = _change(float(np.mean(pairs)), spread, len(same) + count - 1, find, _level(rows, len(LOOKS)), count, count)
    return None if found.word == "undecided" and count < LOOKS[-1] else found


def change_of_records(candidate: Sequence[float], baseline: Sequence[float], rows: int, find: float) -> Change | None:
    """Return the change between processes that were measured at different times; None if they are too few.

    The figures are logarithms of the processes' median times.
    """
    count, freedom = len(candidate), len(candidate) + len(baseline) - 2
    if not count or not len(baseline) or freedom < LOOKS[0] - 1:
        return None
    spread = _spread(_squares(candidate) + _squares(baseline), freedom)
    pairs = 1 / (1 / count + 1 / len(baseline))
    mean = float(np.mean(candidate) - np.mean(baseline))
    return _change(mean, spread, freedom, find, _level(rows, 1), count, pairs)


def pairs_needed(same: Sequence[float], rows: int, find: float) -> int:
    """Return about how many pairs show that an unchanged row is not slower by `find`, by the pairs of A/A."""
    spread = _spread(float(np.sum(np.square(same))), len(same))
    return _pairs_until(log1p(find), spread, len(same) - 1, _level(rows, len(LOOKS)))


def _change(
    mean: float, spread: float, freedom: int, find: float, level: float, count: int, independent: float
) -> Change:
    """Return the change of a mean of as many independent pairs; `count` is how many are told."""
    half = _quantile(1 - level, freedom) * spread / sqrt(independent)
    word: Word = "undecided"
    if mean - half > 0 and mean + half >= log1p(find):
        word = "slower"
    elif mean + half < 0:
        word = "faster"
    elif mean + half < log1p(find):
        word = "no change shown"
    needed = _pairs_until(max(mean, log1p(find) - mean), spread, freedom - count, level) if word == "undecided" else 0
    ratio, low, high = (float(np.exp(value)) for value in (mean, mean - half, mean + half))
    return Change(word, ratio, low, high, count, min(MOST_PAIRS, max(0, needed - count)))


def _pairs_until(half: float, spread: float, freedom: int, level: float) -> int:
    """Return the number of pairs at which an interval reaches this far to either side; `freedom` is what it has
    without them."""
    counts = (count for count in range(LOOKS[0], MOST_PAIRS) if freedom + count > 0)
    return next(
        (count for count in counts if _quantile(1 - level, freedom + count) * spread / sqrt(count) < half), MOST_PAIRS
    )


def _level(rows: int, looks: int) -> float:
    return FALSE_ALARMS / max(1, rows) / looks


def _spread(squares: float, freedom: int) -> float:
    return max(LEAST_SPREAD, sqrt(squares / freedom))


def _squares(values: Sequence[float]) -> float:
    """Return the sum of squared deviations from the mean."""
    return float(np.var(values)) * len(values)


def _quantile(share: float, freedom: int) -> float:
    from scipy.special import stdtrit  # importing scipy takes long

    return float(stdtrit(freedom, share))


Outcome = Literal[
    "unchanged", "faster", "regression", "suspected", "status changed", "gone", "now ok", "undecided", "not measured",
]  # fmt: skip
FAILING: tuple[Outcome, ...] = ("regression", "status changed", "gone")
OPEN: tuple[Outcome, ...] = ("suspected", "undecided")
"""Outcomes that say neither that a row may pass nor that it fails."""


@dataclass(frozen=True, slots=True)
class GatedRow:
    """One row of a gate: how the candidate ended, how the baseline did, and the change of the time."""

    variant: str
    batch: int
    candidate: Status | None
    """None if the candidate has no such row, or if its model cannot be run."""
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
    live: bool = True
    """False if the baseline's times are of records of another time: a slowdown is then only suspected."""

    @property
    def name(self) -> str:
        return f"{self.variant}, batch {self.batch}" if self.batch > 1 else self.variant

    @property
    def outcome(self) -> Outcome:
        if self.candidate is None:
            return "gone"
        if self.candidate == "unstable":  # the host was busy: neither status nor time is known
            return "undecided"
        if self.baseline not in (None, "unstable", self.candidate):
            return "now ok" if self.candidate == "ok" else "status changed"
        if self.change is None:
            return "not measured"
        return "suspected" if self.change.word == "slower" and not self.live else _OUTCOMES[self.change.word]


_OUTCOMES: dict[Word, Outcome] = {
    "slower": "regression",
    "faster": "faster",
    "no change shown": "unchanged",
    "undecided": "undecided",
}


def exit_code(rows: Sequence[GatedRow]) -> int:
    """Return 1 if a row fails, 3 if one is open or none is decided, else 0."""
    outcomes = {row.outcome for row in rows}
    if outcomes.intersection(FAILING):
        return 1
    return 0 if outcomes - {"not measured"} and not outcomes.intersection(OPEN) else 3
