"""Whether one of two variants is faster: the median ratio with a bootstrap interval, a rank test, and a verdict.

A difference is shown only if the 99.9 % interval of the rounds' ratios excludes 1, if the ratio is beyond 2 %, and if
pairs of fresh processes agree: all of seven, or all but one of eleven. Pairs are needed because two processes of the
same program can differ in speed by the placement of their memory (Mytkowicz et al., ASPLOS 2009; Curtsinger and Berger,
ASPLOS 2013). That difference is constant while they live, so more rounds between the same two processes do not show it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bakeoff.record.schema import Comparison, Record, Round

CONFIDENCE = 0.999
LEAST_DIFFERENCE = 0.02
LEAST_ROUNDS = 11
"""Least number of rounds of a verdict. With fewer, all agree by chance with a probability above 0.1 % (2 / 2**10)."""
AGREEING_PAIRS = 7
"""Number of process pairs that must all agree on the faster variant; by chance they do with probability 1/64."""
MOST_PAIRS = 11
"""Most process pairs that are measured. With this many one may disagree; by chance at most one does with probability
1/85."""
_PAIRS_WITHOUT_DIFFERENCE = 3
"""Number of pairs after which no more are taken if their median ratio is within 2 %."""
_RESAMPLES = 2_000
Nanoseconds = NDArray[Any]
Word = Literal["faster", "slower", "no difference shown"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of comparing A with B."""

    word: Word
    ratio: float
    """B's time divided by A's, above 1 if A is faster: the median over the pairs of processes."""
    low: float
    """Lower end of the 99.9 % interval of the median ratio of the rounds."""
    high: float
    p: float
    """p-value of the rank test: Wilcoxon's signed-rank test for paired rounds, Mann-Whitney for independent samples."""
    rounds: int
    a_ms: float
    """Median of the rounds' medians of A, in milliseconds a call."""
    b_ms: float
    pairs: int = 0
    """Number of pairs of fresh processes; 0 if two records are compared."""


def decide(comparison: Comparison) -> Verdict:
    """The verdict on paired rounds. Raises ValueError if there are none."""
    from scipy.stats import wilcoxon

    if not comparison.rounds:
        raise ValueError("no rounds")
    a, b, ratios = _medians(comparison.rounds)
    low, high = bootstrap_median(ratios) if len(ratios) >= LEAST_ROUNDS else (ratios.min(), ratios.max())
    same = bool(np.all(ratios == 1))
    p = 1.0 if same else float(wilcoxon(np.log(ratios)).pvalue)
    pairs = _ratios_of_pairs(comparison.rounds)
    verdict = _verdict(float(np.median(pairs)), float(low), float(high), p, len(ratios), a, b)
    agreed = len(pairs) >= AGREEING_PAIRS and _disagreeing(pairs) <= (len(pairs) >= MOST_PAIRS)
    return replace(verdict, word=verdict.word if agreed else "no difference shown", pairs=len(pairs))


def is_decided(comparison: Comparison) -> bool:
    """Whether no more pairs of processes are needed: the verdict is reached, or unlikely to be reached."""
    if decide(comparison).word != "no difference shown":
        return True
    pairs = _ratios_of_pairs(comparison.rounds)
    if len(pairs) >= MOST_PAIRS or _disagreeing(pairs) > 1:
        return True
    _, _, ratios = _medians(comparison.rounds)
    low, high = bootstrap_median(ratios)
    near = 1 + LEAST_DIFFERENCE
    return (1 / near < low and high < near) or (
        len(pairs) >= _PAIRS_WITHOUT_DIFFERENCE and 1 / near < float(np.median(pairs)) < near
    )


def _medians(rounds: Sequence[Round]) -> tuple[Nanoseconds, Nanoseconds, Nanoseconds]:
    """For each round the median of A and of B in nanoseconds, and the ratio B / A."""
    a = np.array([median(entry.a_ns) for entry in rounds], dtype=np.float64)
    b = np.array([median(entry.b_ns) for entry in rounds], dtype=np.float64)
    return a, b, b / a


def _ratios_of_pairs(rounds: Sequence[Round]) -> Nanoseconds:
    """For each pair of processes the median ratio of its rounds."""
    _, _, ratios = _medians(rounds)
    numbers = np.array([entry.pair for entry in rounds])
    return np.array([np.median(ratios[numbers == number]) for number in np.unique(numbers)])


def _disagreeing(pairs: Nanoseconds) -> int:
    """Number of pairs that disagree with the majority on the faster variant."""
    return int(min(np.sum(pairs <= 1), np.sum(pairs >= 1)))


def bootstrap_median(values: Nanoseconds, confidence: float = CONFIDENCE) -> tuple[float, float]:
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


def decide_unpaired(a: Record, b: Record, seed: int = 0) -> Verdict:
    """The verdict on two records of different times, which includes changes of the host's speed between them.

    Raises ValueError if one has no samples.
    """
    from scipy.stats import bootstrap, mannwhitneyu

    clocks = (a.measurement.latency, b.measurement.latency)
    if any(clock is None or not clock.samples_ns for clock in clocks):
        raise ValueError("no samples")
    ours, theirs = (np.asarray(clock.samples_ns, dtype=np.float64) for clock in clocks if clock is not None)

    def ratio(x: np.ndarray, y: np.ndarray, axis: int = -1) -> np.ndarray:
        return np.median(y, axis=axis) / np.median(x, axis=axis)

    interval = bootstrap(
        (ours, theirs),
        ratio,
        n_resamples=_RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    p = float(mannwhitneyu(ours, theirs).pvalue)
    count = min(len(ours), len(theirs))
    return _verdict(float(ratio(ours, theirs)), float(interval.low), float(interval.high), p, count, ours, theirs)


def _verdict(ratio: float, low: float, high: float, p: float, count: int, a: Nanoseconds, b: Nanoseconds) -> Verdict:
    word: Word = "no difference shown"
    if count >= LEAST_ROUNDS and low > 1 and ratio > 1 + LEAST_DIFFERENCE:
        word = "faster"
    elif count >= LEAST_ROUNDS and high < 1 and ratio < 1 / (1 + LEAST_DIFFERENCE):
        word = "slower"
    return Verdict(word, ratio, low, high, p, count, float(np.median(a)) / 1e6, float(np.median(b)) / 1e6)
