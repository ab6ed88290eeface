"""Pages of sustained runs: whether a mix held a frame rate, what viewers at several rates saw, unit times, energy."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

from bakeoff.models.words import counted
from bakeoff.record.deadline import RATES, Figures, Percentile, Stamp, Viewer, figures, last_third, stamps, view
from bakeoff.record.pipeline import PipelineRecord, Sustained
from bakeoff.record.store import StoredPipeline
from bakeoff.report import document, links
from bakeoff.report.document import Cell, Details, Document, Heading, Section, Table, Text, blocks, listed
from bakeoff.report.figures.deadline import units_figure
from bakeoff.report.format import duration, milliseconds, origin
from bakeoff.report.groups import title
from bakeoff.report.notes import selftest_text, sentences
from bakeoff.report.pages.pipelines import problems
from bakeoff.report.pipelines import MixRow, by_run, named, sustained_tables

_VIEWERS: Final = (
    Heading("fps", "frames that a viewer is shown a second, once the start buffer is full", True),
    Heading("late", "units that were not ready when they were due, with all deadlines where they were", True),
    Heading("%", "share of the units that were late", True),
    Heading("stalls", "pauses of a playback that waits for late units, which moves all later deadlines", True, 2),
    Heading("longest", "the longest of these pauses", True),
    Heading("paused", "all of these pauses", True, 3),
    Heading("least buffer", "least time from the first unit's being ready to the start of the playback, with which no "
            "unit would have been late; endless: fewer frames a second are made, in all units or in their last third, "
            "so that it grows with the run", True),
    Heading("latency", "mean time that a unit waits to be shown, with these pauses; a saturating run makes units far "
            "ahead", True, 1),
)  # fmt: skip
_NAMES: Final = {0.5: "median", 0.9: "p90", 0.99: "p99", 0.999: "p99.9"}
_LAID: Final = {
    True: "units lie where they ran; one begins once the unit {buffer} before it is shown",
    False: "units lie end to end, each session's opening before its first one; checks of outputs and the drawing of "
    "inputs between them are the lab's time and left out",
}  # fmt: skip
"""How units lie on the time axis of a run, by whether it was paced."""


def of_runs(runs: Iterable[StoredPipeline]) -> Document:
    """Return the page of all mixes of each run, as `bakeoff deadline` prints it at its end."""
    return Document("", tuple(_section(entries) for entries in by_run(runs)))


def document_of(stored: StoredPipeline) -> Document:
    """Return the page of `bakeoff show` for one sustained run."""
    return Document(str(stored.record.mix), (_section([stored]),))


def sections(runs: Iterable[StoredPipeline], cited: links.Cited | None = None, full: bool = False) -> list[Section]:
    """Return a section for each subject and pace, with the newest run of each mix and, with `full`, figures."""
    return [_section(entries, cited, full) for entries in sustained_tables(runs)]


def every_run(runs: Iterable[StoredPipeline], cited: links.Cited) -> Section | None:
    """Return the history's section on sustained runs, the newest first, folded; None without runs."""
    folded = []
    for entries in reversed(by_run(sorted(runs, key=lambda entry: (entry.record.created, entry.id)))):
        first = entries[0].record
        heading = origin(first.created, f"run {first.run}", first.commit, first.dirty)
        folded.append(Details(heading, (_section(entries, cited, full=False),)))
    return Section("Sustained runs", tuple(folded)) if folded else None


def verdict(entry: StoredPipeline) -> str:
    """Say whether the mix held the rate of its run."""
    return _verdict(MixRow(entry, ""), stamps(entry.record)).text


def as_rows(runs: Iterable[StoredPipeline]) -> list[dict[str, Any]]:
    """Return the figures of these records for `--json`."""
    return [_data(entry) for entry in runs]


def _data(entry: StoredPipeline) -> dict[str, Any]:
    record, made = entry.record, entry.record.measurement
    units, how = stamps(record), _how(record)
    found = figures(record)
    return {
        "record": entry.id,
        "mix": str(record.mix),
        "role": record.role,
        "run": record.run,
        "status": record.status,
        "reason": made.reason,
        "findings": made.findings,
        "fps": how.fps,
        "paced": how.paced,
        "buffer": how.buffer,
        "figures": asdict(found) if found is not None else None,
        "viewers": [_viewer(seen) for seen in _viewers(units, how)],
    }


def _viewer(seen: Viewer) -> dict[str, object]:
    kept = {name: value for name, value in asdict(seen).items() if name[0] != "_"}
    return {**kept, "miss_share": seen.miss_share, "latency_ns": seen.latency_ns}


def _how(record: PipelineRecord) -> Sustained:
    assert record.sustained is not None
    return record.sustained


def _viewers(units: Sequence[Stamp], how: Sustained) -> list[Viewer]:
    """Return a viewer at each rate, the rate of the run among them; none if the units do not fill the buffer."""
    if len(units) < how.buffer or not any(stamp.frames for stamp in units):
        return []
    return [view(units, fps, how.buffer) for fps in _rates(how)]


def _rates(how: Sustained) -> list[float]:
    return sorted({*RATES, how.fps})


def _section(entries: Sequence[StoredPipeline], cited: links.Cited | None = None, full: bool = True) -> Section:
    rows, how = named(entries), _how(entries[0].record)
    units = {row.name: stamps(row.record) for row in rows}
    manner = f"paced at {how.fps:g} frames a second" if how.paced else "saturating"
    drawn = units_figure(units, _rates(how), entries[0].record.unit) if full else None
    return Section(
        f"{title(entries[0].record)}, sustained, {manner}",
        blocks(
            *(_verdict(row, units[row.name]) for row in rows),
            *(block for row in rows for block in _tables(row, units[row.name], len(rows) > 1)),
            document.Figures((drawn,)) if drawn is not None else None,
            *(listed(_facts(row), row.name) for row in rows),
            *(listed(_remarks(row, cited), f"Remarks on {row.name}") for row in rows),
        ),
    )


def _verdict(row: MixRow, units: Sequence[Stamp]) -> Text:
    """Say whether the mix held the rate of its run."""
    record, how = row.record, _how(row.record)
    seen = next((seen for seen in _viewers(units, how) if seen.fps == how.fps), None)
    ended = f"{record.status}: {record.measurement.reason or 'no reason is stored'}"
    found = figures(record)
    if seen is None or found is None:
        return Text(ended if record.status != "ok" else f"too few units with frames: {len(units)}", row.name, "bad")
    late = f"{seen.misses:,} of {counted(seen.units, 'unit', form=',')} late"
    least = f"least buffer {duration(seen.least_buffer_ns / 1e6)}"
    if not found.keeps_up(seen.fps):
        made = f"{found.busy_fps:.2f} frames a second, {found.last_third_fps:.2f} in its last third"
        least = f"no buffer is enough, since it makes {made}"
    if record.status != "ok":
        return Text(f"no verdict, {ended}; {late} at {how.fps:g} fps, {least}", row.name, "bad")
    minutes = duration((units[-1].ready_ns - units[0].submit_ns) / 1e6)
    if found.last_third_fps < seen.fps <= found.busy_fps:
        return Text(f"can no longer hold {how.fps:g} fps after {minutes}: {least}; {late}", row.name, "bad")
    if not seen.misses:
        return Text(f"holds {how.fps:g} fps for {minutes}: {late}; {least}", row.name, "good")
    stall = f"longest stall {duration(seen.longest_stall_ns / 1e6)}"
    share = f"{seen.miss_share:.2%}"
    return Text(f"misses {how.fps:g} fps for {minutes}: {late} ({share}), {stall}; {least}", row.name, "bad")


def _tables(row: MixRow, units: Sequence[Stamp], several: bool) -> Iterator[Table | None]:
    """Yield a table of viewers, and one of the times of units."""
    how, name = _how(row.record), f" of {row.name}" if several else ""
    buffer = f"a buffer of {counted(how.buffer, 'unit')}"
    found = figures(row.record)
    if found is not None:
        seen = [_seen(each, found.keeps_up(each.fps)) for each in _viewers(units, how)]
        yield document.table(_VIEWERS, seen, f"Viewers{name}, with {buffer}")
        heads = (Heading(row.record.unit), Heading("ms", numeric=True), Heading("95 % interval", numeric=True))
        times = [*(_time(each, found.units) for each in found.percentiles), ("slowest", _ms(found.slowest_ns), "")]
        yield document.table(heads, times, f"Time of a {row.record.unit}{name}, of {found.units:,}")


def _seen(seen: Viewer, kept_up: bool) -> Sequence[Cell | str]:
    times = (seen.longest_stall_ns, seen.stalled_ns, seen.least_buffer_ns, seen.latency_ns)
    longest, paused, least, latency = (Cell(duration(ns / 1e6), ns) for ns in times)
    least = least if kept_up else Cell("endless", seen.least_buffer_ns)
    share = f"{seen.miss_share:.2%}"
    return f"{seen.fps:g}", f"{seen.misses:,}", share, f"{seen.stalls:,}", longest, paused, least, latency


def _time(found: Percentile, units: int) -> tuple[str, str, str]:
    name = _NAMES[found.share]
    if found.ns is None:
        return name, f"n/a, needs {found.needs:,} units, has {units:,}", ""
    low, high = (_ms(end) if end is not None else "?" for end in (found.low_ns, found.high_ns))
    return name, _ms(found.ns), f"[{low}, {high}]"


def _ms(ns: float) -> str:
    return milliseconds(ns / 1e6)


def _facts(row: MixRow) -> Iterator[Text]:
    """Yield the mix, rate, evenness, last third, droop, energy and memory of a run."""
    yield Text(str(row.record.mix), "mix")
    found = figures(row.record)
    if found is None:
        return
    times = f"{counted(found.frames, 'frame', form=',')} in {duration(found.ns / 1e6)}"
    yield Text(f"{found.frames_per_s:.2f} frames a second, {times}", "rate")
    yield Text(_LAID[_how(row.record).paced].format(buffer=_how(row.record).buffer), "time axis")
    jitter = f"{_ms(found.jitter_ns)} ms from the median to p99; " if found.jitter_ns is not None else ""
    yield Text(f"{jitter}the longest gap between two units {duration(found.longest_gap_ns / 1e6)}", "jitter")
    yield Text(_last_third(found, row.record), "last third")
    yield Text(_droop(found), "droop")
    if found.reopened:
        yield Text(f"{counted(found.reopened, 'session')}, {duration(found.reopened_ns / 1e6)}", "reopened")
    yield from (Text(text, "energy") for text in _energy(found))
    for each in row.record.monitored.throttled if row.record.monitored is not None else ():
        yield Text(f"{duration(each.share * found.ns / 1e6)} ({each.share:.1%}) by {each.reason}", "throttled")
    if found.loops_in_memory is not None:
        loops = counted(found.loops_in_memory, "such loop")
        yield Text(f"memory for {loops} by the peak, an estimate; their speed at once was not measured", "fit")
    yield Text(f"{counted(found.left_out, 'unit')} before the first steady one", "left out")


def _last_third(found: Figures, record: PipelineRecord) -> str:
    """Judge the last third of a run of any length by itself."""
    units, how = last_third(stamps(record)), _how(record)
    seen = view(units, how.fps, min(how.buffer, len(units)))
    word = "makes" if found.last_third_fps >= how.fps else "cannot hold"
    rate = f"{found.last_third_fps:.2f} frames a second without its slowest unit"
    late = f"{seen.misses:,} of {counted(seen.units, 'unit', form=',')} late for a viewer who starts there"
    return f"{word} {how.fps:g} fps: {rate}; {late}"


def _droop(found: Figures) -> str:
    if found.droop is None:
        return "n/a, needs three minutes and six units in the second and the last"
    low, high = found.droop.low, found.droop.high
    shown = "" if low > 1 or high < 1 else ", no change shown"
    return f"the last minute's median is {found.droop.ratio:.3f}x the second's [{low:.3f}, {high:.3f}]{shown}"


def _energy(found: Figures) -> Iterator[str]:
    if not found.energy:
        yield "unknown: no energy counter was seen"
    for each in found.energy:
        if each.joules_a_frame is None or each.watts is None:
            yield f"{each.device}: unknown"
            continue
        net = f"{each.net_joules_a_frame:.4g} net of idle" if each.net_joules_a_frame is not None else "net unknown"
        yield f"{each.device}: {each.joules_a_frame:.4g} J a frame gross, {net}; {each.watts:.1f} W"


def _remarks(row: MixRow, cited: links.Cited | None) -> Iterator[Text]:
    record = row.record
    yield from problems(record)
    yield from map(Text, [*sentences(record), selftest_text(record)])
    yield Text("", "record", links=(cited(row.entry),)) if cited is not None else Text(row.entry.id, "record")
