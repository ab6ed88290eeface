"""Decides which rows meet an objective's limits, which run represents a variant, and which rows a final compares."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite, log
from statistics import median
from typing import Literal

import numpy as np

from bakeoff.models.words import counted
from bakeoff.record.comparable import same_code
from bakeoff.record.finding import is_of_the_machine
from bakeoff.record.objective import LATENCY, PERCENTILES, Goal, Limit, Objective
from bakeoff.record.schema import Record
from bakeoff.record.short_calls import CLOCKS_APART
from bakeoff.record.statistics import Summary, quantile_ranks, samples_for_quantile
from bakeoff.record.store import Stored

Word = Literal["met", "unclear", "unknown", "not met"]
"""`unclear`: the interval contains the limit, or has no upper end. `unknown`: the record lacks the figure."""
_FROM_BEST: tuple[Word, ...] = ("met", "unclear", "unknown", "not met")


@dataclass(frozen=True, slots=True)
class LimitCheck:
    """A limit and a row's figure for it, in milliseconds, or in bytes for memory."""

    limit: Limit
    word: Word
    value: float | None = None
    """The row's figure; None if unknown."""
    low: float | None = None
    """Lower end of the figure's 95 % interval; None if there is none."""
    high: float | None = None
    why: str = ""
    """Reason why the figure or the upper end of its interval is unknown."""

    @property
    def excess(self) -> float | None:
        """Share of the limit by which the figure is above it; negative below it."""
        return None if self.value is None else self.value / self.limit.bound - 1


def check_limit(record: Record, limit: Limit) -> LimitCheck:
    """Check a row against a limit.

    A percentile meets its limit if its whole 95 % interval does, and misses it if no part of the interval meets it.
    """
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
    """Check a row against each limit of the objective, in the objective's order."""
    return tuple(check_limit(record, limit) for limit in objective.limits)


def worst(checks: Sequence[LimitCheck]) -> Word:
    """Return the word for a row: the worst one among its checks; `met` without limits."""
    return max((each.word for each in checks), key=_FROM_BEST.index, default="met")


def clock_of(record: Record, goal: Goal) -> Summary | None:
    """Return the statistics of the clock that a goal ranks by; None if the row has none."""
    return record.throughput if goal == "throughput" else record.latency


def call_ms(record: Record, goal: Goal) -> float:
    """Return the median time of a call by the clock of the goal, in milliseconds; infinite without samples.

    Rows of one table have the same batch, so the shortest time means the most items a second.
    """
    figures = clock_of(record, goal)
    return figures.median_ms if figures is not None else inf


def finalists(rows: Sequence[Stored], objective: Objective = LATENCY) -> list[Stored]:
    """Return the two best rows by the objective's goal that meet its limits, the best first; fewer if fewer meet them.

    `rows` must be comparable with each other, one for each variant.
    """
    fitting = [entry for entry in candidates(rows, objective) if worst(check_limits(entry.record, objective)) == "met"]
    return fitting[:2]


def candidates(rows: Sequence[Stored], objective: Objective = LATENCY) -> list[Stored]:
    """Return the rows that could be shipped if there were no limits, the best by the objective's goal first: by the
    faster mode of a row that has two."""
    fitting = [
        entry for entry in rows if _is_candidate(entry.record) and isfinite(call_ms(entry.record, objective.goal))
    ]
    return sorted(fitting, key=lambda entry: speeds_ms(entry.record, objective.goal)[0])


def _is_candidate(record: Record) -> bool:
    """Return whether the row can be shipped: its numbers can be compared, and its error is known. The error of a
    quantised row on random weights says nothing about its error on trained ones."""
    return is_comparable(record) and record.latency is not None and not has_unknown_error(record)


def is_comparable(record: Record) -> bool:
    """Return whether a race with another row can tell which is faster: the row is ok, or unstable only by what both
    sides of a race have alike. Its own figures then say little."""
    if record.status != "unstable":
        return record.status == "ok"
    findings = record.measurement.findings
    times = sorted(call_ms(record, goal) for goal in ("latency", "throughput"))
    codes = {finding.code for finding in findings}
    # One call computes for others; or other processes starve the threads of calls in blocks, up to 300 times.
    several = "clocks-disagree" in codes and "contention" not in codes and times[1] > CLOCKS_APART * times[0]
    return is_of_the_machine(findings) and not several


def speeds_ms(record: Record, goal: Goal) -> tuple[float, float]:
    """Return the median times of a call in the faster and in the slower mode of the goal's clock, in milliseconds; both
    are the median of all samples if there is one mode."""
    made = record.measurement
    clock = made.throughput if goal == "throughput" else made.latency
    found = clock.modes if clock is not None else None
    return (found[0].median_ms, found[1].median_ms) if found else (call_ms(record, goal),) * 2


_ALIKE = 1.5
"""Largest ratio between the logarithms of how far modes are apart that may have one cause: those of six rows on one
machine of two speeds were 1.49 to 1.74 apart."""


def shared_modes(rows: Sequence[Stored], goal: Goal = "latency") -> dict[str, float]:
    """Return how far apart the modes are of each row that shares them with a row of another backend, by id; empty if
    none does. They are then the machine's, and no engine's."""
    found = {}
    for entry in rows:
        fast, slow = speeds_ms(entry.record, goal)
        if fast < slow < inf and "bimodal" in {finding.code for finding in entry.record.measurement.findings}:
            found[entry.id] = slow / fast
    middle = median(map(log, found.values())) if found else 1.0
    alike = {id: ratio for id, ratio in found.items() if 1 / _ALIKE < log(ratio) / middle < _ALIKE}
    backends = {entry.record.variant.backend for entry in rows if entry.id in alike}
    return alike if len(backends) > 1 else {}


def has_unknown_error(record: Record) -> bool:
    """Return whether a quantised row was checked on random weights alone."""
    return bool(record.quantisation) and not record.checkpoint


def objective_of(rows: Sequence[Stored]) -> Objective:
    """Return a table's objective: that of its newest row, since rows of several sweeps may stand in one table, without
    those that were only built."""
    timed = [entry for entry in rows if entry.record.status != "built"]
    newest = max(timed, key=lambda entry: (entry.record.created, entry.id), default=None)
    return LATENCY if newest is None else newest.record.objective


def representative(tries: Sequence[Stored]) -> Stored:
    """Return the middle process by median latency (the lower of two); or the last run that is not ok, if there is one.

    If the code changed between the runs (a sweep that was resumed after an edit), only runs with the code of the newest
    one count.
    """
    newest = max(tries, key=lambda entry: entry.record.created)
    tries = [entry for entry in tries if same_code(entry.record, newest.record)]
    failed = [entry for entry in tries if entry.record.status != "ok"]
    if failed:
        return failed[-1]
    return sorted(tries, key=_median_ms)[(len(tries) - 1) // 2]


def _median_ms(entry: Stored) -> float:
    return entry.record.latency.median_ms if entry.record.latency else 0.0
