"""Tables of pipelines: which mix to take, the mixes fastest first, the phases of a unit, and notes.

`bakeoff table`, the end of `bakeoff pipeline`, RESULTS.md, the history and the HTML report are made of these sections.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import chain
from typing import Any, Final

from bakeoff.models.words import counted
from bakeoff.record.account import AccountLine, account_lines
from bakeoff.record.comparable import ON_ANOTHER_HOST
from bakeoff.record.forecast import explained, forecast_error, forecast_of
from bakeoff.record.frames import FROM_OPENING, FrameFigures, scopes
from bakeoff.record.pipeline import Forecast, PipelineRecord
from bakeoff.record.statistics import FEWEST_FOR_P99
from bakeoff.record.store import StoredPipeline
from bakeoff.record.verdict import FEWEST_FOR_INTERVAL, PairRatio, turned
from bakeoff.report import document, links
from bakeoff.report.columns import COLUMNS, Column
from bakeoff.report.document import Cell, Document, Figures, Heading, Section, Table, Text, blocks, listed
from bakeoff.report.figures.pipeline import drawings
from bakeoff.report.format import MIB, milliseconds, minute, size_text
from bakeoff.report.groups import title
from bakeoff.report.notes import selftest_text, sentences
from bakeoff.report.pages.sweep import cell, heading, tone_of
from bakeoff.report.pipelines import (
    MixRow,
    by_run,
    named,
    pipeline_tables,
)
from bakeoff.trace.table import profile_table

_OUTPUTS: Final = 3
"""Largest number of outputs of the loop's check that are listed."""
_UNITS: Final = {"ms": "", "%": "", "frames/s": "of the line and all above it; what stands below is left out"}
_FRAMES: Final = re.compile(r"(video )?frame")


def sections(runs: Iterable[StoredPipeline], cited: links.Cited | None = None, full: bool = False) -> list[Section]:
    """Return a section for each subject and machine, with the newest record of each mix and, with `full`, figures."""
    return [_section(table.title, table.rows, table.stale, cited, full) for table in pipeline_tables(runs)]


def of_runs(runs: Iterable[StoredPipeline]) -> Document:
    """Return the page of all mixes of each run, as `bakeoff pipeline` prints it at its end."""
    return Document("", tuple(_section(title(entries[0].record), named(entries)) for entries in by_run(runs)))


def as_rows(runs: Iterable[StoredPipeline]) -> list[dict[str, Any]]:
    """Return the rows of these records' tables for `--json`, with figures as numbers; stale ones have the reason."""
    return [_data(row) for table in pipeline_tables(runs) for row in (*table.rows, *table.stale)]


def _section(
    heading: str,
    rows: Sequence[MixRow],
    stale: Sequence[MixRow] = (),
    cited: links.Cited | None = None,
    full: bool = False,
) -> Section:
    first, *others = verdicts(rows)
    drawn = drawings(rows) if full else []
    return Section(
        heading,
        blocks(
            first,
            mixes_table(rows, cited),
            listed(others),
            listed(_names(rows), "Mixes"),
            phases_table(rows),
            Figures(tuple(drawn)) if drawn else None,
            listed(_notes(rows, cited), "Remarks"),
            listed((_stale(row, cited) for row in stale), "Stale, not comparable with the rows above"),
        ),
    )


def verdicts(rows: Sequence[MixRow]) -> list[Text]:
    """Return what to deploy, then how each other mix compares with the baseline of its run."""
    compared = {row.name: held_against(row) for row in rows if row.gain is not None}
    best = next((row for row in rows if row.record.status == "ok"), None)
    if best is None:
        first = Text("Deploy none of these mixes: none is ok.", tone="bad")
    elif not compared:
        first = Text(f"Nothing to compare with: no mix that is ok took turns with {best.name}.", tone="open")
    elif best.gain is not None and best.gain.word == "faster":
        name = ", ".join(dict.fromkeys((best.name, str(best.record.mix))))
        first = Text(f"Deploy {name}: it {compared.pop(best.name)}.", tone="good")
    elif {(row.gain.word, row.against) for row in rows if row.gain is not None} == {("slower", best.name)}:
        first = Text(f"Deploy {best.name}: it is faster than each mix that took turns with it.", tone="good")
    else:
        text = (
            f"Not decided: {best.name} is the fastest, but not shown to be faster than a mix that took turns with it."
        )
        first = Text(text, tone="open")
    return [first, *(Text(f"{name} {text}") for name, text in compared.items())]


def held_against(row: MixRow) -> str:
    """Describe how a mix compares with its baseline, by interleaved units."""
    assert row.gain is not None
    gain, lost = row.gain, row.gain.ratio < 1
    ratio, interval = turned(gain.ratio, gain.interval) if lost else (gain.ratio, gain.interval)
    ends = f" [{interval[0]:.2f}, {interval[1]:.2f}]" if interval is not None else ""
    for_whom = f" for {row.against}" if lost else ""
    text = {
        "faster": f"is {ratio:.2f}x as fast as {row.against}{ends}",
        "slower": f"lost: {row.against} is {ratio:.2f}x as fast{ends}",
        "no difference shown": f"against {row.against}: no difference shown, {ratio:.2f}x{ends}{for_whom}",
        "too few units": f"against {row.against}: too few units for a verdict, {ratio:.2f}x{for_whom}",
    }[gain.word]
    return f"{text} ({counted(gain.pairs, 'pair')} of interleaved units, one process each)"


def mixes_table(rows: Sequence[MixRow], cited: links.Cited | None = None) -> Table | None:
    """Return a table with a row for each mix; None without rows."""
    made = [[cell(column, row, cited) for column in MIX_COLUMNS] for row in rows]
    headings = map(heading, MIX_COLUMNS if rows else ())
    return document.table([replace(each, text=in_words_of(rows[0].record, each.text)) for each in headings], made)


def in_words_of(record: PipelineRecord, text: str) -> str:
    """Return a text about frames, with `call` for `frame` if the record's unit is the call of a single program."""
    return _FRAMES.sub("call", text) if record.unit == "call" else text


def _number(value: float | None, write: Callable[[float], str]) -> Cell:
    return Cell(write(value), value) if value is not None else Cell("")


def cost(found: FrameFigures) -> str:
    """Format the median milliseconds per frame with its interval, or how many units an interval needs."""
    return _with_ends(found.ms_a_frame, found.interval, f" [n/a, needs {FEWEST_FOR_INTERVAL} units]")


def rate(per_s: float) -> str:
    """Format frames or blocks per second with three significant digits at least."""
    return f"{per_s:.2f}" if per_s >= 1 else f"{per_s:.3g}"


def _speedup(gain: PairRatio) -> str:
    """Format the ratio to the baseline with its interval, marked if the mix lost or no difference was shown."""
    if gain.interval is None:
        return f"{gain.ratio:.2f}x (n/a, needs {FEWEST_FOR_INTERVAL} units)"
    end = {"slower": " slower", "no difference shown": " ~"}.get(gain.word, "")
    return f"{gain.ratio:.2f}x [{gain.interval[0]:.2f}, {gain.interval[1]:.2f}]{end}"


MIX_COLUMNS: Final = (
    Column("name", "mix", "", lambda row: row.name, numeric=False),
    COLUMNS["status"],
    Column(
        "ms_a_frame",
        "ms a frame [95 %]",
        "median over steady units of the wall time a frame, and its 95 % interval",
        lambda row: row.figures,
        cost,
        lambda found: found.ms_a_frame,
    ),
    Column(
        "speedup",
        "speed-up",
        "time of eager (or of the first mix, in a run without it) over that of this mix, median of interleaved pairs "
        "of units, and its 95 % interval; ~ no difference shown",
        lambda row: row.gain,
        _speedup,
        lambda gain: gain.ratio,
    ),
    Column(
        "frames_per_s",
        "video frames/s",
        "frames of all steady units over their wall time",
        lambda row: row.figures and row.figures.frames_per_s,
        rate,
        leaves=1,
    ),
    Column(
        "blocks_per_s",
        "blocks/s",
        "blocks over the same wall time",
        lambda row: row.figures.units_per_s if row.figures and row.record.unit == "block" else None,
        rate,
        leaves=7,
    ),
    Column(
        "real_time",
        "of real time",
        "frames a second over the rate that the model was made for",
        lambda row: row.figures and row.figures.real_time,
        "{:.2f}x".format,
        leaves=3,
    ),
    Column(
        "p99_ms",
        "p99 ms",
        f"99 % of the steady units took less a frame (nearest rank, of {FEWEST_FOR_P99} units or more)",
        lambda row: row.figures if row.figures and row.figures.p99_ms is not None else None,
        lambda found: milliseconds(found.p99_ms, found.ms_a_frame),
        lambda found: found.p99_ms,
        leaves=5,
    ),
    Column(
        "first_frame_ms",
        "first frame ms",
        "opening of the session and its first unit",
        lambda row: row.figures and row.figures.first_frame_ms,
        milliseconds,
        leaves=6,
    ),
    Column(
        "peak_mib",
        "peak MiB",
        "device memory on CUDA, else resident size of the worker, with all components in place",
        lambda row: memory.peak_bytes if (memory := row.record.measurement.memory) is not None else None,
        lambda size: f"{size / MIB:.0f}",
        leaves=2,
    ),
    Column(
        "promise_error",
        "over promise",
        "mean time of a unit over what was promised of it, less 1",
        lambda row: forecast_error(row.record),
        "{:+.1%}".format,
        leaves=8,
    ),
    Column(
        "record", "record", "", lambda row: row.entry.id, lambda name: name.rpartition("_")[2], numeric=False, leaves=4
    ),
)


def _names(rows: Sequence[MixRow]) -> Iterator[Text]:
    """Yield the mix that each name stands for, and its time if its run is not the newest."""
    last = max((row.record for row in rows), key=lambda record: record.created).run if rows else ""
    for row in rows:
        earlier = f" (an earlier run, {minute(row.record.created)} UTC, not in turns)" if row.record.run != last else ""
        yield Text(f"{row.record.mix}{earlier}", row.name)


def phases_table(rows: Sequence[MixRow]) -> Table | None:
    """Return a table of each mix's milliseconds per unit and share, 100.0 % in all, and frames a second by phase; None
    without units."""
    found = {row.name: own for row in rows if (own := {line.name: line for line in account_lines(row.record)})}
    rates = {row.name: scopes(row.record) for row in rows}
    headings = [Heading("phase"), Heading("calls a unit", "", True, 3 * len(rows))]
    for place, name in enumerate(found):
        for way, (unit, explanation) in enumerate(_UNITS.items()):
            headings.append(Heading(f"{name} {unit}".strip(), explanation * (not place), True, way * len(rows) + place))
    made: list[list[Cell]] = []
    for name in dict.fromkeys(name for own in found.values() for name in own):
        held = [[own[name]] if name in own else [] for own in found.values()]
        calls = next((line.unit_calls for each in held for line in each if line.unit_calls is not None), None)
        cells = (_time(each, rates[mix].get(name)) for mix, each in zip(found, held, strict=True))
        made.append([Cell(name, name), _number(calls, str), *chain(*cells)])
    if not made:
        return None
    made.append([Cell("sum"), Cell(""), *chain(*(_time([*own.values()]) for own in found.values()))])
    first = [_time([], rates[mix].get(FROM_OPENING)) for mix in found]
    made += [[Cell(FROM_OPENING), Cell(""), *chain(*first)]] if any(cells[2].text for cells in first) else []
    return document.table(headings, made, f"Phases of a steady {rows[0].record.unit}, mean")


def _time(rows: Sequence[AccountLine], fps: float | None = None) -> tuple[Cell, Cell, Cell]:
    """Return cells with the milliseconds per unit and the share of these lines together, empty without lines, and with
    frames a second."""
    if not rows:
        return Cell(""), Cell(""), _number(fps, rate)
    share = sum(line.thousandths for line in rows) / 10
    return _number(sum(line.ms for line in rows), "{:.3f}".format), _number(share, "{:.1f}".format), _number(fps, rate)


def _line(line: AccountLine) -> dict[str, object]:
    times = {"ns": line.ns, "ms": line.ms, "thousandths": line.thousandths}
    return {"name": line.name, "kind": line.kind, "slot": line.slot, "calls": line.unit_calls, **times}


def _notes(rows: Sequence[MixRow], cited: links.Cited | None) -> list[Text]:
    """Return the distinct notes on the mixes, each with the names of its mixes unless it is on all."""
    names: dict[Text, list[str]] = {}
    for row in rows:
        for text in notes(row, cited):
            names.setdefault(text, []).append(row.name)
    return [
        text if len(held) == len(rows) else replace(text, label=", ".join(dict.fromkeys(held)))
        for text, held in names.items()
    ]


def notes(row: MixRow, cited: links.Cited | None = None) -> Iterator[Text]:
    """Yield the notes on one mix: why it is not ok, findings, its promise, memory, parity, profile and monitor."""
    record = row.record
    yield from problems(record)
    yield from map(Text, _promise(record))
    memory = record.measurement.memory
    if memory is not None and memory.peak_bytes is not None:
        yield Text(f"{memory.meter} peak {size_text(memory.peak_bytes)} with all components in place")
    yield from map(Text, _parity(record))
    yield from _profile(row, cited)
    yield from map(Text, [*sentences(record), selftest_text(record)])


def problems(record: PipelineRecord) -> Iterator[Text]:
    """Yield why a mix or a program of it is not ok, findings, and what was compiled in which unit."""
    made = record.measurement
    if record.status != "ok":
        yield Text(f"{record.status}: {made.reason or 'no reason is stored'}", tone=tone_of(record.status))
    for program in made.programs:
        if program.status != "ok":
            yield Text(f"{program.name} is {program.status}: {program.reason}")
    for finding in made.findings:
        if record.status == "ok" or finding.text != made.reason:
            yield Text(f"finding {finding.code}: {finding.text}")
    for program in made.programs:
        for finding in program.findings:
            yield Text(f"finding of {program.name}, {finding.code}: {finding.text}")
    for unit, what in (made.units.moved if made.units is not None else {}).items():
        yield Text(f"unit {unit} compiled {', '.join(what)}")


def _promise(record: PipelineRecord) -> Iterator[str]:
    """Yield what was promised of a unit and where the difference comes from, or that nothing was promised."""
    promised, error = forecast_of(record), forecast_error(record)
    if error is None or promised is None:
        missing = [each.name for each in record.measurement.programs if record.calls.get(each.name) and not each.part]
        if missing and record.measurement.units is not None:
            yield f"no promise: no ok record of {', '.join(missing)} on this machine by the code of this run"
        return
    unit_ms = milliseconds(promised.ms * (1 + error))
    text = f"a unit takes {unit_ms} ms, {promise_text(promised)} were promised ({error:+.1%})"
    if (largest := explained(record)) is not None:
        name, own_ms, off_ms = largest
        text += f"; {name} explains {own_ms / off_ms:.0%} of the difference ({own_ms:+.2f} ms)"
    yield text


def promise_text(forecast: Forecast) -> str:
    """Format a promised time with its interval, without the unit."""
    return _with_ends(forecast.ms, forecast.interval, "")


def _with_ends(ms: float, interval: tuple[float, float] | None, otherwise: str) -> str:
    low, high = (milliseconds(end, ms) for end in interval or (0.0, 0.0))
    return milliseconds(ms) + (otherwise if interval is None else f" [{low}, {high}]")


def _parity(record: PipelineRecord) -> Iterator[str]:
    """Yield the result of the check of the loop's first units."""
    found = record.measurement.parity
    if found is None:
        return
    wrong = [
        f"unit {unit.unit} {output.name}: {output.problem or f'relative L2 {output.rel_l2}, limit {output.limit:.2e}'}"
        for unit in found.units
        for output in unit.outputs
        if not output.passed
    ]
    count = len(found.units)
    more = f" and {len(wrong) - _OUTPUTS} more" if len(wrong) > _OUTPUTS else ""
    told = f"FAILED: {'; '.join(wrong[:_OUTPUTS])}{more}" if wrong else "ok"
    first = f"first {count} units" if count != 1 else "first unit"
    yield f"parity: the loop's {first} against eager {found.reference_dtype}: {told}"


def _profile(row: MixRow, cited: links.Cited | None) -> Iterator[Text]:
    """Yield busy and idle time of a unit by its profile, with a link to its page; nothing without a profile."""
    table = profile_table(row.record)
    if table is None:
        return
    hidden = f", {table.hidden_ms:.2f} not visible" if table.hidden_ms else ""
    told = f"{table.busy_ms:.2f} of {table.unit_ms:.2f} ms a {row.record.unit} busy, {table.idle_ms:.2f} idle{hidden}"
    page = [_profile_page(row.entry, cited)] if cited is not None else []
    yield Text(f"profile: {told}", links=tuple(page))


def _profile_page(entry: StoredPipeline, cited: links.Cited) -> document.Link:
    return document.Link(f"profile {cited(entry).label}", links.profile_page(lambda each: cited(each).address, entry))


def _stale(row: MixRow, cited: links.Cited | None) -> Text:
    record, found = row.record, row.figures
    told = in_words_of(record, f"{cost(found)} ms a frame") if found is not None else record.status
    told += f", {row.gain.ratio:.2f}x {row.against}" if row.gain is not None and ON_ANOTHER_HOST in row.stale else ""
    text = f"{record.mix}, {told}, {minute(record.created)} UTC: {row.stale}"
    return Text(text, row.name, links=(cited(row.entry),) if cited is not None else ())


def _data(row: MixRow) -> dict[str, Any]:
    """Return a row under stable keys, with figures as numbers."""
    record = row.record
    found, memory = row.figures, record.measurement.memory
    return {
        "record": row.entry.id,
        "name": row.name,
        "mix": str(record.mix),
        "role": record.role,
        "run": record.run,
        "how": record.how,
        "machine": record.machine,
        "unit": record.unit,
        "sizes": record.sizes,
        "status": record.status,
        "reason": record.measurement.reason,
        "findings": record.measurement.findings,
        "figures": asdict(found) if found is not None else None,
        "phases": [_line(line) for line in account_lines(record)],
        "against": row.against if row.gain is not None else None,
        "gain": asdict(row.gain) if row.gain is not None else None,
        "forecast": asdict(promised) if (promised := forecast_of(record)) is not None else None,
        "promise_error": forecast_error(record),
        "memory": {"peak_bytes": memory.peak_bytes, "meter": memory.meter} if memory is not None else None,
        "stale": row.stale,
    }
