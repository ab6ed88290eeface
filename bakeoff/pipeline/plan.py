"""From a request to a plan: the loop, its mixes, every program that is built, and what `--dry-run` shows of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bakeoff.machine import host, paths
from bakeoff.machine.files import digest
from bakeoff.mix import SlotVariant
from bakeoff.models import resolve_component
from bakeoff.models.component import Component
from bakeoff.models.errors import BakeoffError
from bakeoff.models.pipelines import resolve_pipeline
from bakeoff.models.pipelines.pipeline import Loop, Pipeline, Program, Slot
from bakeoff.pipeline.mixes import Making, MixPlan, MixProgram, make_mix
from bakeoff.pipeline.parts import Parts, best_way
from bakeoff.pipeline.request import (
    Asked,
    PipelineRequest,
    Role,
    agreed,
    asked_mixes,
    check_counts,
    checkpoint_files,
    chosen_options,
    filled,
)
from bakeoff.plan.expected import GUESS, guess_build_s
from bakeoff.plan.plan import Plan
from bakeoff.process.environment import user_code_path, worker_environment
from bakeoff.process.jobs import LoopSubject
from bakeoff.record.store import load_all
from bakeoff.variant import changed_options


@dataclass(frozen=True, slots=True)
class PipelinePlan:
    """All that a run needs."""

    request: PipelineRequest
    pipeline: Pipeline
    loop: Loop
    options: Any
    """The pipeline's, defaults included."""
    label: str
    """Of the preset."""
    subject: LoopSubject
    subject_id: str
    components: Mapping[str, Component]
    """By slot."""
    checkpoint_hashes: Mapping[str, str]
    """By slot, of the content of its weights file."""
    slots: Mapping[str, Plan]
    """By slot, a sweep's plan with the rows of all mixes: its references are made by it."""
    mixes: tuple[MixPlan, ...]
    key: str
    """Hash of what `--resume` must find again."""
    environment: Mapping[str, str]
    """Of workers that run no compiler."""
    notes: tuple[str, ...]
    """What is to be said before the run: mixes that were left out, and why."""


def make_pipeline_plan(request: PipelineRequest, runs: Path) -> PipelinePlan:
    """Resolve a request. Raises BakeoffError for any name, number or combination of them that does not exist."""
    pipeline = resolve_pipeline(request.pipeline)
    check_counts(request)
    asked = asked_mixes(request, pipeline)
    whole = next((mix.whole for mix in asked if mix.whole is not None), None)
    device = host.usable_device(agreed("--device", request.device, whole.device if whole else ""))
    name = agreed("--preset", request.preset, whole.preset if whole else "") or pipeline.default_preset.get(device, "")
    if not name:
        raise BakeoffError(f"{pipeline.name} states no default preset for {device}; give --preset", "bad-option")
    preset = pipeline.preset(name)
    options = chosen_options(request, pipeline, whole)
    loop = pipeline.loop(preset, options)
    if not loop.programs:
        raise BakeoffError(f"{pipeline.name}:{name} calls no program, so there is nothing to compare", "bad-option")
    components = {slot.name: resolve_component(slot.component) for slot in loop.slots}
    making = Making(
        request=request,
        pipeline=pipeline,
        preset=name,
        device=device,
        options=options,
        loop=loop,
        components=components,
        checkpoints=checkpoint_files(request, pipeline),
        parts=Parts(load_all(runs).current),
    )
    eager = {
        program: making.slot_plan(program, slot)
        for slot in filled((), pipeline)
        for program in loop.programs
        if program.slot == slot.slot
    }
    chosen, notes = chosen_mixes(making, asked, eager)
    return _plan(making, chosen, notes, eager, preset.label)


def _plan(
    making: Making,
    chosen: Sequence[tuple[Role, tuple[SlotVariant, ...]]],
    notes: Sequence[str],
    eager: Mapping[Program, Plan],
    label: str,
) -> PipelinePlan:
    request, loop, pipeline = making.request, making.loop, making.pipeline
    first = next(iter(eager.values()))
    subjects = {program.slot: plan.rows[0].subject for program, plan in eager.items()}
    options = changed_options(pipeline, making.options)
    hashes = {slot: subject.checkpoint_hash for slot, subject in subjects.items() if subject.checkpoint}
    subject = LoopSubject(
        pipeline=request.pipeline,
        preset=making.preset,
        options=dict(options),
        weight_seed=request.weight_seed,
        input_seed=request.input_seed,
        checkpoints={slot: subjects[slot].checkpoint for slot in hashes},
        device=first.rows[0].subject.device,
        threads=first.rows[0].subject.threads,
    )
    configs = {slot.name: making.components[slot.name].preset(loop.presets[slot.name]).config for slot in loop.slots}
    computed = [pipeline.name, making.preset, options, configs, request.weight_seed, request.input_seed, hashes]
    user_code = ":" in request.pipeline or any(plan.request.user_code for plan in eager.values())
    slots: dict[str, list[Plan]] = {}
    mixes: dict[str, MixPlan] = {}
    for role, ways in chosen:
        plans = {
            program: making.slot_plan(program, way)
            for way in ways
            for program in loop.programs
            if way.slot == program.slot
        }
        for program, plan in plans.items():
            slots.setdefault(program.slot, []).append(plan)
        user_code = user_code or any(plan.request.user_code for plan in plans.values())
        made = make_mix(making, role, plans, options, [computed, subject.threads], user_code)
        mixes.setdefault(str(made.mix), made)
    commit, dirty = paths.commit()
    facts = [request.policy, request.units, request.profile, host.read_host(), host.read_versions(), commit, dirty]
    return PipelinePlan(
        request=request,
        pipeline=pipeline,
        loop=loop,
        options=making.options,
        label=label,
        subject=subject,
        subject_id=digest(computed),
        components=making.components,
        checkpoint_hashes=hashes,
        slots={
            slot: replace(plans[0], rows=tuple(row for plan in plans for row in plan.rows))
            for slot, plans in slots.items()
        },
        mixes=tuple(mixes.values()),
        key=digest([[mix.config_id for mix in mixes.values()], *facts]),
        environment=worker_environment(subject.threads, user_code_path() if user_code else {}),
        notes=tuple(notes),
    )


def chosen_mixes(
    making: Making, asked: Sequence[Asked], eager: Mapping[Program, Plan]
) -> tuple[list[tuple[Role, tuple[SlotVariant, ...]]], list[str]]:
    """The slots of each mix asked for; `best` is left out, with a note, where the records do not say what is best.

    Raises BakeoffError where that leaves no mix.
    """
    chosen: list[tuple[Role, tuple[SlotVariant, ...]]] = []
    notes: list[str] = []
    for mix in asked:
        if mix.role not in ("best", "best-full"):
            chosen.append((mix.role, filled(mix.slots, making.pipeline)))
            continue
        slots, missing = _best(making, eager, quantised=mix.role == "best")
        if missing:
            sweeps = "; ".join(f"bakeoff {sweep}" for sweep in missing)
            notes.append(f"{mix.role}: no ok records of this machine and code for every slot; run: {sweeps}")
        else:
            chosen.append((mix.role, slots))
    if not chosen:
        raise BakeoffError(notes[0], "no-record")
    return chosen, notes


def _best(
    making: Making, eager: Mapping[Program, Plan], quantised: bool
) -> tuple[tuple[SlotVariant, ...], tuple[str, ...]]:
    """The best slots by the records, and the sweeps that lack."""
    slots: list[SlotVariant] = []
    missing: list[str] = []
    for slot in making.loop.slots:
        programs = {
            program.workload: making.parts.of(making.components[slot.name], plan.rows[0].subject)
            for program, plan in eager.items()
            if program.slot == slot.name
        }
        calls = {program: count for (of, program), count in making.loop.calls().items() if of == slot.name}
        found = best_way(programs, calls, quantised)
        if found is None:
            missing.append(_sweep(making, slot, [name for name in programs if calls.get(name)] or list(programs)))
        else:
            slots.append(SlotVariant(slot.name, found[0].backends, found[0].dtype))
    return tuple(slots), tuple(missing)


def _sweep(making: Making, slot: Slot, programs: Sequence[str]) -> str:
    """The sweep whose records say how to fill a slot, as it is typed."""
    request = making.request
    batch = next(program.batch for program in making.loop.programs if program.slot == slot.name)
    given = {
        "--batch": str(batch) if batch > 1 else "",
        "--device": request.device,
        "--threads": str(request.threads or ""),
        "--seed": str(request.weight_seed or ""),
        "--checkpoint": making.checkpoints.get(slot.name, ""),
    }
    more = "".join(f" {option} {value}" for option, value in given.items() if value)
    return f"sweep {slot.component} --preset {making.loop.presets[slot.name]} --workload {','.join(programs)}{more}"


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
