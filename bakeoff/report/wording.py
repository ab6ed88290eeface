"""Texts on comparisons, verdicts, limits and rates, which all pages share."""

from collections.abc import Sequence

from bakeoff.models.words import counted
from bakeoff.record.comparable import row_key, same_code
from bakeoff.record.finalists import LimitCheck, clock_of
from bakeoff.record.objective import Goal
from bakeoff.record.schema import Comparison, Record
from bakeoff.record.statistics import Summary
from bakeoff.record.store import StoredComparison
from bakeoff.record.verdict import CONFIDENCE, FEWEST_PAIRS, Verdict, decide, failed_side, verdict_of
from bakeoff.report.format import MIB, median_and_interval, milliseconds
from bakeoff.report.groups import name_of


def final_of(
    a: Record, b: Record, comparisons: Sequence[StoredComparison], goal: Goal = "latency"
) -> Comparison | None:
    """Return the newest comparison of the two records' variants by this goal, in either order, or None.

    It must have the records' configurations, machine, code and libraries, and rounds. A side that failed in it leaves
    it without a verdict.
    """
    every = (entry.record for entry in comparisons)
    fitting = [comparison for comparison in every if comparison.objective.goal == goal and _is_of(comparison, a, b)]
    return max(fitting, key=lambda comparison: comparison.created, default=None)


def _is_of(comparison: Comparison, a: Record, b: Record) -> bool:
    """Return whether a comparison has rounds, and both of its sides are the same as these records."""
    sides = {str(side.variant): side for side in (comparison.a, comparison.b)}
    return (
        bool(comparison.rounds)
        and sides.keys() == {str(a.variant), str(b.variant)}
        and all(_is_same(sides[str(record.variant)], record) for record in (a, b))
    )


def _is_same(side: Record, record: Record) -> bool:
    """Return whether a side has the record's configuration, group, host and code."""
    return side.config_id == record.config_id and row_key(side) == row_key(record) and same_code(side, record)


def from_the_faster(comparison: Comparison, first: int = 0, second: int = 1) -> tuple[Record, Record, Verdict]:
    """Return two sides of a comparison, the faster first, and the verdict on them in that order.

    Its ratio is then at least 1. `first` and `second` are the numbers of the sides.
    """
    verdict = decide(comparison, first, second)
    a, b = comparison.sides[first], comparison.sides[second]
    return (a, b, verdict) if verdict.ratio >= 1 else (b, a, verdict.turned)


def sentence(comparison: Comparison) -> str:
    """Return a comparison's verdict in one line, with its figures."""
    if verdict_of(comparison) is None:
        return f"{name_of(comparison.a)} against {name_of(comparison.b)}: {why_no_verdict(comparison)}"
    a, b, verdict = from_the_faster(comparison)
    relation, end = ("is faster than", "") if verdict.word == "faster" else ("against", f": {verdict.word}")
    return f"{name_of(a)} {relation} {name_of(b)}: {ratio_text(verdict)}, {how(comparison)}{end}"


def why_no_verdict(comparison: Comparison) -> str:
    """Return why a comparison has no verdict: a side was not ok, or no round was run."""
    failed = failed_side(comparison)
    if failed is None:
        return "no verdict, no round was run"
    return f"no verdict, {name_of(failed)} was {failed.status}: {failed.measurement.reason}"


def ratio_text(verdict: Verdict) -> str:
    """Format a verdict's ratio of times, slower side over faster, with its interval and, if unusual, its confidence."""
    return f"{verdict.ratio:.3f}x [{verdict.low:.3f}, {verdict.high:.3f}]{sure_text(verdict)}"


def sure_text(verdict: Verdict) -> str:
    """Return an interval's confidence as ` (75% interval)`, or that its verdict is early; "" if it is the usual one.

    An interval of rounds, of one or two pairs, says nothing of differences between processes.
    """
    if verdict.early:
        assumed = ", assumed spread" * verdict.is_assumed
        return f" (early verdict of {counted(verdict.pairs, 'pair')}{assumed})"
    if verdict.pairs < FEWEST_PAIRS:
        return " (interval of rounds, not of processes)"
    return "" if verdict.confidence >= CONFIDENCE else f" ({verdict.confidence:.0%} interval)"


def how(comparison: Comparison) -> str:
    """Return how many rounds were measured, and in how many pairs of processes."""
    pairs = len({entry.pair for entry in comparison.rounds})
    if comparison.how == "in turn":
        return f"{counted(len(comparison.rounds), 'pair')} of fresh processes in turn"
    return f"{counted(len(comparison.rounds), 'interleaved round')} in {counted(pairs, 'pair')} of fresh processes"


def limit_text(check: LimitCheck) -> str:
    """Format a figure, its interval and its distance from the limit: `p99 28.10 ms [27.00, 29.50], 15% below 33ms`."""
    if check.value is None:
        return f"{check.limit.figure} unknown, {check.why}"
    return f"{check.limit.figure} {_figure(check)}, {distance_text(check)}"


def distance_text(check: LimitCheck) -> str:
    """Describe by what percentage a known figure is below or above its limit."""
    excess = check.excess or 0.0
    size = f"{abs(excess):.1%}" if abs(excess) < 0.1 else f"{abs(excess):.0%}"
    return f"{size} {'above' if excess > 0 else 'below'} {check.limit.number_text}"


def _rate(fps: float) -> str:
    """Format frames a second with three significant digits at least, as a limit can be typed."""
    return f"{fps:.0f}" if fps >= 999.5 else f"{fps:.3g}"


def _figure(check: LimitCheck) -> str:
    """Format a limit's figure with its interval, if it has any; an unknown end is a dash, with the reason after it."""
    value = check.value or 0.0
    match check.limit.figure:
        case "memory":
            return f"{value / MIB:,.0f} MiB"
        case "fps":
            return _rate(value)
        case "sqnr":
            return f"{value:.1f} dB"
    if check.low is None and check.high is None and not check.why:
        return f"{milliseconds(value)} ms"
    low = "-" if check.low is None else milliseconds(check.low, value)
    high = "-" if check.high is None else milliseconds(check.high, value)
    return f"{milliseconds(value)} ms [{low}, {high}]{f' ({check.why})' if check.why else ''}"


def fit_text(checks: Sequence[LimitCheck]) -> str:
    """Return `met`, or the limits that are not met, unclear or unknown, with their figures."""
    against = [f"{each.word}: {limit_text(each)}" for each in checks if each.word != "met"]
    return "; ".join(against) or "met"


def goal_text(record: Record, goal: Goal) -> str:
    """Return the figure that a goal ranks by, with its 95 % interval, as text."""
    figures = clock_of(record, goal)
    if figures is None:
        return "no figures"
    if goal == "throughput":
        return f"{rate_text(items_per_s(record))} items/s"
    median, interval = median_and_interval(figures)
    return f"{median} ms {interval}"


def items_per_s(record: Record) -> tuple[float, float, float] | None:
    """Return items of the batch per second by the throughput clock, and the ends of its 95 % interval, or None."""
    figures: Summary | None = record.throughput
    if figures is None or min(figures.median_ms, figures.low_ms, figures.high_ms) <= 0:
        return None
    rates = (record.batch * 1000 / ms for ms in (figures.median_ms, figures.low_ms, figures.high_ms))
    median, high, low = rates
    return median, low, high


def rate_text(rate: tuple[float, float, float] | None) -> str:
    """Format a rate with its interval as `168.1 [156.2, 181.8]`; "" for None."""
    if rate is None:
        return ""
    median, low, high = (f"{value:.{_decimals(rate[0])}f}" for value in rate)
    return f"{median} [{low}, {high}]"


def _decimals(rate: float) -> int:
    return 1 if rate >= 100 else 2 if rate >= 10 else 3
