"""The ranks of a run on the terminal: `bakeoff session aggregate`."""

from collections.abc import Sequence

from tabulate import tabulate

from bakeoff.machine.terminal import lines_of, one_line
from bakeoff.record.ranks import RankRow, RanksReport, RankValue, Scaling, Spread
from bakeoff.report.format import shorten

_LETTERS, _MOST_WAITS = 60, 16
_NEVER_SKEWED = ("start",)
"""Figures of which a share of the median says nothing."""


def render(report: RanksReport) -> str:
    """A table by rank, one by figure, and sentences: rate, straggler, waits, devices, what is wrong."""
    head = [
        f"{report.config.name}, run {report.group}, parallelism {report.config.parallelism}: "
        f"{len(report.rows)} of {report.expected} ranks read from {report.folder}",
        f"figures a unit: {report.counted}; phases by the {report.clock}'s clock",
    ]
    parts = [
        lines_of(map(one_line, head)),
        _ranks(report.rows),
        _spreads(report.spreads),
        lines_of(map(one_line, [_rate(report), report.straggler_text, *_waits(report), *_devices(report)])),
    ]
    if report.problems:
        parts.append(lines_of(["problems", *(one_line(f"{each.code}: {each.text}") for each in report.problems)]))
    if report.findings:
        lines = [f"{_named(each.ranks)}: {each.finding.code}: {each.finding.text}" for each in report.findings]
        parts.append(lines_of(["findings of the ranks' own records", *map(one_line, lines)]))
    return "\n\n".join(parts)


def render_scaling(scaling: Scaling) -> str:
    """Rates by world size, with speed-up, efficiency and the serial share."""
    rows = [
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
    headers = ("ranks", "frames/s", f"speed-up over {scaling.base_world}", "efficiency", "serial share", "run")
    return lines_of([*_table(rows, headers, "rrrrrl").split("\n"), *map(one_line, scaling.notes)])


def _ranks(rows: Sequence[RankRow]) -> str:
    lines = [
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
    headers = ("rank", "host", "device", "status", "session s", "units", "unit ms", "frames/s", "work ms", "wait ms",
               "clock offset ms")  # fmt: skip
    return _table(lines, headers, "rlllrrrrrrr")


def _offset(row: RankRow) -> str:
    if row.clock_offset_ns is None or row.clock_error_ns is None:
        return "not measured"
    return f"{row.clock_offset_ns / 1e6:.3f} +- {row.clock_error_ns / 1e6:.3f}"


def _spreads(spreads: Sequence[Spread]) -> str:
    rows = [
        [
            shorten(each.name, _LETTERS),
            shorten(each.unit, 24),
            *(_figure(value) for value in (each.least, each.median, each.greatest)),
            str(each.least_rank),
            str(each.greatest_rank),
            _skew(each),
            _named(each.lacking) if each.lacking else "",
        ]
        for each in spreads
    ]
    headers = ("figure", "unit", "least", "median", "greatest", "least at", "greatest at", "skew", "not told by")
    return _table(rows, headers, "llrrrrrrl")


def _skew(each: Spread) -> str:
    skew = None if each.name in _NEVER_SKEWED or each.count < 2 else each.skew
    return "" if skew is None else f"{skew:.1%}"


def _figure(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 1e6 else f"{value:.4g}"


def _rate(report: RanksReport) -> str:
    rate = "" if report.frames_per_s is None else f"{report.frames_per_s:.3f}, "
    return f"frames/s of the run: {rate}{report.frames_text}"


def _waits(report: RanksReport) -> list[str]:
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


def _devices(report: RanksReport) -> list[str]:
    found = [f"memory of {each.device}: at most {each.mib:.0f} MiB, {_on(each.ranks)}" for each in report.memory]
    found += [
        f"energy of {each.device}: {each.mj / 1000:.1f} J, {_on(each.ranks, each.host)}" for each in report.energy
    ]
    if report.energy_mj is not None:
        found.append(f"energy of all GPUs that ranks run on: {report.energy_mj / 1000:.1f} J")
    return found


def _on(ranks: Sequence[int], host: str = "") -> str:
    return _named(ranks) if ranks else f"on {host}" if host else "no rank runs on it"


def _named(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _ms(ns: float | None) -> str:
    return "" if ns is None else f"{ns / 1e6:.3f}"


def _table(rows: Sequence[Sequence[str]], headers: Sequence[str], sides: str) -> str:
    return tabulate(
        rows, headers, disable_numparse=True, colalign=["left" if side == "l" else "right" for side in sides]
    )
