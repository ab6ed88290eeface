"""Objectives in words: a row's figures against limits, and items a second."""

from collections.abc import Sequence

from bakeoff.record.finalists import LimitCheck, clock_of
from bakeoff.record.objective import Goal
from bakeoff.record.schema import Record
from bakeoff.record.statistics import Summary
from bakeoff.report.format import MIB, median_and_interval, milliseconds


def limit_text(check: LimitCheck) -> str:
    """A figure, its interval, and how far it is from its limit: `p99 28.10 ms [27.00, 29.50], 15% below 33ms`."""
    if check.value is None:
        return f"{check.limit.figure} unknown, {check.why}"
    return f"{check.limit.figure} {_figure(check)}, {distance_text(check)}"


def distance_text(check: LimitCheck) -> str:
    """How far a known figure is below or above its limit."""
    excess = check.excess or 0.0
    size = f"{abs(excess):.1%}" if abs(excess) < 0.1 else f"{abs(excess):.0%}"
    return f"{size} {'above' if excess > 0 else 'below'} {check.limit.number_text}"


def _figure(check: LimitCheck) -> str:
    value = check.value or 0.0
    if check.limit.figure == "memory":
        return f"{value / MIB:,.0f} MiB"
    low = "-" if check.low is None else milliseconds(check.low, value)
    high = "-" if check.high is None else milliseconds(check.high, value)
    return f"{milliseconds(value)} ms [{low}, {high}]{f' ({check.why})' if check.why else ''}"


def fit_text(checks: Sequence[LimitCheck]) -> str:
    """A cell: `met`, or the limits that are not met, unclear or unknown with their figures."""
    against = [f"{each.word}: {limit_text(each)}" for each in checks if each.word != "met"]
    return "; ".join(against) or "met"


def goal_text(record: Record, goal: Goal) -> str:
    """The figure that a goal is about, with its 95 % interval."""
    figures = clock_of(record, goal)
    if figures is None:
        return "no figures"
    if goal == "throughput":
        return f"{rate_text(items_per_s(record))} items/s"
    median, interval = median_and_interval(figures)
    return f"{median} ms {interval}"


def items_per_s(record: Record) -> tuple[float, float, float] | None:
    """Items of the batch a second by the throughput clock, and its 95 % interval; None without samples."""
    figures: Summary | None = record.throughput
    if figures is None or min(figures.median_ms, figures.low_ms, figures.high_ms) <= 0:
        return None
    rates = (record.batch * 1000 / ms for ms in (figures.median_ms, figures.low_ms, figures.high_ms))
    median, high, low = rates
    return median, low, high


def rate_text(rate: tuple[float, float, float] | None) -> str:
    """A rate with its interval as `168.1 [156.2, 181.8]`; "" for none."""
    if rate is None:
        return ""
    median, low, high = (f"{value:.{_decimals(rate[0])}f}" for value in rate)
    return f"{median} [{low}, {high}]"


def _decimals(rate: float) -> int:
    return 1 if rate >= 100 else 2 if rate >= 10 else 3
