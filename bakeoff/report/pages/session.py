"""The page of a session: rates, where a unit's time goes, ranges, series, energy, costs, and what could be gained."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any

from bakeoff.advice.evidence import Advice
from bakeoff.advice.session import advise_session
from bakeoff.models.types import Scalar
from bakeoff.models.words import counted
from bakeoff.record.account import Account, Energy, Rates, account, energies, rates, shares
from bakeoff.record.monitor import Monitored, SeriesRecord
from bakeoff.record.session import (
    ModelParameters,
    RangeTotal,
    RecordingCost,
    SessionEvent,
    SessionRecord,
    StepTotals,
    UnitTotals,
)
from bakeoff.report.document import (
    Block,
    Cell,
    Details,
    Document,
    Figures,
    Heading,
    Listed,
    Table,
    Text,
    blocks,
    first_of,
    listed,
    number,
    section,
    table,
)
from bakeoff.report.figures.session import series_figure, timeline_figures
from bakeoff.report.format import MIB, duration, shorten
from bakeoff.report.notes import advice_list, of_monitor

_LETTERS, _LONG = 80, 300
"""Largest number of characters of a name, and of a user's sentence or value; longer ones lose their middle."""
_MOST, _MOST_CHARTS = 200, 40
"""Largest numbers of a table's rows or a list's items (more are counted), and of series that are drawn."""
_NAMED = 3
"""Number of phases that the first sentences name."""
_DOUBTS = ("too-slow", "contention", "throttled", "power-cap")
"""Codes of advice beside which rates are not shown as good."""
_Row = Sequence[Cell | str]


def as_json(record: SessionRecord) -> dict[str, Any]:
    """Return the record, and the figures and advice that pages compute from it."""
    derived = {
        "rates": rates(record),
        "account": account(record),
        "range_thousandths": shares([each.own_ns for each in record.ranges]),
        "energy": energies(record),
        "advice": advise_session(record),
    }
    return {"record": record, "derived": derived}


def document(record: SessionRecord) -> Document:
    """Return the page of a session, which begins with the answer; equal records give equal pages."""
    found, advice, name = account(record), advise_session(record), _name(record.name) or "session"
    return Document(
        name,
        blocks(
            *_status(record, name, advice),
            _answer(record, found, advice),
            listed(_about(record)),
            section("Units", _units(record, found)),
            section("Ranges", _ranges(record)),
            section("Series", _series(record)),
            section("Models and events", _contents(record)),
            section("Energy, costs and notes", _notes(record)),
            section("What could be gained", _advised(record, advice)),
            _environment(record),
        ),
    )


def _status(record: SessionRecord, name: str, advice: Sequence[Advice]) -> Iterator[Text]:
    found, ok = rates(record), record.status == "ok"
    if not ok:
        yield Text(shorten(record.status, _LONG), name, tone="bad")
    doubt = found.of == "all" or any(one.code in _DOUBTS for one in advice)
    yield Text(_rate_text(record, found), name if ok else "", tone="open" if doubt else "good")


def _rate_text(record: SessionRecord, found: Rates) -> str:
    """Describe frames and units per second, and the units that they are computed from."""
    if found.bps is None:
        return "no units, so no rates"
    fps = f"{found.fps:.2f} frames a second, " if found.fps is not None else ""
    count = sum(units.count for units in record.units if found.of == "all" or units.kind == "steady")
    steady = counted(count, "steady unit")
    of = steady if found.of == "steady" else f"all {counted(count, 'unit')}, none of which was steady"
    return f"{fps}{found.bps:.2f} units a second, of {of}"


def _answer(record: SessionRecord, found: Account | None, advice: Sequence[Advice]) -> Listed | None:
    """Describe where a unit's time goes, and the most that could be gained."""
    if found is None:
        return None
    largest = sorted(found.lines, key=lambda line: -line.ns)[:_NAMED]
    parts = [f"{_name(line.name)} {line.thousandths / 10:.1f} %" for line in largest if line.thousandths]
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
    yield Text(f"{_name(record.started_at)}, {duration(record.ns / 1e6)}", "started", tone="faint")
    if rank is not None:
        on = f" on {rank.device}" if rank.device else ""
        text = f"{rank.rank} of {rank.world} ({rank.parallelism} parallel), host {rank.host}{on}, process {rank.pid}"
        yield Text(shorten(text, _LONG), "rank", tone="faint")
    if record.tags:
        yield Text(_pairs(record.tags), "tags", tone="faint")


def _accounted(found: Account) -> str:
    """Return which units an account covers, as text."""
    text = counted(found.units, found.of.removeprefix("all ").removesuffix("s"))
    return f"all {text}" if found.of == "all units" else text


def _units(record: SessionRecord, found: Account | None) -> Iterator[Block | None]:
    """Yield the account, units by kind, steps by index, and the first and last units over time."""
    yield _account(found) if found is not None else None
    yield _kinds(record.units)
    heads = [*map(number, ("step", "timestep", "calls", "mean ms", "min", "max"))]
    yield from _cut(heads, map(_step, record.steps), "Steps")
    yield from (Figures((figure,)) for figure in timeline_figures(record))


def _account(found: Account) -> Table | None:
    rows = [
        (_name(line.name), f"{line.calls / found.units:.3g}", _ms(line.ns / found.units), _share(line.thousandths))
        for line in found.lines
    ]
    rows.append(("sum", "", _ms(found.ns / found.units), _share(1000)))
    heads = (
        Heading("phase"),
        number("calls a unit", leaves=1),
        number("ms a unit", "without the phases within it: each time counts once"),
        number("share"),
    )
    return table(heads, rows, f"Phases, mean of {_accounted(found)}")


def _kinds(units: Sequence[UnitTotals]) -> Table | None:
    names = list(dict.fromkeys(name for each in units for name in each.percentiles_ns))
    heads = [
        Heading("units"), number("count"), number("frames", leaves=1), number("latents", leaves=3), number("mean ms"),
        number("min", leaves=1), number("max", leaves=1), *(number(name, leaves=2) for name in names),
    ]  # fmt: skip
    rows = []
    for each in units:
        times = (each.wall_ns / each.count, each.least_ns, each.greatest_ns, *map(each.percentiles_ns.get, names))
        rows.append([each.kind, *map(str, (each.count, each.frames, each.latents)), *map(_ms, times)])
    return table(heads, rows, "Units by kind")


def _step(step: StepTotals) -> _Row:
    timestep = f"{step.timestep:g}" if step.timestep is not None else ""
    times = (step.ns / step.calls, step.least_ns, step.greatest_ns)
    return str(step.index), timestep, str(step.calls), *map(_ms, times)


def _ranges(record: SessionRecord) -> Iterator[Block | None]:
    """Yield tables of the ranges, each below the one that contains it, and of those before the session."""
    parts = map(_share, shares([each.own_ns for each in record.ranges]))
    heads = (
        Heading("range"), Heading("kind", leaves=3), number("calls", leaves=1), number("total ms"), number("own ms"),
        number("share"), number("device ms", "between CUDA events at its borders", leaves=2),
    )  # fmt: skip
    own = "Own times, without the ranges within, add up to the session"
    yield from _cut(heads, map(_range, record.ranges, parts), own)
    before = duration(sum(each.own_ns for each in record.before) / 1e6)
    title = f"Before the session, and no part of it: {before}"
    yield from _cut(heads, map(_range, record.before, repeat("")), title)


def _range(each: RangeTotal, share: str) -> _Row:
    name = "· " * min(len(each.path), 12) + _name(each.path[-1] if each.path else "session")
    times = map(_ms, (each.total_ns, each.own_ns))
    return Cell(name, " / ".join(each.path)), each.kind, str(each.calls), *times, share, _ms(each.device_ns)


def _series(record: SessionRecord) -> Iterator[Block | None]:
    """Yield figures and a table of series: unit times and phases first, then the user's own, then the machine's."""
    ordered = (*record.series, *(record.monitored.series if record.monitored is not None else ()))
    drawn = [series_figure(each, record, f"series-{place}") for place, each in enumerate(ordered[:_MOST_CHARTS])]
    found = tuple(figure for figure in drawn if figure is not None)
    yield Figures(found) if found else None
    heads = (
        Heading("series"), Heading("of", leaves=1), *map(number, ("min", "mean", "max")), Heading("unit"),
        number("samples", leaves=2),
    )  # fmt: skip
    yield from _cut(heads, map(_series_row, ordered))


def _series_row(series: SeriesRecord) -> _Row:
    size, unit = (1e6, "ms") if series.unit == "ns" else (1.0, shorten(series.unit, 12))
    values = (series.least, series.mean, series.greatest)
    numbers = (f"{value / size:.6g}" if value is not None else "" for value in values)
    return _name(series.name), shorten(series.source, 16), *numbers, unit, str(series.count)


def _contents(record: SessionRecord) -> Iterator[Block | None]:
    """Yield tables of models with their sizes, and of events."""
    heads = (
        Heading("model"), Heading("kind", leaves=2), number("parameters"), number("MiB"), Heading("dtype", leaves=1)
    )  # fmt: skip
    yield from _cut(heads, map(_model, record.parameters), "Models")
    columns = (Heading("event"), number("at"), Heading("data"))
    yield from _cut(columns, map(_event, record.events), "Events")
    if record.events_dropped:
        yield Text(f"{counted(record.events_dropped, 'event was', 'events were')} not kept", tone="faint")


def _model(model: ModelParameters) -> _Row:
    size = f"{model.bytes / MIB:,.1f}" if model.bytes is not None else ""
    return _name(model.name), shorten(model.kind, 20), f"{model.count:,}", size, shorten(model.dtype, 20)


def _event(event: SessionEvent) -> _Row:
    name = _name(event.name) + (" (failed)" if event.failed else "")
    at = Cell(duration(event.t_ns / 1e6), event.t_ns)
    return Cell(name, name, tone="bad" if event.failed else ""), at, _pairs(event.data)


def _notes(record: SessionRecord) -> Iterator[Block | None]:
    """Yield energy, what lowered clocks, what recording and monitor cost, what is unknown, and findings."""
    heads = (Heading("energy of"), number("Wh"), number("J a frame"), Heading("by"))
    yield from _cut(heads, map(_energy, energies(record)))
    seen = record.monitored or Monitored()
    notes = [(each.device, each.note) for each in seen.energy if each.note]
    notes += _cost(record.cost, record.ns)
    notes += [("", text) for text in of_monitor(seen)]
    notes += [(each.code, each.text) for each in record.findings]
    yield from first_of(_facts(notes), _MOST)


def _energy(found: Energy) -> _Row:
    known = found.watt_hours is not None
    frame = f"{found.joules_a_frame:.3g}" if found.joules_a_frame is not None else ""
    hours = f"{found.watt_hours:.4g}" if known else "unknown"
    return _name(found.device), hours, frame, f"its {found.source}" if known else ""


def _cost(made: RecordingCost | None, session_ns: int) -> Iterator[tuple[str, str]]:
    if made is not None:
        share = made.ns / session_ns if session_ns else 0.0
        text = f"{counted(made.ranges, 'range', form=',')} of {made.range_ns:,.0f} ns, {share:.3%} of the session"
        dropped = f"not recorded to the end: {', '.join(made.dropped)}" if made.dropped else ""
        yield "recording", "; ".join(filter(None, [text, dropped]))


def _advised(record: SessionRecord, advice: Sequence[Advice]) -> Iterator[Block]:
    """Yield the advice and, if this rank waits for others, the command that shows all ranks, which its record lacks."""
    if advice or not _waits(record):
        yield advice_list(advice, "unit")
    if _waits(record):
        yield Text("this rank waits in collectives; look at all ranks together: bakeoff session aggregate FOLDER")


def _waits(record: SessionRecord) -> bool:
    return record.rank is not None and any(each.kind == "collective" for each in record.ranges)


def _environment(record: SessionRecord) -> Details | None:
    facts = blocks(
        _facts(record.environment.items(), "Machine and versions"), _facts(record.settings.items(), "Settings")
    )
    return Details("Environment and settings", facts) if facts else None


def _facts(named: Iterable[tuple[str, Scalar]], title: str = "") -> Listed | None:
    return listed((Text(shorten(str(value), _LONG), _name(name)) for name, value in named), title)


def _pairs(values: Mapping[str, Scalar]) -> str:
    return shorten(", ".join(f"{shorten(key, 40)}={shorten(str(value), 60)}" for key, value in values.items()), _LONG)


def _name(text: str) -> str:
    return shorten(text, _LETTERS)


def _ms(ns: float | None) -> str:
    return f"{ns / 1e6:.3f}" if ns is not None else ""


def _share(thousandths: int) -> str:
    return f"{thousandths / 10:.1f} %"


def _cut(heads: Sequence[Heading], rows: Iterable[_Row], title: str = "") -> Iterator[Block]:
    return first_of(table(heads, rows, title), _MOST)
