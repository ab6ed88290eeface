"""`bakeoff pipeline --dry-run`: the programs of each mix with their records, and its estimated time and memory."""

from tabulate import tabulate

from bakeoff.models.words import counted
from bakeoff.pipeline.dry_run import MixLine, PipelineEstimate, ProgramLine
from bakeoff.report.format import MIB


def render(plan: PipelineEstimate) -> str:
    filling = f" after {plan.filling} that fill windows" if plan.filling else ""
    mixes = counted(len(plan.mixes), "mix", "mixes")
    minutes = f"about {plan.seconds / 60:.1f} minutes by estimate"
    total = f"{mixes}, {counted(plan.units, 'steady unit')} each{filling}, {minutes}"
    return "\n\n".join([*plan.notes, *map(_mix, plan.mixes), total])


def _mix(line: MixLine) -> str:
    rows = [
        [
            program.program,
            program.variant,
            program.calls,
            "none" if program.median_ms is None else f"{program.median_ms:.2f}",
            _where(program),
            program.memory_bytes // MIB,
        ]
        for program in line.programs
    ]
    headers = ("program", "variant", "calls", "ms", "from", "memory MiB")
    body = tabulate(rows, headers=headers, disable_numparse=True)
    role = f"{line.role}: " if line.role else ""
    if line.precheck:
        return f"{role}{line.mix}\n{body}\n{line.precheck}"
    predicted = "unknown" if line.predicted_unit_ms is None else f"{line.predicted_unit_ms:.1f} ms"
    end = f"a steady unit by its parts: {predicted}; about {line.seconds:.0f} s (from {line.seconds_from})"
    return f"{role}{line.mix}\n{body}\n{end}, {line.memory_bytes // MIB} MiB with all programs in place"


def _where(program: ProgramLine) -> str:
    """The record, with its variant where that is recorded under another name."""
    if program.part_variant and program.part_variant != program.variant:
        return f"{program.part} ({program.part_variant})"
    return program.part
