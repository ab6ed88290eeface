"""Whether one of two variants is faster: the ratio of their times, its interval, and a verdict.

The ratio and its interval come from the same quantity. From three sets of fresh processes on it is each set's median
ratio: the median over the sets, and an interval by order statistics that holds the median with 98 % (all of seven, or
all but one at each end of eleven). With fewer sets it is the ratio of each round, with a bootstrap interval; nothing is
decided from so few. A difference is shown only if at least seven sets were measured, the interval excludes 1, and the
ratio is beyond 2 %. Sets of processes are needed because two processes of the same program can differ in speed by the
placement of their memory (Mytkowicz et al., ASPLOS 2009; Curtsinger and Berger, ASPLOS 2013). That difference is
constant while they live, so more rounds between the same two processes do not show it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bakeoff.record.schema import Comparison, Round
from bakeoff.record.statistics import interval_ranks

CONFIDENCE = 0.98
"""Least probability with which the interval holds the median of the sets' ratios."""
LEAST_DIFFERENCE = 0.02
LEAST_ROUNDS = 11
"""Least number of rounds of a verdict, and of a bootstrap interval."""
AGREEING_PAIRS = 7
"""Least number of sets of a verdict. Seven that all agree on the faster variant do so by chance with 1/64."""
MOST_PAIRS = 11
"""Most sets that are measured. With this many one may disagree; by chance at most one does with probability 1/85."""
_PAIRS_WITHOUT_DIFFERENCE = 3
"""Number of sets after which no more are taken if their median ratio is within 2 %."""
_ROUNDS_CONFIDENCE = 0.999
Nanoseconds = NDArray[Any]
Word = Literal["faster", "slower", "no difference shown"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of comparing A with B."""

    word: Word
    ratio: float
    """B's time divided by A's, above 1 if A is faster."""
    low: float
    """Lower end of the interval of that ratio."""
    high: float
    rounds: int
    a_ms: float
    """Median of the rounds' medians of A, in milliseconds a call."""
    b_ms: float
    pairs: int
    """Number of sets of fresh processes."""
    confidence: float
    """Probability with which the interval holds the median ratio, of the sets or, with fewer than three, of the rounds:
    75 % for three sets, 98.4 % for seven."""


def decide(comparison: Comparison, first: int = 0, second: int = 1) -> Verdict:
    """The verdict on two sides of a comparison, A being number `first`. Raises ValueError if there are no rounds."""
    from scipy.special import bdtr  # importing scipy takes long

    if not comparison.rounds:
        raise ValueError("no rounds")
    a, b, ratios = _medians(comparison.rounds, first, second)
    pairs = _ratios_of_pairs(comparison.rounds, first, second)
    if len(pairs) >= _PAIRS_WITHOUT_DIFFERENCE:
        ordered = np.sort(pairs)
        rank, _ = interval_ranks(len(pairs), CONFIDENCE)
        ratio, low, high = np.median(pairs), ordered[rank], ordered[-1 - rank]
        confidence = 1 - 2 * float(bdtr(rank, len(pairs), 0.5))
    else:
        ratio, (low, high), confidence = np.median(ratios), _rounds_interval(ratios), _ROUNDS_CONFIDENCE
    word: Word = "no difference shown"
    if len(pairs) >= AGREEING_PAIRS and len(ratios) >= LEAST_ROUNDS:
        word = _word(float(ratio), float(low), float(high))
    medians_ms = (float(np.median(a)) / 1e6, float(np.median(b)) / 1e6)
    return Verdict(word, float(ratio), float(low), float(high), len(ratios), *medians_ms, len(pairs), confidence)


def is_decided(comparison: Comparison) -> bool:
    """Whether the first two sides need no more sets of processes: a verdict is reached, or unlikely to be reached."""
    if decide(comparison).word != "no difference shown":
        return True
    pairs = _ratios_of_pairs(comparison.rounds, 0, 1)
    if len(pairs) >= MOST_PAIRS or _disagreeing(pairs) > 1:
        return True
    _, _, ratios = _medians(comparison.rounds, 0, 1)
    low, high = _rounds_interval(ratios)
    near = 1 + LEAST_DIFFERENCE
    return (1 / near < low and high < near) or (
        len(pairs) >= _PAIRS_WITHOUT_DIFFERENCE and 1 / near < float(np.median(pairs)) < near
    )


def _word(ratio: float, low: float, high: float) -> Word:
    if low > 1 and ratio > 1 + LEAST_DIFFERENCE:
        return "faster"
    return "slower" if high < 1 and ratio < 1 / (1 + LEAST_DIFFERENCE) else "no difference shown"


def _rounds_interval(ratios: Nanoseconds) -> tuple[float, float]:
    """A 99.9 % interval of the rounds' median ratio; the whole range for too few rounds."""
    if len(ratios) < LEAST_ROUNDS:
        return float(ratios.min()), float(ratios.max())
    return bootstrap_median(ratios, _ROUNDS_CONFIDENCE)


def _medians(rounds: Sequence[Round], first: int, second: int) -> tuple[Nanoseconds, Nanoseconds, Nanoseconds]:
    """For each round the median of both sides in nanoseconds, and the second's over the first's."""
    a = np.array([median(entry.samples_ns[first]) for entry in rounds], dtype=np.float64)
    b = np.array([median(entry.samples_ns[second]) for entry in rounds], dtype=np.float64)
    return a, b, b / a


def _ratios_of_pairs(rounds: Sequence[Round], first: int, second: int) -> Nanoseconds:
    """For each set of processes the median ratio of its rounds."""
    _, _, ratios = _medians(rounds, first, second)
    numbers = np.array([entry.pair for entry in rounds])
    return np.array([np.median(ratios[numbers == number]) for number in np.unique(numbers)])


def _disagreeing(pairs: Nanoseconds) -> int:
    """Number of pairs that disagree with the majority on the faster variant."""
    return int(min(np.sum(pairs <= 1), np.sum(pairs >= 1)))


def bootstrap_median(values: Nanoseconds, confidence: float = _ROUNDS_CONFIDENCE) -> tuple[float, float]:
    """The percentile bootstrap interval of a median, computed exactly over all resamples instead of random ones.

    The number of draws that are at most the i-th smallest value is binomial, which gives the distribution of a
    resample's median (Efron, Bootstrap Methods, Annals of Statistics 1979, section 3). For an even number of draws the
    median is the mean of the two middle draws: half of the draws are at most the i-th value and half at least the j-th,
    or both middle draws are the i-th.
    """
    from scipy.special import bdtrc, comb

    ordered, count = np.sort(values), len(values)
    half, shares = count // 2, np.arange(count + 1) / count
    if count % 2:
        medians, weights = ordered, np.diff(bdtrc(half, count, shares))
    else:
        both = np.outer(np.diff(shares**half), -np.diff((1 - shares) ** half)) * comb(count, half)
        both = np.triu(both, 1)
        np.fill_diagonal(both, np.diff(bdtrc(half - 1, count, shares)) - both.sum(axis=1))
        pairs = np.triu_indices(count)
        medians, weights = (ordered[pairs[0]] + ordered[pairs[1]]) / 2, both[pairs]
        rising = np.argsort(medians, kind="stable")
        medians, weights = medians[rising], weights[rising]
    ends = np.searchsorted(np.cumsum(weights), [(1 - confidence) / 2, (1 + confidence) / 2])
    low, high = medians[np.minimum(ends, len(medians) - 1)]
    return float(low), float(high)
