"""The page of `bakeoff show` for a run of a pipeline: the record of one mix in full, apart from its units."""

from collections import Counter
from collections.abc import Sequence
from statistics import median

from bakeoff.record.pipeline import PipelineRecord, SlotProgram
from bakeoff.record.store import StoredPipeline
from bakeoff.report.document import Document, Lines, Section, Text, blocks, listed, stated
from bakeoff.report.format import MIB, milliseconds
from bakeoff.report.groups import title
from bakeoff.report.pages.pipelines import held_against, mixes_table, notes, phases_table
from bakeoff.report.pages.record import origin, settings
from bakeoff.report.pages.sweep import tone_of
from bakeoff.report.pipelines import MixRow, gain


def document_of(stored: StoredPipeline, others: Sequence[StoredPipeline] = ()) -> Document:
    """Return a mix's page: status, figures, where time goes, and a comparison with `others`, records of its run."""
    record, made, row = stored.record, stored.record.measurement, MixRow(stored, "")
    turns = [
        MixRow(stored, "", found, other.record.role or str(other.record.mix))
        for other in others
        if other.record.mix != record.mix and (found := gain(other.record, record)) is not None
    ]
    facts = [
        *stated({"mix": str(record.mix), "subject": title(record), "record": stored.id}),
        Text(f"{made.status}{': ' + made.reason if made.reason else ''}", "status", tone_of(record.status)),
        *(Text(f"this mix {held_against(turn)}") for turn in turns),
    ]
    options = ", ".join(f"{name} {value}" for name, value in record.options.items() if value != "")
    return Document(
        str(record.mix),
        blocks(
            listed(facts),
            mixes_table([row]),
            listed(_units(record)),
            phases_table([row]),
            listed((_program(record, program) for program in made.programs), "Programs"),
            listed(notes(row), "Remarks"),
            Section("Settings", blocks(listed(stated({"options": options})), settings(record))),
            Section("Origin", blocks(origin(stored))),
            Lines(tuple(made.traceback.rstrip().splitlines())) if made.traceback else None,
        ),
    )


def _units(record: PipelineRecord) -> list[Text]:
    """Describe openings, kinds of units, copies, and the cost of a time stamp."""
    made, units = record.measurement, record.measurement.units
    copied = median(units.copied_bytes) / MIB if units is not None and units.copied_bytes else None
    counts = Counter[str]() if units is None else Counter(units.kinds)
    kinds = [f"{counts[kind]} {kind}" for kind in ("opening", "filling", "resuming", "steady") if counts[kind]]
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
    if program.part:
        said.append(f"its record {program.part.rpartition('_')[2]}")
    said += ["shares its slot's weights"] if program.shares_weights else []
    return Text(", ".join(said), name)
