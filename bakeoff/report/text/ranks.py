"""The ranks of a run on the terminal: `bakeoff session aggregate`."""

from collections.abc import Sequence
from typing import Final

from tabulate import tabulate

from bakeoff.advice.evidence import Advice
from bakeoff.machine.terminal import lines_of, one_line
from bakeoff.models.words import counted
from bakeoff.record.ranks import RankRow, RanksReport, RankValue, Scaling, Spread
from bakeoff.report.format import shorten
from bakeoff.report.text.advice import advice_text

RANKS: Final = (
    ("rank", "r"), ("host", "l"), ("device", "l"), ("status", "l"), ("session s", "r"), ("units", "r"),
    ("unit ms", "r"), ("frames/s", "r"), ("work ms", "r"), ("wait ms", "r"), ("clock offset ms", "r"),
)  # fmt: skip
"""Headings of `rank_rows`, and the side that each column is aligned to."""
SPREADS: Final = (
    ("figure", "l"), ("unit", "l"), ("least", "r"), ("median", "r"), ("greatest", "r"), ("least at", "r"),
    ("greatest at", "r"), ("skew", "r"), ("not told by", "l"),
)  # fmt: skip
"""Of `spread_rows`."""
SCALING: Final = (
    ("ranks", "r"), ("frames/s", "r"), ("speed-up", "r"), ("efficiency", "r"), ("serial share", "r"), ("run", "l"),
)  # fmt: skip
"""Of `scaling_rows`."""
_LETTERS, _MOST_WAITS = 60, 16
_NEVER_SKEWED = ("start",)
"""Figures of which a share of the median says nothing."""


def render(report: RanksReport, advice: Sequence[Advice]) -> str:
    """A table by rank, one by figure, and sentences: rate, straggler, waits, devices, advice, what is wrong."""
    parts = [
        lines_of(map(one_line, [head_text(report), counted_text(report)])),
        _table(rank_rows(report.rows), RANKS),
        _table(spread_rows(report.spreads), SPREADS),
        lines_of(map(one_line, [rate_text(report), report.straggler_text, *wait_lines(report), *device_lines(report)])),
        advice_text(advice, "unit"),
    ]
    if report.problems:
        parts.append(lines_of(["problems", *(one_line(f"{each.code}: {each.text}") for each in report.problems)]))
    if report.findings:
        lines = [f"{named(each.ranks)}: {each.finding.code}: {each.finding.text}" for each in report.findings]
        parts.append(lines_of(["findings of the ranks' own records", *map(one_line, lines)]))
    return "\n\n".join(parts)


def render_scaling(scaling: Scaling) -> str:
    """Rates by world size, with speed-up over the smallest, efficiency and the serial share."""
    table = _table(scaling_rows(scaling), SCALING).split("\n") if scaling.points else ["no scaling of several sizes"]
    return lines_of([*table, *map(one_line, scaling.notes)])


def head_text(report: RanksReport) -> str:
    """Which run, and how many of its ranks were read."""
    return (
        f"{report.config.name}, run {report.group}, parallelism {report.config.parallelism}: "
        f"{len(report.rows)} of {counted(report.expected, 'rank')} read from {report.folder}"
    )


def counted_text(report: RanksReport) -> str:
    """What figures are of."""
    return f"figures a unit: {report.counted}; phases by the {report.clock}'s clock"


def scaling_rows(scaling: Scaling) -> list[list[str]]:
    return [
        [
            str(point.world),
            f"{point.frames_per_s:.3f}",
            f"{point.speedup:.3f}",
            f"{point.efficiency:.1%}",
            "" if point.serial_share is None else f"{point.serial_share:.3f}",
            shorten(point.folder, _LETTERS),
        ]
        for point in scaling.points
    ]


def rank_rows(rows: Sequence[RankRow]) -> list[list[str]]:
    return [
        [
            str(row.rank),
            shorten(row.host, 24),
            shorten(row.device, 16) or "cpu",
            shorten(row.status, 24),
            f"{row.ns / 1e9:.3f}",
            str(row.units),
            _ms(row.unit_ns),
            "" if row.frames_per_s is None else f"{row.frames_per_s:.3f}",
            _ms(row.work_ns),
            _ms(row.wait_ns),
            _offset(row),
        ]
        for row in rows
    ]


def _offset(row: RankRow) -> str:
    if row.clock_offset_ns is None or row.clock_error_ns is None:
        return "not measured"
    return f"{row.clock_offset_ns / 1e6:.3f} +- {row.clock_error_ns / 1e6:.3f}"


def spread_rows(spreads: Sequence[Spread]) -> list[list[str]]:
    return [
        [
            shorten(each.name, _LETTERS),
            shorten(each.unit, 24),
            *(_figure(value) for value in (each.least, each.median, each.greatest)),
            str(each.least_rank),
            str(each.greatest_rank),
            _skew(each),
            named(each.lacking) if each.lacking else "",
        ]
        for each in spreads
    ]


def _skew(each: Spread) -> str:
    skew = None if each.name in _NEVER_SKEWED or each.count < 2 else each.skew
    return "" if skew is None else f"{skew:.1%}"


def _figure(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 1e6 else f"{value:.4g}"


def rate_text(report: RanksReport) -> str:
    """Frames a second of the run, and how they were computed."""
    rate = "" if report.frames_per_s is None else f"{report.frames_per_s:.3f}, "
    return f"frames/s of the run: {rate}{report.frames_text}"


def wait_lines(report: RanksReport) -> list[str]:
    """Waits by collective."""
    return [
        f"wait in {each.name}, ms a unit: "
        + ", ".join(f"rank {wait.rank} {wait.ns / 1e6:.3f}" for wait in _shown(each.waits))
        + f" (over the least time in it, {each.least_ns / 1e6:.3f})"
        for each in report.waits
    ]


def _shown(waits: Sequence[RankValue]) -> Sequence[RankValue]:
    """All of them, or the least and the greatest of many."""
    if len(waits) <= _MOST_WAITS:
        return waits
    return min(waits, key=lambda wait: wait.ns), max(waits, key=lambda wait: wait.ns)


def device_lines(report: RanksReport) -> list[str]:
    """Memory and energy, once for each device."""
    found = [f"memory of {each.device}: at most {each.mib:.0f} MiB, {_on(each.ranks)}" for each in report.memory]
    found += [
        f"energy of {each.device}: {each.mj / 1000:.1f} J, {_on(each.ranks, each.host)}" for each in report.energy
    ]
    if report.energy_mj is not None:
        found.append(f"energy of all GPUs that ranks run on: {report.energy_mj / 1000:.1f} J")
    return found


def _on(ranks: Sequence[int], host: str = "") -> str:
    return named(ranks) if ranks else f"on {host}" if host else "no rank runs on it"


def named(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _ms(ns: float | None) -> str:
    return "" if ns is None else f"{ns / 1e6:.3f}"


def _table(rows: Sequence[Sequence[str]], headings: Sequence[tuple[str, str]]) -> str:
    return tabulate(
        rows,
        [name for name, _ in headings],
        disable_numparse=True,
        colalign=["left" if side == "l" else "right" for _, side in headings],
    )
