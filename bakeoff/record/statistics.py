"""Computes statistics of samples: medians and their intervals, percentiles, modes. They are never stored."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

FEWEST_FOR_P99 = 100
"""Least number of samples or units for a 99th percentile: with fewer, the nearest rank is the largest value."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Statistics of one clock, in milliseconds per call."""

    count: int
    mean_ms: float
    median_ms: float
    min_ms: float
    max_ms: float
    std_ms: float
    p90_ms: float
    p99_ms: float | None
    """None for fewer than 100 samples."""
    low_ms: float
    """Lower end of the median's 95 % interval."""
    high_ms: float


@dataclass(frozen=True, slots=True)
class Mode:
    """One of two groups of samples that lie apart."""

    median_ms: float
    share: float
    """Share of all samples, 0 to 1."""


_TRIMMED = 0.05
_LEAST_APART = 0.05
_LEAST_SHARE = 0.10
_OUTLIER_SHARE = 0.05
"""Share of outliers that samples of one mode may have without these counting as a second mode."""
_OUTLIER_CHANCE = 0.005
_FEWEST, _FEWEST_FAR = 12, 4
_FAR = 3.0
"""Ratio across the gap between two modes of fewer than 12 samples. Of 40,000 runs of 5 to 11 samples in a row from
published rows, 12 have a gap of 2 with two samples on either side, and none has one of 3."""


def trimmed(values: Iterable[int], key: Callable[[int], float] | None = None) -> list[int]:
    """Return the values by size, or by `key`, without the smallest and the largest twentieth of them."""
    ordered = sorted(values, key=key)
    cut = round(_TRIMMED * len(ordered))
    return ordered[cut : len(ordered) - cut]


@lru_cache(maxsize=256)
def interval_ranks(count: int, confidence: float = 0.95) -> tuple[int, int]:
    """Return two indices into sorted samples; the interval between these samples contains the median with `confidence`.

    The indices are from the binomial distribution and hold for any distribution of the samples (David and Nagaraja,
    Order Statistics, 7.1). For few samples the interval is the whole range.
    """
    from scipy.special import bdtrik  # importing scipy.stats takes a second

    low = int(np.floor(bdtrik((1 - confidence) / 2, count, 0.5)))
    low = max(0, min(low, (count - 1) // 2))
    return low, count - 1 - low


@lru_cache(maxsize=256)
def quantile_ranks(count: int, share: float, confidence: float = 0.95) -> tuple[int | None, int | None]:
    """Return two indices into sorted samples; the interval between them contains the quantile `share` with
    `confidence`.

    The method is that of `interval_ranks`. An index is None if that end lies beyond the samples: the largest of 100
    samples is below the 99th percentile with a chance of 37 %, and bounds it with no useful confidence.
    """
    from scipy.special import bdtr  # importing scipy.stats takes a second

    at_most = bdtr(np.arange(count, dtype=np.float64), count, share)
    beyond = (1 - confidence) / 2
    low = int(np.searchsorted(at_most, beyond, side="right")) - 1
    high = int(np.searchsorted(at_most, 1 - beyond, side="left"))
    return (low if low >= 0 else None), (high if high < count else None)


def samples_for_quantile(share: float, confidence: float = 0.95) -> int:
    """Return the least number of samples with which the interval of a quantile of `share` > 0.5 has an upper end."""
    return int(np.ceil(np.log((1 - confidence) / 2) / np.log(share)))


def summarise_ns(samples_ns: Sequence[int]) -> Summary:
    """Compute the statistics of samples in nanoseconds. Raises ValueError if there are none."""
    if not samples_ns:
        raise ValueError("no samples")
    ordered = np.sort(np.asarray(samples_ns, dtype=np.float64)) / 1e6
    low, high = interval_ranks(len(ordered))
    p90, p99 = np.percentile(ordered, [90, 99])
    return Summary(
        count=len(ordered),
        mean_ms=float(ordered.mean()),
        median_ms=float(np.median(ordered)),
        min_ms=float(ordered[0]),
        max_ms=float(ordered[-1]),
        std_ms=float(ordered.std(ddof=1)) if len(ordered) > 1 else 0.0,
        p90_ms=float(p90),
        p99_ms=float(p99) if len(ordered) >= FEWEST_FOR_P99 else None,
        low_ms=float(ordered[low]),
        high_ms=float(ordered[high]),
    )


def half_width(samples_ns: Sequence[int]) -> float:
    """Return half the width of the median's 95 % interval as a share of the median. Raises ValueError without
    samples."""
    figures = summarise_ns(samples_ns)
    return (figures.high_ms - figures.low_ms) / 2 / figures.median_ms


def modes(samples_ns: Sequence[int]) -> tuple[Mode, Mode] | None:
    """Return the two modes of the samples, the faster first; None if there is only one.

    Modes are at least 5 % apart and have at least 10 % of the samples each. The logarithms of the samples are cut into
    two groups such that the sum of absolute deviations from the groups' medians is smallest (k-medians with k = 2). Two
    groups are modes if their medians are `4.4 + 60 / count` robust standard deviations apart: Ashman's D (Ashman, Bird
    and Zepf, AJ 108, 1994) with quartiles instead of moments. Cutting a normal distribution gives 2.2, a uniform one (a
    steady drift) 2.7, a sine's 4.0; for few samples chance adds to that. The smaller group must also be too large to
    consist of outliers, of which 5 % are expected. Of 4 to 11 samples, two or more must lie beyond a gap of `_FAR`.
    """
    count = len(samples_ns)
    if count < _FEWEST_FAR:
        return None
    few = count < _FEWEST
    values = np.log(np.sort(np.asarray(samples_ns, dtype=np.float64)))
    cut = _best_cut(values, 2 if few else max(3, int(np.ceil(_LEAST_SHARE * count))))
    fast, slow = (np.percentile(part, (25, 50, 75)) for part in (values[:cut], values[cut:]))
    apart = float(slow[1] - fast[1])
    spread = float(np.hypot(fast[2] - fast[0], slow[2] - slow[0])) / np.sqrt(2) / 1.349
    slower = int((values > (fast[1] + slow[1]) / 2).sum())
    far = apart >= max(np.log1p(_LEAST_APART), (4.4 + 60 / count) * spread)
    many = min(slower, count - slower) >= max(_LEAST_SHARE * count, _outliers(count))
    if values[cut] - values[cut - 1] < np.log(_FAR) if few else not (far and many):
        return None
    return (
        Mode(float(np.exp(fast[1])) / 1e6, 1 - slower / count),
        Mode(float(np.exp(slow[1])) / 1e6, slower / count),
    )


def _best_cut(ordered: np.ndarray, least: int) -> int:
    """Split the sorted values into two groups of at least `least` values each so that the sum of absolute deviations
    from each group's median is smallest; return the size of the lower group."""
    count = len(ordered)
    sums = np.concatenate(([0.0], np.cumsum(ordered)))

    def deviations(first: np.ndarray, end: np.ndarray) -> np.ndarray:
        middle, odd = (first + end) // 2, (end - first) % 2
        return (sums[end] - sums[middle + odd]) - (sums[middle] - sums[first])

    cuts = np.arange(least, count - least + 1)
    cost = deviations(np.zeros_like(cuts), cuts) + deviations(cuts, np.full_like(cuts, count))
    return int(cuts[np.argmin(cost)])


@lru_cache(maxsize=256)
def _outliers(count: int) -> int:
    """Return the smallest number of outliers that fewer than 5 in 1,000 series of `count` samples reach by chance."""
    from scipy.special import bdtrik  # importing scipy.stats takes a second

    return int(np.ceil(bdtrik(1 - _OUTLIER_CHANCE, count, _OUTLIER_SHARE))) + 1
