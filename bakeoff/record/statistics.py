"""Statistics computed from samples; they are never stored."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np


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
    p99_ms: float
    low_ms: float
    """Lower end of the median's 95 % interval."""
    high_ms: float


@lru_cache(maxsize=256)
def interval_ranks(count: int, confidence: float = 0.95) -> tuple[int, int]:
    """Indices of two sorted samples; the interval between them contains the median with `confidence`.

    The indices are from the binomial distribution and hold for any distribution of the samples (David and Nagaraja,
    Order Statistics, 7.1). For few samples the interval is the whole range.
    """
    from scipy.special import bdtrik  # importing scipy.stats takes a second

    low = int(np.floor(bdtrik((1 - confidence) / 2, count, 0.5)))
    low = max(0, min(low, (count - 1) // 2))
    return low, count - 1 - low


def summarise_ns(samples_ns: Sequence[int]) -> Summary:
    """Statistics of samples in nanoseconds. Raises ValueError if there are none."""
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
        p99_ms=float(p99),
        low_ms=float(ordered[low]),
        high_ms=float(ordered[high]),
    )
