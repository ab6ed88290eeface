"""The ratio of the times of two things that took turns, from pairs of neighbouring runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bakeoff.record.statistics import interval_ranks
from bakeoff.record.verdict import LEAST_DIFFERENCE

FEWEST_FOR_INTERVAL = 6
"""Pairs or units: the range of five holds the median with less than 95 %."""
Word = Literal["faster", "slower", "no difference shown", "too few units"]


@dataclass(frozen=True, slots=True)
class PairRatio:
    """The second held against the first."""

    word: Word
    ratio: float
    """Median over pairs of the first's time over the second's: above 1 where the second is faster."""
    interval: tuple[float, float] | None
    """The 95 % interval of that median; None for fewer than six pairs."""
    pairs: int


def pair_ratio(first: Sequence[float], second: Sequence[float]) -> PairRatio:
    """The ratio of times that were measured in pairs, in any unit. Raises ValueError where there are none."""
    ratios = sorted(a / b for a, b in zip(first, second, strict=True))
    if not ratios:
        raise ValueError("no pairs")
    middle = (ratios[(len(ratios) - 1) // 2] + ratios[len(ratios) // 2]) / 2
    if len(ratios) < FEWEST_FOR_INTERVAL:
        return PairRatio("too few units", middle, None, len(ratios))
    low, high = (ratios[rank] for rank in interval_ranks(len(ratios)))
    return PairRatio(_word(middle, low, high), middle, (low, high), len(ratios))


def turned(ratio: float, interval: tuple[float, float] | None) -> tuple[float, tuple[float, float] | None]:
    """The same ratio and interval with the two exchanged."""
    return 1 / ratio, None if interval is None else (1 / interval[1], 1 / interval[0])


def _word(ratio: float, low: float, high: float) -> Word:
    if low > 1 and ratio > 1 + LEAST_DIFFERENCE:
        return "faster"
    return "slower" if high < 1 and ratio < 1 / (1 + LEAST_DIFFERENCE) else "no difference shown"
