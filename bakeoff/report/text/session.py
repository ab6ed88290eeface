"""A session on the terminal: rates, phases of a unit, ranges, steps, series, energy, costs, advice."""

from collections.abc import Iterator, Sequence

from tabulate import tabulate

from bakeoff.machine.terminal import lines_of, one_line
from bakeoff.models.words import counted
from bakeoff.report.format import duration, shorten
from bakeoff.report.sessions import ReportAccount, ReportEvent, ReportRange, ReportSeries, SessionReport
from bakeoff.report.text.advice import advice_text

_MOST_RANGES, _MOST_STEPS, _MOST_SERIES, _MOST_EVENTS, _MOST_LINES = 60, 20, 60, 20, 40
_LETTERS = 60


def render(report: SessionReport) -> str:
    """All of a report, its longest lists cut."""
    parts = [
        lines_of(_head(report)),
        _account(report),
        _units(report),
        _ranges("ranges", report.ranges),
        _ranges(f"before session: {duration(report.before_ms)}", report.before),
        _steps(report),
        _series(report.series),
        _parameters(report),
        lines_of(_events(report)),
        lines_of(_remarks(report)),
        _advice(report),
    ]
    return "\n\n".join(part for part in parts if part)


def rate_text(report: SessionReport) -> str:
    """Frames and units a second, and of which units; "" without units."""
    if report.bps is None:
        return ""
    fps = f"{report.fps:.2f} frames a second, " if report.fps is not None else ""
    count = sum(units.count for units in report.units if report.rates_of == "all" or units.kind == "steady")
    of = (
        counted(count, "steady unit")
        if report.rates_of == "steady"
        else f"all {counted(count, 'unit')}, none of which was steady"
    )
    return f"{fps}{report.bps:.2f} units a second, of {of}"


def _head(report: SessionReport) -> Iterator[str]:
    yield f"session {one_line(report.name)}: {one_line(report.status)}"
    yield f"{one_line(report.started_at)}, {duration(report.ms)}"
    if report.bps is not None:
        yield rate_text(report)
    if report.rank is not None:
        yield rank_text(report)
    if report.tags:
        yield "tags " + ", ".join(f"{shorten(key, 40)}={shorten(str(value), 40)}" for key, value in report.tags.items())


def rank_text(report: SessionReport) -> str:
    """Which rank made it; "" without ranks."""
    rank = report.rank
    if rank is None:
        return ""
    on = f" on {rank.device}" if rank.device else ""
    return f"rank {rank.rank} of {rank.world} ({rank.parallelism} parallel), host {rank.host}{on}, process {rank.pid}"


def _advice(report: SessionReport) -> str:
    """Of a rank that waits for others the command that shows them too: its own record does not tell for whom."""
    waits = report.rank is not None and any(each.kind == "collective" for each in report.ranges)
    together = "this rank waits in collectives; look at all ranks together: bakeoff session aggregate FOLDER"
    if waits and not report.advice:
        return together
    return "\n".join([advice_text(report.advice, "unit"), *([together] if waits else [])])


def _account(report: SessionReport) -> str:
    made = report.account
    if made is None:
        return ""
    rows = [
        [shorten(line.name, _LETTERS), f"{line.calls:.3g}", f"{line.ms:.3f}", f"{line.share / 10:.1f} %"]
        for line in made.lines
    ]
    rows.append(["sum", "", f"{made.unit_ms:.3f}", "100.0 %"])
    return _table(rows, [f"phase, of {units_text(made)}", "calls", "ms a unit", "share"], 1)


def units_text(account: ReportAccount) -> str:
    """The units that an account is of."""
    return f"all {counted(account.units, 'unit')}" if account.of == "all units" else f"{account.units} {account.of}"


def _units(report: SessionReport) -> str:
    names = list(dict.fromkeys(name for units in report.units for name in units.percentiles_ms))
    rows = [
        [
            units.kind,
            str(units.count),
            str(units.frames),
            str(units.latents),
            *(f"{ms:.3f}" for ms in (units.mean_ms, units.least_ms, units.greatest_ms)),
            *(f"{units.percentiles_ms[name]:.3f}" if name in units.percentiles_ms else "" for name in names),
        ]
        for units in report.units
    ]
    return _table(rows, ["units", "count", "frames", "latents", "mean ms", "least", "greatest", *names], 1)


def _ranges(heading: str, ranges: Sequence[ReportRange]) -> str:
    rows = [
        [
            shorten(" / ".join(each.path) or "session", _LETTERS),
            each.kind,
            str(each.calls),
            f"{each.total_ms:.3f}",
            f"{each.own_ms:.3f}",
            f"{each.share / 10:.1f} %" if each.share is not None else "",
            f"{each.device_ms:.3f}" if each.device_ms is not None else "",
        ]
        for each in ranges[:_MOST_RANGES]
    ]
    if len(ranges) > _MOST_RANGES:
        rows.append([f"and {len(ranges) - _MOST_RANGES} more", *[""] * 6])
    return _table(rows, [heading, "kind", "calls", "total ms", "own ms", "share", "device ms"], 2)


def _steps(report: SessionReport) -> str:
    rows = [
        [
            str(step.index),
            f"{step.timestep:g}" if step.timestep is not None else "",
            str(step.calls),
            *(f"{ms:.3f}" for ms in (step.mean_ms, step.least_ms, step.greatest_ms)),
        ]
        for step in report.steps[:_MOST_STEPS]
    ]
    if len(report.steps) > _MOST_STEPS:
        rows.append([f"and {len(report.steps) - _MOST_STEPS} more", *[""] * 5])
    return _table(rows, ["step", "timestep", "calls", "mean ms", "least", "greatest"], 0)


def _series(series: Sequence[ReportSeries]) -> str:
    rows = [
        [
            shorten(each.name, _LETTERS),
            shorten(each.source, 16),
            *(f"{value:.6g}" if value is not None else "" for value in (each.least, each.mean, each.greatest)),
            shorten(each.unit, 12),
            str(each.count),
        ]
        for each in series[:_MOST_SERIES]
    ]
    if len(series) > _MOST_SERIES:
        rows.append([f"and {len(series) - _MOST_SERIES} more", *[""] * 6])
    return _table(rows, ["series", "of", "least", "mean", "greatest", "unit", "samples"], 2)


def _parameters(report: SessionReport) -> str:
    rows = [
        [
            shorten(model.name, _LETTERS),
            shorten(model.kind, 20),
            f"{model.count:,}",
            f"{model.bytes / 2**20:,.1f}" if model.bytes is not None else "",
            shorten(model.dtype, 20),
        ]
        for model in report.parameters[:_MOST_LINES]
    ]
    return _table(rows, ["model", "kind", "parameters", "MiB", "dtype"], 2)


def _table(rows: Sequence[Sequence[str]], headings: Sequence[str], texts: int) -> str:
    """A table whose first `texts` columns are text; "" without rows."""
    if not rows:
        return ""
    align = ["left"] * texts + ["right"] * (len(headings) - texts)
    return tabulate([list(row) for row in rows], headers=list(headings), disable_numparse=True, colalign=align)


def _events(report: SessionReport) -> Iterator[str]:
    for event in report.events[:_MOST_EVENTS]:
        data = data_text(event)
        failed = " failed" if event.failed else ""
        yield f"event {shorten(event.name, _LETTERS)}{failed} at {duration(event.t_ms)}{': ' if data else ''}{data}"
    left = len(report.events) - _MOST_EVENTS
    if left > 0 or report.events_dropped:
        more = counted(max(0, left) + report.events_dropped, "more event")
        yield f"and {more}, of which {report.events_dropped} were not kept"


def data_text(event: ReportEvent) -> str:
    """An event's data as `key=value`."""
    return ", ".join(f"{shorten(key, 40)}={shorten(str(value), _LETTERS)}" for key, value in event.data.items())


def _remarks(report: SessionReport) -> Iterator[str]:
    yield from energy_lines(report)
    yield from cost_lines(report)
    yield from (f"unknown: {one_line(text)}" for text in report.missing[:_MOST_LINES])
    yield from (f"note: {one_line(each.text)} [{one_line(each.code)}]" for each in report.findings[:_MOST_LINES])


def energy_lines(report: SessionReport) -> Iterator[str]:
    """A sentence for each device, and for each reason that lowered its clock."""
    for each in report.energy:
        if each.joules is None:
            yield f"energy of {one_line(each.device)}: unknown{': ' if each.note else ''}{one_line(each.note)}"
            continue
        frame = f", {each.joules_a_frame:.3g} J a frame" if each.joules_a_frame is not None else ""
        note = f" ({one_line(each.note)})" if each.note else ""
        yield f"energy of {one_line(each.device)}: {each.watt_hours:.4g} Wh by its {each.source}{frame}{note}"
    for held in report.throttled:
        yield f"{one_line(held.device)}: {one_line(held.reason)} for {held.share:.1%} of the samples"


def cost_lines(report: SessionReport) -> Iterator[str]:
    """What recording and the monitor cost."""
    made, monitor = report.recording, report.monitor
    if made is not None:
        ranges = counted(made.ranges, "range", form=",")
        text = f"recording: {ranges} of {made.range_ns:,.0f} ns, {made.share:.3%} of the session"
        dropped = f"; not recorded to the end: {', '.join(map(one_line, made.dropped))}" if made.dropped else ""
        yield f"{text}{dropped}{'; ' if made.note else ''}{one_line(made.note)}"
    if monitor is not None:
        share = monitor.cpu_ns / monitor.wall_ns if monitor.wall_ns else 0.0
        asked = ", ".join(
            f"{one_line(group)} every {seconds:g} s"
            + (f" (asked for {monitor.asked_s[group]:g})" if monitor.asked_s.get(group, seconds) != seconds else "")
            for group, seconds in monitor.ran_s.items()
        )
        samples = counted(monitor.samples, "sample", form=",")
        text = f"monitor: {samples}, {share:.2%} of a core{': ' if asked else ''}{asked}"
        yield f"{text}{'; ' if monitor.note else ''}{one_line(monitor.note)}"
