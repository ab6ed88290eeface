"""Makes the plan of a pipeline's run: the loop, its mixes with all programs, and their estimated costs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bakeoff.backends import resolve_backend
from bakeoff.machine import build_cache, host, paths
from bakeoff.machine.files import digest
from bakeoff.machine.identity import this_machine
from bakeoff.mix import Mix, SlotChoice
from bakeoff.models import resolve_component
from bakeoff.models.errors import BakeoffError
from bakeoff.models.pipelines import pipeline_names
from bakeoff.models.pipelines.pipeline import Loop, Program, Slot
from bakeoff.pipeline.describe import described_loop, with_models
from bakeoff.pipeline.parts import KnownParts, Part, best_choice, known_parts
from bakeoff.pipeline.request import (
    PipelineRequest,
    RequestedMix,
    Role,
    agreed,
    check_counts,
    check_mixes,
    checkpoint_files,
    chosen_options,
    filled,
    requested_mixes,
)
from bakeoff.plan.costs import GUESS, guess_build_s
from bakeoff.plan.memory import Need, programs_memory, with_process
from bakeoff.plan.plan import Plan, make_plan
from bakeoff.plan.request import Request
from bakeoff.plan.rows import Precheck, Row, build_environment, lasting, short_of_memory
from bakeoff.process.jobs import LoopSubject
from bakeoff.record.store import StoredPipeline, load_all
from bakeoff.sweeps.progress import Progress


@dataclass(frozen=True, slots=True)
class MixProgram:
    """One program of a mix, planned like a row of a sweep, with its caches in the mix's folder."""

    slot: str
    row: Row
    part: Part | None
    """The record that predicts the program's time; None if there is none of the same machine and code."""

    @property
    def name(self) -> str:
        return f"{self.slot}.{self.row.variant.workload}"


@dataclass(frozen=True, slots=True)
class MixPlan:
    """One mix, of which a run makes one record. Its programs are built in one environment."""

    mix: Mix
    role: Role
    programs: tuple[MixProgram, ...]
    config_id: str
    precheck: Precheck | None
    """Why the mix cannot run; None if it can. `oom` is judged by the memory that was free when the plan was made."""
    memory: Need
    cache_folder: Path
    environment: Mapping[str, str]

    @property
    def label(self) -> str:
        """Name of the mix in messages."""
        return self.role or self.mix.variants

    @property
    def slug(self) -> str:
        """Text that identifies the mix in file names."""
        return f"{self.mix.slug}-{digest(str(self.mix))[:6]}"

    @property
    def never_runs(self) -> Precheck | None:
        """Why the mix can never run on this machine; None if it may, since a shortage of memory may pass."""
        return lasting(self.precheck)

    def obstacle(self) -> Precheck | None:
        """Return why the mix cannot run now; None if it can."""
        return self.never_runs or short_of_memory(self.memory, self.mix.device)


@dataclass(frozen=True, slots=True)
class PipelinePlan:
    """Everything that a run of a pipeline needs."""

    request: PipelineRequest
    subject: LoopSubject
    subject_id: str
    slots: Mapping[str, Plan]
    """For each slot, the plan of a sweep with the rows of all mixes, by which the slot's references are made."""
    mixes: tuple[MixPlan, ...]
    key: str
    """Hash of what must be the same for `--resume`: mixes, policy, units, profile, host, versions and commit."""
    notes: tuple[str, ...]
    """Notes to print before the run, such as mixes that were left out, and why."""

    @property
    def loop(self) -> Loop:
        return self.subject.loop

    @property
    def reference_units(self) -> int:
        """Number of units of a session in the reference that mixes are compared with."""
        return self.loop.checked_units if self.request.horizon_db is None else self.request.units

    @property
    def reference_bytes(self) -> int:
        """Disk space of that reference at most: outputs and state of each unit, in fp64."""
        return 8 * self.loop.unit_elements * (self.reference_units + 1)

    @property
    def name(self) -> str:
        """Name of the pipeline in the state of the run, for `--resume`."""
        return f"pipeline {self.loop.name}"


@dataclass(frozen=True, slots=True)
class Programs:
    """A pipeline's loop with all programs, and the records that can fill its slots."""

    loop: Loop
    eager: Mapping[Program, Plan]
    """For each program, the plan of a sweep of eager fp32 alone."""
    known: KnownParts
    computed: list[Any]
    """Everything that decides what is computed."""

    @property
    def subject_id(self) -> str:
        return digest(self.computed)

    def of(self, slot: str) -> Mapping[str, Plan]:
        """Return the plans of a slot's programs, by program."""
        return {program.workload: plan for program, plan in self.eager.items() if program.slot == slot}


def make_programs(request: PipelineRequest, asked: Sequence[RequestedMix], runs: Path, progress: Progress) -> Programs:
    """Return the programs of the requested pipeline. Raises BakeoffError for a name, number or combination that does
    not exist."""
    check_counts(request)
    whole = next((mix.whole for mix in asked if mix.whole is not None), None)
    device = host.usable_device(agreed("--device", request.device, whole.device if whole else ""))
    preset = agreed("--preset", request.preset, whole.preset if whole else "")
    options = chosen_options(request, whole)
    loop = described_loop(request.pipeline, preset, options, device, request.threads, request.weight_seed, progress)
    loop = with_models(loop, device, request.threads, progress)
    check_mixes(asked, loop)
    if request.horizon_db is not None and request.units > (loop.max_units or request.units):
        text = f"--units {request.units}: a session of {loop.name} has {loop.max_units}; give at most that"
        raise BakeoffError(text, "bad-option")
    if request.horizon_db is not None and loop.draws:
        text = (
            f"{loop.name}: its units draw random numbers by themselves, which are others in the reference's fp64, so "
        )
        raise BakeoffError(f"{text}there is nothing to compare with; draw them in given()", "not-comparable")
    if not loop.programs:
        raise BakeoffError(f"{loop.name}:{loop.preset} calls no program, so there is nothing to compare", "bad-option")
    files, eager = checkpoint_files(request, loop), dict[Program, Plan]()
    for program in loop.programs:
        of = loop.slot(program.slot)
        eager[program] = make_plan(
            Request(
                component=of.component,
                presets=(of.preset,),
                workloads=(program.workload,),
                backends=("eager[]",),
                dtypes=("fp32",),
                device=device,
                batches=(program.batch,),
                weight_seed=request.weight_seed,
                input_seed=request.input_seed,
                threads=request.threads,
                checkpoint=files.get(program.slot, ""),
                policy=request.policy,
                final_s=0.0,
                ceilings=False,
            )
        )
    of_slot = {program.slot: plan for program, plan in eager.items()}
    subjects = {slot: plan.rows[0].subject for slot, plan in of_slot.items()}
    computed = [
        loop.name,
        loop.preset,
        list(loop.changed.items()),
        {slot.name: of_slot[slot.name].component.preset(slot.preset).config for slot in loop.slots},
        request.weight_seed,
        request.input_seed,
        {slot: one.checkpoint_hash for slot, one in subjects.items() if one.checkpoint},
    ]
    return Programs(loop, eager, known_parts(load_all(runs).current), computed)


def make_pipeline_plan(request: PipelineRequest, runs: Path, progress: Progress) -> PipelinePlan:
    """Return the plan of a request. Raises BakeoffError for a name, number or combination that does not exist."""
    asked = requested_mixes(request)
    programs = make_programs(request, asked, runs, progress)
    chosen, notes = chosen_mixes(programs, asked)
    return _plan(request, programs, chosen, (*programs.loop.notes, *notes))


def _plan(
    request: PipelineRequest,
    made: Programs,
    chosen: Sequence[tuple[Role, tuple[SlotChoice, ...]]],
    notes: tuple[str, ...],
) -> PipelinePlan:
    loop, eager = made.loop, made.eager
    subjects = {program.slot: plan.rows[0].subject for program, plan in eager.items()}
    first = next(iter(subjects.values()))
    subject = LoopSubject(
        loop=loop,
        weight_seed=request.weight_seed,
        input_seed=request.input_seed,
        checkpoints={slot: one.checkpoint for slot, one in subjects.items() if one.checkpoint},
        device=first.device,
        threads=first.threads,
    )
    slots: dict[str, list[Plan]] = {}
    mixes: dict[str, MixPlan] = {}
    for role, ways in chosen:
        plans = {program: _in_way(plan, ways, program.slot) for program, plan in eager.items()}
        for program, plan in plans.items():
            slots.setdefault(program.slot, []).append(plan)
        user_code = request.pipeline not in pipeline_names() or any(plan.request.user_code for plan in plans.values())
        mix = _mix(loop, role, plans, made.known, [made.computed, subject.threads], user_code)
        mixes.setdefault(str(mix.mix), mix)
    commit, dirty = paths.commit()
    facts = [
        request.policy,
        request.units,
        request.profile,
        request.horizon_db,
        host.read_host(),
        host.read_versions(),
        commit,
        dirty,
    ]
    if (sustained := request.sustained) is not None:
        request = replace(request, sustained=replace(sustained, fps=sustained.fps or loop.rate or USUAL_FPS))
        facts += [request.sustained, request.minutes]
    return PipelinePlan(
        request=request,
        subject=subject,
        subject_id=made.subject_id,
        slots={
            slot: replace(plans[0], rows=tuple(row for plan in plans for row in plan.rows))
            for slot, plans in slots.items()
        },
        mixes=tuple(mixes.values()),
        key=digest([[mix.config_id for mix in mixes.values()], *facts]),
        notes=notes,
    )


def _in_way(plan: Plan, ways: Iterable[SlotChoice], slot: str) -> Plan:
    """Return the plan with its one row built by the backends and dtype that fill the slot."""
    request = in_way(plan, next(way for way in ways if way.slot == slot))
    return plan if request == plan.request else make_plan(request)


def in_way(plan: Plan, way: SlotChoice) -> Request:
    """Return the request of a program's plan with the backends and dtype that fill its slot."""
    backends = "+".join(str(use) if use.options else f"{use.name}[]" for use in way.backends)
    return replace(plan.request, backends=(backends,), dtypes=(way.dtype,))


def _mix(
    loop: Loop, role: Role, plans: Mapping[Program, Plan], known: KnownParts, decided_by: object, user_code: bool
) -> MixPlan:
    rows = {program: plan.rows[0] for program, plan in plans.items()}
    slots = {
        program.slot: SlotChoice(program.slot, row.variant.backends, row.variant.dtype) for program, row in rows.items()
    }
    subject = next(iter(rows.values())).subject
    device = subject.device
    options = tuple(loop.changed.items())
    mix = Mix(loop.name, loop.preset, options, tuple(slots[slot.name] for slot in loop.slots), device)
    batches = [(program.slot, program.workload, program.batch) for program in rows]
    config_id = digest([str(mix), batches, decided_by])
    machine = this_machine(device).machine_class
    folder = build_cache.usual_folder([str(mix), config_id, host.read_versions(), machine])
    backends = [resolve_backend(step.backend) for row in rows.values() for step in row.steps]
    environment = build_environment(backends, folder, subject.threads, user_code)
    programs = []
    for program, row in rows.items():
        part = known(program.slot, row.subject).get(slots[program.slot])
        own = replace(row, cache_folder=folder / f"{program.slot}.{program.workload}", environment=environment)
        usable = part if part is not None and part.usable else None
        programs.append(MixProgram(program.slot, own, usable))
    memory = with_process([_memory(plans, slot) for slot in slots])
    obstacles = (
        Precheck(row.never_runs.status, f"{program.slot}: {row.never_runs}")
        for program, row in rows.items()
        if row.never_runs is not None
    )
    precheck = next(obstacles, None) or short_of_memory(memory, device)  # memory is counted for the whole mix
    return MixPlan(mix, role, tuple(programs), config_id, precheck, memory, folder, environment)


def _memory(plans: Mapping[Program, Plan], slot: str) -> Need:
    """Return the memory of one slot in a worker; all programs of the slot are loaded and share its weights."""
    own = [plan for program, plan in plans.items() if program.slot == slot]
    component, row = own[0].component, own[0].rows[0]
    preset = component.preset(row.subject.preset)
    subjects = [plan.rows[0].subject for plan in own]
    workloads = [component.workload(preset.config, one.workload, one.batch) for one in subjects]
    backends = [resolve_backend(step.backend) for step in row.steps]
    return programs_memory(preset, workloads, backends, row.variant.dtype, row.subject.device)


def chosen_mixes(
    made: Programs, asked: Sequence[RequestedMix]
) -> tuple[list[tuple[Role, tuple[SlotChoice, ...]]], list[str]]:
    """Return the role and slots of each requested mix, and notes about mixes that are left out.

    `best` and `best-full` are left out if the records do not tell what is best. Raises BakeoffError if no mix remains.
    """
    chosen: list[tuple[Role, tuple[SlotChoice, ...]]] = []
    notes: list[str] = []
    for mix in asked:
        if mix.role not in ("best", "best-full"):
            chosen.append((mix.role, filled(mix.slots, made.loop)))
            continue
        slots, missing = _best(made, quantised=mix.role == "best")
        if missing:
            notes.append(f"{mix.role}: {no_records(made, missing)}")
        else:
            chosen.append((mix.role, tuple(slots)))
    if not chosen:
        raise BakeoffError(notes[0], "no-record")
    return chosen, notes


def no_records(made: Programs, missing: Mapping[str, Sequence[str]], of: str = "") -> str:
    """Return that slots lack records (`of` some kind), and the sweeps that would make them, of these programs each."""
    text = f"no ok records of this machine and code{of} for {', '.join(missing)}"
    parts = [
        part
        for program, plan in made.eager.items()
        if program.slot in missing
        for part in made.known(program.slot, plan.rows[0].subject).values()
    ]
    if any(part.record.status == "unstable" for part in parts):
        text += " (unstable ones do not count; a mix by name needs none)"
    whole = all(slot.name in missing for slot in made.loop.slots if slot.users)
    sweeps = dict.fromkeys(
        f"sweep {made.loop.typed}" if slot.users and whole else sweep_of(made, slot, missing[slot.name])
        for slot in made.loop.slots
        if slot.name in missing
    )
    return f"{text}; run: {'; '.join(f'bakeoff {sweep}' for sweep in sweeps)}"


def _best(made: Programs, quantised: bool) -> tuple[list[SlotChoice], dict[str, list[str]]]:
    """Return the best variant of each slot by the records, and the programs of slots that lack records."""
    slots, missing = [], {}
    for slot in made.loop.slots:
        own = made.of(slot.name)
        calls = {program: count for (of, program), count in made.loop.calls().items() if of == slot.name}
        programs = {name: made.known(slot.name, plan.rows[0].subject) for name, plan in own.items()}
        found = best_choice(programs, calls, quantised)
        if found is None:
            missing[slot.name] = [name for name in own if calls.get(name)]
        else:
            slots.append(found[0])
    return slots, missing


def sweep_of(made: Programs, slot: Slot, programs: Sequence[str] = ()) -> str:
    """Return the command of the sweep whose records would tell how to fill a slot: of these programs, or of all."""
    own = made.of(slot.name)
    plan = next(iter(own.values()))
    request, named = plan.request, plan.component.name if slot.users else plan.request.component
    given = {
        "--batch": str(request.batches[0]) if request.batches[0] > 1 else "",
        "--device": request.device,
        "--threads": str(request.threads or ""),
        "--seed": str(request.weight_seed or ""),
        "--checkpoint": request.checkpoint,
    }
    more = "".join(f" {option} {value}" for option, value in given.items() if value)
    return f"sweep {named} --preset {request.presets[0]} --workload {','.join(programs or own)}{more}"


USUAL_FPS = 24.0
"""Frames a second by which a sustained run is judged if neither the request nor the pipeline states a rate."""
_GUESS_EAGER_S = 5.0
_GUESS_UNKNOWN_S = 1.0
_GUESS_CALL_S = 0.02
_GUESS_FLOPS_PER_S: Mapping[str, float] = {"cpu": 3e10, "cuda": 1e13}
"""Of a call in eager, by the device; never measured, and of small or busy machines rather than of large ones."""
_ROLLOUT_RUNS = 12
"""Runs of all units that a rollout takes: two of the mix, and of eager seven in its dtypes and one in fp64 (three)."""


def estimate(plan: PipelinePlan, runs: Path) -> dict[str, Any]:
    """Return what `--dry-run --json` prints: each mix with its programs, memory and time."""
    free = plan.request.horizon_db is not None
    known = () if free else load_all(*paths.with_published(runs)).pipelines
    earlier = {entry.record.config_id: entry for entry in known if entry.record.measurement.units}
    mixes = [_cost(plan, mix, earlier.get(mix.config_id)) for mix in plan.mixes]
    return {
        "mixes": mixes,
        "units": plan.request.units,
        "minutes": plan.request.minutes if plan.request.sustained is not None else None,
        "filling": plan.loop.filling,
        "notes": plan.notes,
        "reference_bytes": plan.reference_bytes if free else None,
        "seconds": sum(mix["seconds"] for mix in mixes),
    }


def _cost(plan: PipelinePlan, mix: MixPlan, earlier: StoredPipeline | None) -> dict[str, Any]:
    """Return the estimate of one mix as JSON values.

    `predicted_unit_ms` is the sum of calls times medians over a steady unit, None if a program lacks a record.
    `seconds_from` is the id of the record that the time is taken from, `parts` or `guess`.
    """
    calls = plan.loop.calls()
    medians = [(one.part, calls.get((one.slot, one.row.variant.workload), 0)) for one in mix.programs]
    predicted = None
    if all(part is not None for part, count in medians if count):
        predicted = sum(count * part.median_ns / 1e6 for part, count in medians if part is not None)
    if mix.precheck is not None:
        seconds, source = 0.0, ""
    elif earlier is not None and plan.request.sustained is None:
        seconds, source = earlier.record.wall_s, earlier.id
    else:
        unit_s = sum(count * _call_s(one) for one, (_, count) in zip(mix.programs, medians, strict=True))
        units_s = min(plan.request.minutes * 60, (plan.loop.filling + plan.request.units) * unit_s)
        if plan.request.horizon_db is not None:
            units_s = _ROLLOUT_RUNS * plan.request.units * unit_s
        if plan.request.sustained is not None:
            units_s = plan.request.minutes * 60
        seconds = sum(guess_build_s(one.row) or _GUESS_EAGER_S for one in mix.programs) + units_s
        source = "parts" if predicted is not None else GUESS
    return {
        "mix": str(mix.mix),
        "role": mix.role,
        "precheck": str(mix.precheck or ""),
        "programs": [
            {
                "program": one.name,
                "variant": str(one.row.variant),
                "calls": count,
                "part": part.id if part is not None else "",
                "part_variant": str(part.record.variant) if part is not None else "",
                "median_ms": part.median_ns / 1e6 if part is not None else None,
                "memory_bytes": (part.peak_bytes if part is not None else 0) or one.row.memory.device,
            }
            for one, (part, count) in zip(mix.programs, medians, strict=True)
        ],
        "predicted_unit_ms": predicted,
        "memory_bytes": mix.memory.device,
        "seconds": seconds,
        "seconds_from": source,
    }


def _call_s(one: MixProgram) -> float:
    """Return the seconds of a program's call: the median of its record, else a guess from its work."""
    if one.part is not None:
        return one.part.median_ns / 1e9
    subject = one.row.subject
    component = resolve_component(subject.component)
    config = component.preset(subject.preset).config
    work = component.workload(config, subject.workload, subject.batch).work
    return _GUESS_CALL_S + work.flops / _GUESS_FLOPS_PER_S[subject.device] if work is not None else _GUESS_UNKNOWN_S
