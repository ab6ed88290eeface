"""What `--dry-run` shows of each mix: its programs, their records, memory by formulas, and about how long it takes."""

from dataclasses import dataclass
from pathlib import Path

from bakeoff.machine import paths
from bakeoff.pipeline.mixes import MixPlan, MixProgram
from bakeoff.pipeline.plan import PipelinePlan
from bakeoff.plan.expected import GUESS, guess_build_s
from bakeoff.record.store import load_all

_GUESS_EAGER_S = 5.0
_GUESS_UNIT_S = 5.0


@dataclass(frozen=True, slots=True)
class ProgramLine:
    """One program of a mix."""

    program: str
    """`slot.program`."""
    variant: str
    calls: int
    """In a steady unit."""
    part: str
    """Id of the record that predicts its time; "" where there is none."""
    part_variant: str
    """The variant of that record: the same program may be recorded under another name."""
    median_ms: float | None
    memory_bytes: int
    """Of the program alone."""


@dataclass(frozen=True, slots=True)
class MixLine:
    """One record that a plan asks for."""

    mix: str
    role: str
    precheck: str
    """Why it does not run; "" where it does."""
    programs: tuple[ProgramLine, ...]
    predicted_unit_ms: float | None
    """Sum of calls times medians over the programs of a steady unit; None where one lacks a record."""
    memory_bytes: int
    """With all programs in place."""
    seconds: float
    seconds_from: str
    """The record that the time is taken from, `parts` or `guess`."""


@dataclass(frozen=True, slots=True)
class PipelineEstimate:
    """All mixes of a plan."""

    mixes: tuple[MixLine, ...]
    units: int
    filling: int
    notes: tuple[str, ...]
    seconds: float


def estimate(plan: PipelinePlan, runs: Path) -> PipelineEstimate:
    known = load_all(*paths.with_published(runs)).pipelines
    earlier = {entry.record.config_id: entry for entry in known if entry.record.measurement.units}
    lines = []
    for mix in plan.mixes:
        programs = tuple(_line(plan, program) for program in mix.programs)
        predicted = _predicted_ms(programs)
        if mix.precheck is not None:
            seconds, source = 0.0, ""
        elif mix.config_id in earlier:
            seconds, source = earlier[mix.config_id].record.wall_s, earlier[mix.config_id].id
        else:
            unit_s = predicted / 1e3 if predicted is not None else _GUESS_UNIT_S
            rounds_s = min(plan.request.minutes * 60, (plan.loop.filling + plan.request.units) * unit_s)
            seconds = _builds_s(mix) + rounds_s
            source = "parts" if predicted is not None else GUESS
        lines.append(
            MixLine(
                mix=str(mix.mix),
                role=mix.role,
                precheck=str(mix.precheck or ""),
                programs=programs,
                predicted_unit_ms=predicted,
                memory_bytes=mix.memory.device,
                seconds=seconds,
                seconds_from=source,
            )
        )
    total = sum(line.seconds for line in lines)
    return PipelineEstimate(tuple(lines), plan.request.units, plan.loop.filling, plan.notes, total)


def _line(plan: PipelinePlan, program: MixProgram) -> ProgramLine:
    part = program.part
    return ProgramLine(
        program=program.name,
        variant=str(program.row.variant),
        calls=plan.loop.calls().get((program.slot, program.program), 0),
        part=part.id if part is not None else "",
        part_variant=str(part.record.variant) if part is not None else "",
        median_ms=part.median_ns / 1e6 if part is not None else None,
        memory_bytes=program.row.memory.device,
    )


def _predicted_ms(programs: tuple[ProgramLine, ...]) -> float | None:
    called = [program for program in programs if program.calls]
    if any(program.median_ms is None for program in called):
        return None
    return sum(program.calls * (program.median_ms or 0.0) for program in called)


def _builds_s(mix: MixPlan) -> float:
    return sum(guess_build_s(program.row) or _GUESS_EAGER_S for program in mix.programs)
