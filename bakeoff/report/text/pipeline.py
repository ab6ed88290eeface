"""Runs of pipelines on the terminal: the table of a run, and one record in full."""

from collections.abc import Iterator, Sequence
from statistics import median

from tabulate import tabulate

from bakeoff.machine import paths
from bakeoff.machine.terminal import lines_of, one_line
from bakeoff.models.words import counted
from bakeoff.record.frames import BeforeAfter, FrameFigures, before_after, figures, phases
from bakeoff.record.pipeline import PipelineRecord, SlotProgram
from bakeoff.record.prediction import Prediction, prediction
from bakeoff.record.schema import BuildCost
from bakeoff.record.statistics import summarise_ns
from bakeoff.record.store import StoredPipeline
from bakeoff.report import mix_notes
from bakeoff.report.format import MIB, milliseconds, minute
from bakeoff.report.mix_cells import cells, cost, in_words_of, rate, tail
from bakeoff.report.mix_cells import data as row_data
from bakeoff.report.notes import selftest_text
from bakeoff.report.pipelines import MixRow, PipelineTable, by_run, named, pipeline_tables, title


def render(runs: Sequence[StoredPipeline]) -> str:
    """The records of one run: a table with a row a mix, then each mix's phases and remarks."""
    return "\n\n".join(_section(title(entries[0].record), named(entries), ()) for entries in by_run(runs))


def render_newest(runs: Sequence[StoredPipeline]) -> str:
    """The newest record of each mix, a table for each subject; stale ones apart."""
    return "\n\n".join(_table_section(table) for table in pipeline_tables(runs))


def summary(runs: Sequence[StoredPipeline]) -> list[dict[str, object]]:
    """The rows of the tables of these records with figures as numbers, for `--json`; stale ones with the reason."""
    rows = []
    for table in pipeline_tables(runs):
        rows += [{**row_data(row), "stale": ""} for row in table.rows]
        rows += [{**row_data(stale.row), "stale": stale.reason} for stale in table.stale]
    return rows


def _table_section(table: PipelineTable) -> str:
    stale = [
        f"stale, not comparable with the rows above: {each.row.name} ({each.row.record.mix}), "
        f"{_cost(each.row.record)}, {minute(each.row.record.created)} UTC: {each.reason}"
        for each in table.stale
    ]
    return _section(table.title, table.rows, stale)


def _cost(record: PipelineRecord) -> str:
    found = figures(record)
    return in_words_of(record, f"{cost(found)} ms a frame") if found is not None else record.status


def _section(heading: str, rows: Sequence[MixRow], stale: Sequence[str]) -> str:
    columns, texts = cells(rows)
    table = tabulate(
        [[one_line(text) for text in line] for line in texts],
        headers=[column.heading for column in columns],
        disable_numparse=True,
        colalign=["right" if column.numeric else "left" for column in columns],
    )
    parts = [one_line(heading), "", table, "", lines_of(mix_notes.mixes(rows))]
    for row in rows:
        details = _details(row)
        parts += ["", *details] if details else []
    last = [*stale, *mix_notes.selftests(rows), *mix_notes.verdicts(rows)]
    return "\n".join([*parts, "", lines_of(last)]).rstrip()


def _details(row: MixRow) -> list[str]:
    table = phase_table(row.record)
    remarks = [f"  {text}" for text in mix_notes.remarks(row)]
    heading = one_line(f"{row.name}: a steady {row.record.unit} by phase, mean") if table else one_line(f"{row.name}:")
    if not table and not remarks:
        return []
    return [heading, *([table] if table else []), *([lines_of(remarks)] if remarks else [])]


def phase_table(record: PipelineRecord) -> str:
    """Lines of the account of a steady unit; their shares add up to 100.0 %. Empty without steady units."""
    rows = phases(record)
    if not rows:
        return ""
    lines = [
        [one_line(row.name), "" if row.calls is None else str(row.calls), f"{row.ms:.3f}", row.share] for row in rows
    ]
    total = sum(row.ns for row in rows)
    mean = sum(row.ms for row in rows)
    lines.append(["sum", "", f"{mean:.3f}", "100.0 %" if total else "0.0 %"])
    return tabulate(
        lines,
        headers=["phase", "calls a unit", "ms a unit", "share"],
        disable_numparse=True,
        colalign=["left", "right", "right", "right"],
    )


def log_path(record: PipelineRecord) -> str:
    """Where the worker's log is on this machine, or what its name was on another."""
    path = paths.cache_folder() / record.log
    return str(path) if path.exists() else f"not on this machine (was {record.log} in the cache folder)"


def render_record(stored: StoredPipeline, others: Sequence[StoredPipeline] = ()) -> str:
    """One record in full but for its units; `others` are further records of its run, which it is held against."""
    record, made = stored.record, stored.record.measurement
    lines = [str(record.mix), title(record), *_origin(stored)]
    found = figures(record)
    if found is not None:
        first = "" if found.first_frame_ms is None else f", first frame after {milliseconds(found.first_frame_ms)} ms"
        lines += [
            f"{record.unit if record.unit == 'call' else 'frame':<9} {cost(found)} ms, p99 {tail(found)}, "
            + in_words_of(record, f"{counted(found.units, 'steady unit')}, {counted(found.frames, 'video frame')}"),
            "rate      " + in_words_of(record, ", ".join(_rates(record, found)) + first),
        ]
    lines += _opening(record)
    lines += [f"program   {_program(record, program)}" for program in made.programs]
    table = phase_table(record)
    if table:
        lines += ["", *table.splitlines(), ""]
    predicted = prediction(record)
    if predicted is not None:
        lines += [*_prediction(predicted).splitlines(), ""]
    lines += [f"note      {text}" for text in mix_notes.remarks(MixRow(stored, "", None))]
    lines += _against(record, others)
    lines.append("versions  " + ", ".join(f"{name} {version}" for name, version in record.versions.items()))
    settings = made.settings | made.device_state
    lines.append("settings  " + ", ".join(f"{name} {value}" for name, value in settings.items()))
    lines.append(f"log       {log_path(record)}")
    return lines_of(lines) + (f"\n\n{made.traceback.rstrip()}" if made.traceback else "")


def _rates(record: PipelineRecord, found: FrameFigures) -> Iterator[str]:
    yield f"{rate(found.frames_per_s)} video frames/s"
    if record.unit != "call":
        yield f"{rate(found.units_per_s)} {record.unit}s/s"
    if found.real_time is not None:
        yield f"{found.real_time:.2f}x of real time ({record.frame_rate:g} frames/s)"


def _origin(stored: StoredPipeline) -> Iterator[str]:
    """Which record it is, how it ended, and when, by which code and where it was made."""
    record, made = stored.record, stored.record.measurement
    note = f", note: {record.note}" if record.note else ""
    commit = f"{record.commit[:12] or 'not in a checkout'}{' with changes' if record.dirty else ''}"
    options = ", ".join(f"{name} {value}" for name, value in record.options.items())
    yield f"record    {stored.id}"
    yield f"status    {made.status}{': ' + made.reason if made.reason else ''}"
    yield f"mix       {record.role or 'typed'}, {record.how}, options {options or 'none'}"
    yield f"made      {record.created}, run {record.run}, {record.wall_s:.0f} s{note}"
    yield f"code      {commit}, code hash {record.code or 'not stated'}; {selftest_text(record)}"
    yield f"source    pipeline {record.loop_hash}, measuring side {record.instrument}"
    kind = f", class {record.machine.machine_class}" if record.machine.machine_class else ""
    yield f"machine   {record.machine.name}, id {record.machine.id}{kind}"
    yield f"host      {record.host.system}, {record.host.memory_bytes // MIB} MiB, {' '.join(record.host.cpu_flags)}"


def _opening(record: PipelineRecord) -> Iterator[str]:
    """Openings and the units that are in no figure."""
    made = record.measurement
    if made.opened_ns:
        yield "opened    " + ", ".join(f"{milliseconds(ns / 1e6)} ms" for ns in made.opened_ns[:6])
    if made.units is not None:
        counts = {kind: made.units.kinds.count(kind) for kind in ("opening", "filling", "steady")}
        yield "units     " + ", ".join(f"{count} {kind}" for kind, count in counts.items())
        if made.units.copied_bytes:
            yield f"copies    {median(made.units.copied_bytes) / MIB:.2f} MiB of inputs and state a unit, median"
    if made.stamp_ns:
        yield f"stamp     {made.stamp_ns / 1e3:.2f} us: what the account itself costs a phase"


def _program(record: PipelineRecord, program: SlotProgram) -> str:
    name = f"{program.slot}.{program.variant.workload}"
    build = "" if program.build is None else _build(program.build)
    alone = ""
    if program.alone_ns:
        alone = f", alone {milliseconds(summarise_ns(program.alone_ns).median_ms)} ms a call"
    part = f", its record {milliseconds(program.part_median_ns / 1e6)} ms ({program.part})" if program.part else ""
    shared = ", shares its slot's weights" if program.shares_weights else ""
    calls = record.calls.get(name, 0)
    return f"{name}: {program.variant}, {program.status}, called {calls}x a unit{build}{alone}{part}{shared}"


def _build(cost: BuildCost) -> str:
    """How long the build took; of one beside which others ran the CPU time."""
    if cost.build_s is not None:
        return f", built in {cost.build_s:.1f} s"
    return "" if cost.cpu_s is None else f", built with {cost.cpu_s:.1f} s of CPU"


def _prediction(found: Prediction) -> str:
    lines = [
        [
            one_line(slot.slot),
            *(
                "n/a" if ms is None else f"{ms:.3f}"
                for ms in (slot.predicted_ms, slot.alone_ms, slot.inside_ms, slot.difference_ms)
            ),
            "" if slot.share is None else f"{slot.share:.0%}",
        ]
        for slot in found.slots
    ]
    headings = ["slot", "predicted ms", "alone ms", "inside ms", "difference ms", "of the difference"]
    return tabulate(lines, headings, disable_numparse=True, colalign=["left", *(["right"] * 5)])


def _told(found: BeforeAfter) -> str:
    """Which of the two is how many times as fast."""
    who, ratio = ("this mix", found.ratio) if found.ratio >= 1 else ("it", 1 / found.ratio)
    word = f"; {found.word}" if found.word in ("no difference shown", "too few units") else ""
    return f"{who} is {ratio:.2f}x as fast{word}"


def _against(record: PipelineRecord, others: Sequence[StoredPipeline]) -> Iterator[str]:
    """The lines of this mix beside those of the mixes that it took turns with."""
    for other in others:
        found = before_after(other.record, record)
        if found is None or other.record.mix == record.mix:
            continue
        name = other.record.role or other.record.mix
        failed = [f"{who} is {each.status}" for who, each in (("this mix", record), (name, other.record))
                  if each.status != "ok"]  # fmt: skip
        said = f"no verdict, {' and '.join(failed)}" if failed else _told(found)
        yield f"against   {name}: {said}"
        for line in found.lines:
            change = line.after_ms - line.before_ms
            yield f"  {line.name}: {line.before_ms:.3f} to {line.after_ms:.3f} ms a unit ({change:+.3f})"
