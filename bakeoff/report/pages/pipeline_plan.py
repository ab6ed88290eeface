"""`bakeoff pipeline --dry-run`: the programs of each mix with their records, and its estimated time and memory."""

from bakeoff.models.words import counted
from bakeoff.pipeline.dry_run import MixLine, PipelineEstimate, ProgramLine
from bakeoff.report import document
from bakeoff.report.document import Block, Document, Heading, Section, Text, blocks
from bakeoff.report.format import MIB

_HEADINGS = (
    Heading("program"),
    Heading("variant"),
    Heading("calls", "a unit", True),
    Heading("ms", "a call, by its record", True),
    Heading("from", "the record", leaves=1),
    Heading("memory MiB", "of the program alone", True),
)


def document_of(plan: PipelineEstimate) -> Document:
    """How many mixes and how long, then each mix."""
    filling = f" after {plan.filling} that fill windows" if plan.filling else ""
    mixes, units = counted(len(plan.mixes), "mix", "mixes"), counted(plan.units, "steady unit")
    total = Text(f"{mixes}, {units} each{filling}, about {plan.seconds / 60:.1f} minutes by estimate")
    return Document("", (total, *map(Text, plan.notes), *(block for mix in plan.mixes for block in _mix(mix))))


def _mix(mix: MixLine) -> tuple[Block | Section, ...]:
    predicted = "unknown" if mix.predicted_unit_ms is None else f"{mix.predicted_unit_ms:.1f} ms"
    cost = (
        f"about {mix.seconds:.0f} s (from {mix.seconds_from}), {mix.memory_bytes // MIB} MiB with all programs in place"
    )
    rows = [
        [
            line.program,
            line.variant,
            str(line.calls),
            "none" if line.median_ms is None else f"{line.median_ms:.2f}",
            _where(line),
            str(line.memory_bytes // MIB),
        ]
        for line in mix.programs
    ]
    return blocks(
        Text(mix.mix, mix.role),
        document.table(_HEADINGS, rows),
        Text(mix.precheck, tone="bad") if mix.precheck else Text(f"a steady unit by its parts: {predicted}; {cost}"),
    )


def _where(program: ProgramLine) -> str:
    """The end of the record's name, with its variant where that is recorded under another name."""
    name = program.part.rpartition("_")[2]
    return f"{name} ({program.part_variant})" if name and program.part_variant != program.variant else name
