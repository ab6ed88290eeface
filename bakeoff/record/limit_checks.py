"""Whether a row meets the limits of an objective, each checked with the interval of its figure."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal

import numpy as np

from bakeoff.models.words import counted
from bakeoff.record.objective import PERCENTILES, Goal, Limit, Objective
from bakeoff.record.schema import Record
from bakeoff.record.statistics import Summary, quantile_ranks, samples_for_quantile

Word = Literal["met", "unclear", "unknown", "not met"]
"""`unclear`: the interval holds the limit, or has no upper end. `unknown`: the record does not have the figure."""
_FROM_BEST: tuple[Word, ...] = ("met", "unclear", "unknown", "not met")


@dataclass(frozen=True, slots=True)
class LimitCheck:
    """A limit and a row's figure, in milliseconds or, of memory, in bytes."""

    limit: Limit
    word: Word
    value: float | None = None
    """None where it is unknown."""
    low: float | None = None
    """Lower end of the 95 % interval; None where there is none."""
    high: float | None = None
    why: str = ""
    """Why the figure or the upper end of its interval is unknown."""

    @property
    def excess(self) -> float | None:
        """How far the figure is above the limit, as a share of it; negative below it."""
        return None if self.value is None else self.value / self.limit.most - 1


def check_limit(record: Record, limit: Limit) -> LimitCheck:
    """A percentile meets its limit if all of its interval does, and misses it if none of it does."""
    if limit.figure == "memory":
        return _check_memory(record, limit)
    share, clock = PERCENTILES[limit.figure], record.measurement.latency
    count = len(clock.samples_ns) if clock is not None else 0
    if clock is None or not count:
        return LimitCheck(limit, "unknown", why="it has no samples")
    least = round(1 / (1 - share))
    if count < least:
        return LimitCheck(
            limit,
            "unknown",
            why=f"{counted(count, 'sample is', 'samples are')} too few for a {limit.figure}, it takes {least}",
        )
    value, low, high = _percentile_ms(clock.samples_ns, share)
    if low is not None and not limit.allows(low):
        return LimitCheck(limit, "not met", value, low, high)
    if high is not None:
        return LimitCheck(limit, "met" if limit.allows(high) else "unclear", value, low, high)
    why = (
        f"{counted(count, 'sample gives', 'samples give')} its interval no upper end, {samples_for_quantile(share)} do"
    )
    return LimitCheck(limit, "unclear", value, low, high, why)


def _check_memory(record: Record, limit: Limit) -> LimitCheck:
    peak = record.peak_bytes
    if peak is None:
        return LimitCheck(limit, "unknown", why="its peak memory was not metered")
    return LimitCheck(limit, "met" if limit.allows(peak) else "not met", float(peak))


def _percentile_ms(samples_ns: Sequence[int], share: float) -> tuple[float, float | None, float | None]:
    ordered = np.sort(np.asarray(samples_ns, dtype=np.float64)) / 1e6
    low, high = (None if rank is None else float(ordered[rank]) for rank in quantile_ranks(len(ordered), share))
    return float(np.quantile(ordered, share)), low, high


def check_limits(record: Record, objective: Objective) -> tuple[LimitCheck, ...]:
    """Each limit of the objective, in its order."""
    return tuple(check_limit(record, limit) for limit in objective.limits)


def worst(checks: Sequence[LimitCheck]) -> Word:
    """The word for a row: that of the limit that speaks most against it; `met` without limits."""
    return max((each.word for each in checks), key=_FROM_BEST.index, default="met")


def clock_of(record: Record, goal: Goal) -> Summary | None:
    """The statistics that a goal is about; None if the row does not have them."""
    return record.throughput if goal == "throughput" else record.latency


def call_ms(record: Record, goal: Goal) -> float:
    """The median that a goal is about, milliseconds a call; infinite without samples.

    Rows of one table have the same batch, so the least time gives the most items a second.
    """
    figures = clock_of(record, goal)
    return figures.median_ms if figures is not None else inf
