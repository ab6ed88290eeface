"""A session: rates, where a unit's time goes, ranges, series, energy, what recording cost, and what could be gained."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from bakeoff.advice.evidence import Advice
from bakeoff.advice.session import advise_session
from bakeoff.models.types import Scalar
from bakeoff.models.words import counted
from bakeoff.record.frames import shares
from bakeoff.record.monitor import SeriesRecord
from bakeoff.record.session import RangeTotal, SessionEvent, SessionRecord, UnitTotals
from bakeoff.record.session_account import Account, account
from bakeoff.record.session_rates import Energy, Rates, energies, rates
from bakeoff.report.document import (
    Block,
    Cell,
    Details,
    Document,
    Figures,
    Heading,
    Listed,
    Section,
    Table,
    Text,
    blocks,
    listed,
    table,
)
from bakeoff.report.figures.session import account_figure, series_figure, timeline_figures
from bakeoff.report.format import MIB, duration, shorten
from bakeoff.report.pages.advice import advice_list

_LETTERS, _LONG = 80, 300
"""Of a name, and of a sentence or value that somebody else wrote; longer ones lose their middle."""
_MOST: Final = {"range": 200, "step": 100, "series": 100, "event": 100, "model": 60, "note": 60, "phase": 60}
"""Rows of tables and items of lists; what is left out is counted."""
_MOST_CHARTS, _MOST_FACTS = 40, 80
_NAMED = 3
"""Phases that the first sentences name."""
_ORDER = {"unit": 0, "phase": 1, "gpu": 3, "cpu": 4}
_OWN = 2


def as_json(record: SessionRecord) -> dict[str, Any]:
    """The record, and what pages show beside it and compute from it."""
    derived = {
        "rates": rates(record),
        "account": account(record),
        "range_thousandths": shares([each.own_ns for each in record.ranges]),
        "energy": energies(record),
        "advice": advise_session(record),
    }
    return {"record": record, "derived": derived}


def document(record: SessionRecord) -> Document:
    """The answer first; equal records give equal pages."""
    found, advice, name = account(record), advise_session(record), shorten(record.name, _LETTERS) or "session"
    return Document(
        name,
        blocks(
            *_status(record, name),
            _answer(record, found, advice),
            *_about(record),
            _units(record, found),
            Section("Ranges", blocks(*_ranges(record))),
            _series(record),
            _contents(record),
            _notes(record),
            Section("What could be gained", tuple(_advised(record, advice))),
            _environment(record),
        ),
    )


def _status(record: SessionRecord, name: str) -> Iterator[Text]:
    found, ok = rates(record), record.status == "ok"
    if not ok:
        yield Text(shorten(record.status, _LONG), name, tone="bad")
    text = _rate_text(record, found) or "no units, so no rates"
    yield Text(text, name if ok else "", tone="open" if found.of == "all" else "good")


def _rate_text(record: SessionRecord, found: Rates) -> str:
    """Frames and units a second, and of which units; "" without units."""
    if found.bps is None:
        return ""
    fps = f"{found.fps:.2f} frames a second, " if found.fps is not None else ""
    count = sum(units.count for units in record.units if found.of == "all" or units.kind == "steady")
    steady = counted(count, "steady unit")
    of = steady if found.of == "steady" else f"all {counted(count, 'unit')}, none of which was steady"
    return f"{fps}{found.bps:.2f} units a second, of {of}"


def _answer(record: SessionRecord, found: Account | None, advice: Sequence[Advice]) -> Listed | None:
    """Where a unit's time goes, and the most that could be gained."""
    if found is None:
        return None
    largest = sorted(found.lines, key=lambda line: -line.ns)[:_NAMED]
    parts = [f"{shorten(line.name, _LETTERS)} {line.thousandths / 10:.1f} %" for line in largest]
    items = [Text(f"{_ms(found.ns / found.units)} ms, the mean of {_accounted(found)}: {', '.join(parts)}", "a unit")]
    if advice:
        first = advice[0]
        gain = f", at most {first.gain_ms:.2f} ms a unit" if first.gain_ms is not None else ""
        where = f" {first.where}" if first.where else ""
        items.append(Text(f"{first.code}{where}{gain}: {first.says}", "to gain"))
    elif not _waits(record):
        items.append(Text("nothing could gain 5 % of a unit", "to gain"))
    return listed(items)


def _about(record: SessionRecord) -> Iterator[Text]:
    rank = record.rank
    yield Text(f"{shorten(record.started_at, _LETTERS)}, {duration(record.ns / 1e6)}", "started", tone="faint")
    if rank is not None:
        on = f" on {rank.device}" if rank.device else ""
        text = f"{rank.rank} of {rank.world} ({rank.parallelism} parallel), host {rank.host}{on}, process {rank.pid}"
        yield Text(shorten(text, _LONG), "rank", tone="faint")
    if record.tags:
        yield Text(_pairs(record.tags), "tags", tone="faint")


def _accounted(found: Account) -> str:
    """The units that an account is of."""
    return f"all {counted(found.units, 'unit')}" if found.of == "all units" else f"{found.units} {found.of}"


def _units(record: SessionRecord, found: Account | None) -> Section | None:
    """The account, units by kind, steps by index, and the first and last units over time."""
    timelines = [Figures((figure,)) for figure in timeline_figures(record)]
    made = blocks(*_account(record, found), _kinds(record.units), *_steps(record), *timelines)
    return Section("Units", made) if made else None


def _account(record: SessionRecord, found: Account | None) -> Iterator[Block | None]:
    if found is None:
        return
    figure = account_figure(record)
    yield Figures((figure,)) if figure is not None else None
    rows = [
        _row(line.name, f"{line.calls / found.units:.3g}", _ms(line.ns / found.units), _share(line.thousandths))
        for line in found.lines[: _MOST["phase"]]
    ]
    rows.append(_row("sum", "", _ms(found.ns / found.units), _share(1000)))
    heads = (
        Heading("phase"),
        Heading("calls", "A unit.", numeric=True, leaves=1),
        Heading("ms a unit", "Without the phases within it: each time counts once.", numeric=True),
        _number("share"),
    )
    yield table(heads, rows, f"Phases, mean of {_accounted(found)}")
    yield _more(len(found.lines), "phase")


def _kinds(units: Sequence[UnitTotals]) -> Table | None:
    names = list(dict.fromkeys(name for each in units for name in each.percentiles_ns))
    heads = [
        Heading("units"), _number("count"), _number("frames", 1), _number("latents", 3), _number("mean ms"),
        _number("min", 1), _number("max", 1), *(_number(name, 2) for name in names),
    ]  # fmt: skip
    rows = (
        _row(
            each.kind,
            str(each.count),
            str(each.frames),
            str(each.latents),
            *map(
                _ms, (each.wall_ns / each.count, each.least_ns, each.greatest_ns, *map(each.percentiles_ns.get, names))
            ),
        )
        for each in units
    )
    return table(heads, rows, "Units by kind")


def _steps(record: SessionRecord) -> Iterator[Block | None]:
    heads = [*map(_number, ("step", "timestep", "calls", "mean ms", "min", "max"))]
    rows = (
        _row(
            str(step.index),
            f"{step.timestep:g}" if step.timestep is not None else "",
            str(step.calls),
            *map(_ms, (step.ns / step.calls, step.least_ns, step.greatest_ns)),
        )
        for step in record.steps[: _MOST["step"]]
    )
    yield table(heads, rows, "Steps")
    yield _more(len(record.steps), "step")


def _ranges(record: SessionRecord) -> Iterator[Block | None]:
    """Ranges below what they are in."""
    parts = list(map(_share, shares([each.own_ns for each in record.ranges])))
    yield _tree(record.ranges, parts, "Own times, without the ranges within, add up to the session")
    yield _more(len(record.ranges), "range")
    if record.before:
        before = duration(sum(each.own_ns for each in record.before) / 1e6)
        yield _tree(record.before, [""] * len(record.before), f"Before the session, and no part of it: {before}")
        yield _more(len(record.before), "range")


def _tree(ranges: Sequence[RangeTotal], parts: Sequence[str], title: str) -> Table | None:
    heads = (
        Heading("range"), Heading("kind", leaves=3), _number("calls", 1), _number("total ms"), _number("own ms"),
        _number("share"), Heading("device ms", "Between CUDA events.", numeric=True, leaves=2),
    )  # fmt: skip
    rows = []
    for each, share in zip(ranges[: _MOST["range"]], parts, strict=False):
        name = shorten(each.path[-1], _LETTERS) if each.path else "session"
        times = map(_ms, (each.total_ns, each.own_ns))
        cells = (each.kind, str(each.calls), *times, share, _ms(each.device_ns))
        rows.append(_row("· " * min(len(each.path), 12) + name, *cells, order=" / ".join(each.path)))
    return table(heads, rows, title)


def _series(record: SessionRecord) -> Section | None:
    """Unit times and phases come first, then the user's own, then the machine's."""
    every = (*record.series, *(record.monitored.series if record.monitored is not None else ()))
    ordered = sorted(every, key=_place)
    if not ordered:
        return None
    drawn = [series_figure(each, record, f"series-{place}") for place, each in enumerate(ordered[:_MOST_CHARTS])]
    found = tuple(figure for figure in drawn if figure is not None)
    heads = (
        Heading("series"), Heading("of", leaves=1), *map(_number, ("min", "mean", "max")), Heading("unit"),
        _number("samples", 2),
    )  # fmt: skip
    rows = [_series_row(each) for each in ordered[: _MOST["series"]]]
    made = blocks(Figures(found) if found else None, table(heads, rows), _more(len(ordered), "series", "more series"))
    return Section("Series", made)


def _series_row(series: SeriesRecord) -> list[Cell]:
    size, unit = (1e6, "ms") if series.unit == "ns" else (1.0, shorten(series.unit, 12))
    values = (series.least, series.mean, series.greatest)
    numbers = (f"{value / size:.6g}" if value is not None else "" for value in values)
    return _row(series.name, shorten(series.source, 16), *numbers, unit, str(series.count))


def _place(series: SeriesRecord) -> int:
    return _OWN if series.source == "user" else _ORDER.get(series.name.partition(".")[0], _OWN)


def _contents(record: SessionRecord) -> Section | None:
    """Sizes of models, and events."""
    heads = (
        Heading("model"), Heading("kind", leaves=2), _number("parameters"), _number("MiB"), Heading("dtype", leaves=1)
    )  # fmt: skip
    rows = [
        _row(
            model.name,
            shorten(model.kind, 20),
            f"{model.count:,}",
            f"{model.bytes / MIB:,.1f}" if model.bytes is not None else "",
            shorten(model.dtype, 20),
        )
        for model in record.parameters[: _MOST["model"]]
    ]
    events = table(
        (Heading("event"), _number("at"), Heading("data")),
        map(_event, record.events[: _MOST["event"]]),
        "Events",
    )
    left = max(0, len(record.events) - _MOST["event"]) + record.events_dropped
    kept = f", of which {record.events_dropped} were not kept" if record.events_dropped else ""
    more = Text(f"and {counted(left, 'more event')}{kept}", tone="faint") if left else None
    made = blocks(table(heads, rows, "Models"), _more(len(record.parameters), "model"), events, more)
    return Section("Models and events", made) if made else None


def _event(event: SessionEvent) -> list[Cell]:
    name = shorten(event.name, _LETTERS) + (" (failed)" if event.failed else "")
    at = Cell(duration(event.t_ns / 1e6), event.t_ns)
    return [Cell(name, name, tone="bad" if event.failed else ""), at, Cell(_pairs(event.data))]


def _notes(record: SessionRecord) -> Section | None:
    """Energy, what lowered clocks, what recording and monitor cost, what is unknown, and findings."""
    seen = record.monitored
    heads = (Heading("energy of"), _number("Wh"), _number("J a frame"), Heading("by"))
    said = [
        Text(shorten(each.note, _LONG), shorten(each.device, _LETTERS))
        for each in (seen.energy if seen is not None else ())
        if each.note
    ]
    throttled = [
        Text(shorten(f"{each.reason} for {each.share:.1%} of the samples", _LONG), shorten(each.device, _LETTERS))
        for each in (seen.throttled if seen is not None else ())
    ]
    unknown = [Text(shorten(text, _LONG), "unknown") for text in (seen.missing if seen is not None else ())]
    notes = [*said, *throttled, *_costs(record), *unknown]
    notes += [Text(shorten(each.text, _LONG), shorten(each.code, _LETTERS)) for each in record.findings]
    made = blocks(
        table(heads, map(_energy, energies(record))), listed(notes[: _MOST["note"]]), _more(len(notes), "note")
    )
    return Section("Energy, costs and notes", made) if made else None


def _energy(found: Energy) -> list[Cell]:
    known = found.watt_hours is not None
    frame = f"{found.joules_a_frame:.3g}" if found.joules_a_frame is not None else ""
    hours = f"{found.watt_hours:.4g}" if known else "unknown"
    return _row(found.device, hours, frame, f"its {found.source}" if known else "")


def _costs(record: SessionRecord) -> Iterator[Text]:
    made, monitor = record.cost, record.monitored.cost if record.monitored is not None else None
    if made is not None:
        share = made.ns / record.ns if record.ns else 0.0
        text = f"{counted(made.ranges, 'range', form=',')} of {made.range_ns:,.0f} ns, {share:.3%} of the session"
        dropped = f"not recorded to the end: {', '.join(made.dropped)}" if made.dropped else ""
        yield Text(shorten("; ".join(filter(None, [text, dropped, made.note])), _LONG), "recording")
    if monitor is not None:
        share = monitor.cpu_ns / monitor.wall_ns if monitor.wall_ns else 0.0
        asked = ", ".join(
            f"{group} every {seconds:g} s"
            + (f" (asked for {monitor.asked_s[group]:g})" if monitor.asked_s.get(group, seconds) != seconds else "")
            for group, seconds in monitor.ran_s.items()
        )
        text = f"{counted(monitor.samples, 'sample', form=',')}, {share:.2%} of a core{': ' if asked else ''}{asked}"
        yield Text(shorten("; ".join(filter(None, [text, monitor.note])), _LONG), "monitor")


def _advised(record: SessionRecord, advice: Sequence[Advice]) -> Iterator[Block]:
    """Of a rank that waits for others the command that shows them too: its own record does not tell for whom."""
    if advice or not _waits(record):
        yield advice_list(advice, "unit")
    if _waits(record):
        yield Text("this rank waits in collectives; look at all ranks together: bakeoff session aggregate FOLDER")


def _waits(record: SessionRecord) -> bool:
    return record.rank is not None and any(each.kind == "collective" for each in record.ranges)


def _environment(record: SessionRecord) -> Details | None:
    facts = (_facts(record.environment, "Machine and versions"), _facts(record.settings, "Settings"))
    found = tuple(each for each in facts if each is not None)
    return Details("Environment and settings", found) if found else None


def _facts(values: Mapping[str, Scalar], title: str) -> Listed | None:
    shown = list(values.items())[:_MOST_FACTS]
    return listed([Text(shorten(str(value), _LONG), shorten(name, _LETTERS)) for name, value in shown], title)


def _pairs(values: Mapping[str, Scalar]) -> str:
    return shorten(", ".join(f"{shorten(key, 40)}={shorten(str(value), 60)}" for key, value in values.items()), _LONG)


def _row(name: str, *cells: str, order: str = "") -> list[Cell]:
    """Cells of a table: the name, then numbers, which are sorted as numbers, and words."""
    shown = shorten(name, _LETTERS)
    return [Cell(shown, order or shown), *(Cell(text, _order(text)) for text in cells)]


def _order(text: str) -> float | str:
    try:
        return float(text.replace(",", "").removesuffix(" %"))
    except ValueError:
        return text


def _number(text: str, leaves: int = 0) -> Heading:
    return Heading(text, numeric=True, leaves=leaves)


def _ms(ns: float | None) -> str:
    return f"{ns / 1e6:.3f}" if ns is not None else ""


def _share(thousandths: int) -> str:
    return f"{thousandths / 10:.1f} %"


def _more(count: int, what: str, many: str = "") -> Text | None:
    left = count - _MOST[what]
    return Text(f"and {counted(left, f'more {what}', many)}, in the record", tone="faint") if left > 0 else None
