"""From a request to a plan: the loop, its mixes, and for each mix every program that is built."""

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
from bakeoff.models.pipelines.pipeline import Loop, Pipeline, Program
from bakeoff.pipeline.choice import chosen_mixes
from bakeoff.pipeline.making import Making
from bakeoff.pipeline.mixes import MixPlan, make_mix
from bakeoff.pipeline.parts import Parts
from bakeoff.pipeline.request import (
    PipelineRequest,
    Role,
    agreed,
    asked_mixes,
    check_counts,
    checkpoint_files,
    chosen_options,
    filled,
)
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
