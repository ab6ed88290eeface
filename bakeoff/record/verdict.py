"""Whether one of two variants is faster: the median ratio with a bootstrap interval, a rank test, and one word.

A verdict needs the 99.9 % interval of the rounds' ratios to exclude 1, a ratio beyond 2 %, and pairs of fresh processes
that agree: all of seven, or all but one of eleven. Two processes of one program differ by where their memory happens to
lie (Mytkowicz et al., ASPLOS 2009; Curtsinger and Berger, ASPLOS 2013), steadily for as long as they live, and no
number of rounds between the same two shows that.
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
"""With fewer rounds even full agreement has a chance probability above 0.1 %: 2 / 2**10."""
AGREEING_PAIRS = 7
"""Number of process pairs whose ratios must all agree in sign; chance probability 1/64."""
MOST_PAIRS = 11
"""With this many pairs, one may disagree; chance probability 1/85."""
_FUTILE = 3
"""Number of pairs after which no more are taken if their median ratio is within 2 %."""
_RESAMPLES = 2_000
Nanoseconds = NDArray[Any]
Word = Literal["faster", "slower", "no difference shown"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of comparing A with B."""

    word: Word
    ratio: float
    """B's time over A's, above 1 where A is faster: the median of the pairs of processes."""
    low: float
    """Lower end of the 99.9 % interval of the rounds' median ratio."""
    high: float
    p: float
    """Of the rank test: Wilcoxon's signed ranks of paired rounds, Mann and Whitney's of independent samples."""
    rounds: int
    a_ms: float
    """Median of the rounds' medians, milliseconds a call."""
    b_ms: float
    pairs: int = 0
    """Pairs of fresh processes; 0 where two records are compared."""


def decide(comparison: Comparison) -> Verdict:
    """The verdict on paired rounds. Raises ValueError where there are none."""
    from scipy.stats import wilcoxon

    if not comparison.rounds:
        raise ValueError("no rounds")
    a, b, ratios = _medians(comparison.rounds)
    low, high = bootstrap_median(ratios) if len(ratios) >= LEAST_ROUNDS else (ratios.min(), ratios.max())
    same = bool(np.all(ratios == 1))
    p = 1.0 if same else float(wilcoxon(np.log(ratios)).pvalue)
    pairs = _ratios_of_pairs(comparison.rounds)
    verdict = _verdict(float(np.median(pairs)), float(low), float(high), p, len(ratios), a, b)
    agreed = len(pairs) >= AGREEING_PAIRS and _contrary(pairs) <= (len(pairs) >= MOST_PAIRS)
    return replace(verdict, word=verdict.word if agreed else "no difference shown", pairs=len(pairs))


def is_decided(comparison: Comparison) -> bool:
    """Whether more pairs of processes are unlikely to change the verdict."""
    if decide(comparison).word != "no difference shown":
        return True
    pairs = _ratios_of_pairs(comparison.rounds)
    if len(pairs) >= MOST_PAIRS or _contrary(pairs) > 1:
        return True
    _, _, ratios = _medians(comparison.rounds)
    low, high = bootstrap_median(ratios)
    near = 1 + LEAST_DIFFERENCE
    return (1 / near < low and high < near) or (len(pairs) >= _FUTILE and 1 / near < float(np.median(pairs)) < near)


def _medians(rounds: Sequence[Round]) -> tuple[Nanoseconds, Nanoseconds, Nanoseconds]:
    """Each round's median of A and of B, and the ratio B over A."""
    a = np.array([median(entry.a_ns) for entry in rounds], dtype=np.float64)
    b = np.array([median(entry.b_ns) for entry in rounds], dtype=np.float64)
    return a, b, b / a


def _ratios_of_pairs(rounds: Sequence[Round]) -> Nanoseconds:
    """For each pair of processes the median of its rounds' ratios."""
    _, _, ratios = _medians(rounds)
    numbers = np.array([entry.pair for entry in rounds])
    return np.array([np.median(ratios[numbers == number]) for number in np.unique(numbers)])


def _contrary(pairs: Nanoseconds) -> int:
    """How many pairs disagree in sign with the majority."""
    return int(min(np.sum(pairs <= 1), np.sum(pairs >= 1)))


def bootstrap_median(values: Nanoseconds, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The percentile bootstrap interval of a median, of all resamples there are: nothing is drawn.

    Of n draws at least k are the i-th smallest value or less with a binomial probability, and so the distribution of a
    resample's median is known (Efron, Bootstrap Methods, Annals of Statistics 1979, section 3). Where n is even the
    median lies between two draws: half of them up to the i-th value and half from the j-th on, or both the i-th.
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
    """The verdict on two records made at different times: changes of the host's speed between them are part of it.

    Raises ValueError where one has no samples.
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
