"""The page of `bakeoff show` for a run of a pipeline: the record of one mix in full, apart from its units."""

from collections.abc import Sequence
from statistics import median

from bakeoff.record.frames import BeforeAfter, before_after
from bakeoff.record.pipeline import PipelineRecord, SlotProgram
from bakeoff.record.prediction import prediction
from bakeoff.record.statistics import summarise_ns
from bakeoff.record.store import StoredPipeline
from bakeoff.report import document
from bakeoff.report.document import Document, Heading, Lines, Section, Table, Text, Tone, blocks, listed, stated
from bakeoff.report.format import MIB, milliseconds
from bakeoff.report.groups import title
from bakeoff.report.pages.pipelines import mixes_table, notes, phases_table
from bakeoff.report.pages.record import origin, settings
from bakeoff.report.pages.sweep import tone_of
from bakeoff.report.pipelines import MixRow

_SLOT = ("predicted ms", "alone ms", "inside ms", "difference ms", "of it")


def document_of(stored: StoredPipeline, others: Sequence[StoredPipeline] = ()) -> Document:
    """Return a mix's page: status, figures, where time goes, and a comparison with `others`, records of its run."""
    record, made, row = stored.record, stored.record.measurement, MixRow(stored, "")
    turns = {
        other.record.role or str(other.record.mix): (other.record, found)
        for other in others
        if other.record.mix != record.mix and (found := before_after(other.record, record)) is not None
    }
    facts = [
        *stated({"mix": str(record.mix), "subject": title(record), "record": stored.id}),
        Text(f"{made.status}{': ' + made.reason if made.reason else ''}", "status", tone_of(record.status)),
        *(_verdict_text(name, record, other, found) for name, (other, found) in turns.items()),
    ]
    options = ", ".join(f"{name} {value}" for name, value in record.options.items() if value != "")
    return Document(
        str(record.mix),
        blocks(
            listed(facts),
            mixes_table([row]),
            listed(_units(record)),
            phases_table([row]),
            *(_against(name, found) for name, (_, found) in turns.items()),
            listed((_program(record, program) for program in made.programs), "Programs"),
            _prediction(record),
            listed(notes(row), "Remarks"),
            Section("Settings", blocks(listed(stated({"options": options})), settings(record))),
            Section("Origin", blocks(origin(stored))),
            Lines(tuple(made.traceback.rstrip().splitlines())) if made.traceback else None,
        ),
    )


def _verdict_text(name: str, record: PipelineRecord, other: PipelineRecord, found: BeforeAfter) -> Text:
    """Describe which of two mixes that took turns is faster, and how many times as fast it is as the other."""
    failed = [f"{who} is {each.status}" for who, each in (("this mix", record), (name, other)) if each.status != "ok"]
    if failed:
        return Text(f"no verdict, {' and '.join(failed)}", f"against {name}", "open")
    who, ratio = ("this mix", found.ratio) if found.ratio >= 1 else ("it", 1 / found.ratio)
    decided = found.word in ("faster", "slower")
    tone: Tone = "good" if decided else "open"
    return Text(f"{who} is {ratio:.2f}x as fast{'' if decided else f'; {found.word}'}", f"against {name}", tone)


def _against(name: str, found: BeforeAfter) -> Table | None:
    """Return a table of the lines of both mixes' accounts and their changes."""
    headings = [Heading("line"), *(Heading(word, numeric=True) for word in ("other ms", "this ms", "change ms"))]
    lines = [
        [line.name, f"{line.before_ms:.3f}", f"{line.after_ms:.3f}", f"{line.after_ms - line.before_ms:+.3f}"]
        for line in found.lines
    ]
    return document.table(headings, lines, f"Against {name}")


def _units(record: PipelineRecord) -> list[Text]:
    """Describe openings, kinds of units, copies, and the cost of a time stamp."""
    made, units = record.measurement, record.measurement.units
    copied = median(units.copied_bytes) / MIB if units is not None and units.copied_bytes else None
    kinds = [] if units is None else [f"{units.kinds.count(kind)} {kind}" for kind in ("opening", "filling", "steady")]
    return stated(
        {
            "opened": ", ".join(f"{milliseconds(ns / 1e6)} ms" for ns in made.opened_ns[:6]),
            "units": ", ".join(kinds),
            "copies": f"{copied:.2f} MiB of inputs and state a unit, median" if copied is not None else "",
            "stamp": f"{made.stamp_ns / 1e3:.2f} us: what the account itself costs a phase" if made.stamp_ns else "",
        }
    )


def _program(record: PipelineRecord, program: SlotProgram) -> Text:
    name, cost = program.name, program.build
    said = [str(program.variant), program.status, f"called {record.calls.get(name, 0)}x a unit"]
    if cost is not None and cost.build_s is not None:
        said.append(f"built in {cost.build_s:.1f} s")
    elif cost is not None and cost.cpu_s is not None:
        said.append(f"built with {cost.cpu_s:.1f} s of CPU")
    if program.alone_ns:
        said.append(f"alone {milliseconds(summarise_ns(program.alone_ns).median_ms)} ms a call")
    if program.part:
        said.append(f"its record {program.part.rpartition('_')[2]}: {milliseconds(program.part_median_ns / 1e6)} ms")
    said += ["shares its slot's weights"] if program.shares_weights else []
    return Text(", ".join(said), name)


def _prediction(record: PipelineRecord) -> Table | None:
    """Return a table of each slot's predicted and measured time per unit; None if there is no unit to compare with."""
    found = prediction(record)
    rows = []
    for slot in found.slots if found is not None else ():
        times = (slot.predicted_ms, slot.alone_ms, slot.inside_ms, slot.difference_ms)
        share = "" if slot.share is None else f"{slot.share:.0%}"
        rows.append([slot.slot, *("n/a" if ms is None else f"{ms:.3f}" for ms in times), share])
    headings = [Heading("slot"), *(Heading(text, numeric=True) for text in _SLOT)]
    return document.table(headings, rows, "Slots beside the records of their programs, a unit")
