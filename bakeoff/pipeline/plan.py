"""Makes the plan of a pipeline's run: the loop, its mixes with all programs, and their estimated costs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bakeoff.backends import backend_names, resolve_backend
from bakeoff.export.warmup import WarmUp
from bakeoff.machine import build_cache, host, paths
from bakeoff.machine.files import digest
from bakeoff.machine.identity import this_machine
from bakeoff.mix import Mix, SlotChoice
from bakeoff.models.errors import BakeoffError
from bakeoff.models.pipelines import pipeline_names
from bakeoff.models.pipelines.pipeline import Key, Loop, Slot
from bakeoff.models.pipelines.schedule import (
    NAMES,
    ONE_GRAPH,
    SEQUENTIAL,
    Schedule,
    parse_schedule,
    splits,
    threads_of,
    why_not,
)
from bakeoff.models.types import Device
from bakeoff.models.words import counted
from bakeoff.pipeline.describe import described_loop, with_models
from bakeoff.pipeline.forecast import forecasts, promised
from bakeoff.pipeline.parts import KnownParts, known_parts, usable
from bakeoff.pipeline.request import (
    STARTS,
    PipelineRequest,
    RequestedMix,
    Role,
    agreed,
    check_counts,
    check_mixes,
    checkpoint_files,
    chosen_options,
    filled,
    named_slots,
    requested_mixes,
)
from bakeoff.plan.costs import GUESS, guess_build_s
from bakeoff.plan.memory import Need, programs_memory, with_process
from bakeoff.plan.plan import Plan, make_plan
from bakeoff.plan.request import Request
from bakeoff.plan.rows import Precheck, Row, build_environment, lasting, short_of_memory
from bakeoff.process.jobs import LoopSubject
from bakeoff.record.deadline import started
from bakeoff.record.forecast import shown_spread
from bakeoff.record.pipeline import Forecast, Shipped, Started
from bakeoff.record.schema import BackendSource, libraries
from bakeoff.record.source import backend_source, component_hash, instrument_hash, pipeline_hash
from bakeoff.record.store import Stored, StoredPipeline, load_all, of_one_host
from bakeoff.sweeps.progress import Progress


@dataclass(frozen=True, slots=True)
class MixPlan:
    """One mix, of which a run makes one record. Its programs are built in one environment."""

    mix: Mix
    role: Role
    rows: Mapping[Key, Row]
    """Each program, planned like a row of a sweep, with its caches in the mix's folder."""
    parts: Mapping[Key, Stored]
    """The record that promises a program's time; programs without one of the same machine and code are left out."""
    forecast: Forecast | None
    """What these records promise; None if they lack a program that a steady unit calls."""
    config_id: str
    precheck: Precheck | None
    """Why the mix cannot run; None if it can. `oom` is judged by the memory that was free when the plan was made."""
    memory: Need
    cache_folder: Path
    environment: Mapping[str, str]
    threads: Mapping[Key, int] = field(default_factory=dict)
    """Those of each program under a schedule with two lanes; empty: all programs have all of them."""

    @property
    def label(self) -> str:
        """Name of the mix in messages."""
        return f"{self.role or self.mix.variants} {self.mix.schedule}".rstrip()

    @property
    def slug(self) -> str:
        """Text that identifies the mix in file names."""
        return f"{self.mix.slug}-{digest(str(self.mix))[:6]}"

    @property
    def keeps_caches(self) -> bool:
        """Whether a build leaves files that make the next one faster."""
        return any(resolve_backend(step.backend).caches for row in self.rows.values() for step in row.steps)

    @property
    def never_runs(self) -> Precheck | None:
        """Why the mix can never run on this machine; None if it may, since a shortage of memory may pass."""
        return lasting(self.precheck)

    def obstacle(self) -> Precheck | None:
        """Return why the mix cannot run now; None if it can."""
        return self.never_runs or short_of_memory(self.memory, self.mix.device)


@dataclass(frozen=True, slots=True)
class ExportedMix:
    """The artifacts of a mix; empty if it has none."""

    folders: Mapping[str, str] = field(default_factory=dict)
    """Folder of the artifact with each `slot.program`."""
    shipped: Shipped | None = None
    warmup: WarmUp | None = None
    problem: str = ""
    """Why there are no artifacts, or no calls that warm them up."""


@dataclass(frozen=True, slots=True)
class PipelinePlan:
    """A pipeline's loop with all programs, the records that can fill its slots, and the mixes that a run needs."""

    request: PipelineRequest
    subject: LoopSubject
    subject_id: str
    """Hash of everything that decides what is computed."""
    eager: Mapping[Key, Plan]
    """For each program, the plan of a sweep of eager fp32 alone."""
    known: KnownParts
    spread: float
    """How far runs lie from their promises by records on this machine, as a share."""
    anchored_spread: float
    """The same of mixes whose units were timed first."""
    notes: tuple[str, ...] = ()
    """Notes to print before the run, such as mixes that were left out, and why."""
    slots: Mapping[str, Plan] = field(default_factory=dict)
    """For each slot, the plan of a sweep with the rows of all mixes, by which the slot's references are made."""
    mixes: tuple[MixPlan, ...] = ()
    artifacts: Mapping[str, ExportedMix] = field(default_factory=dict)
    """Of a cold run: the artifacts by the string of a mix."""
    started: Mapping[str, Started] = field(default_factory=dict)
    """What the newest cold starts of a mix measured on this host with this code, by its slots."""
    key: str = ""
    """Hash of what must be the same for `--resume`: mixes, policy, units, profile, host, versions and commit."""

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

    def of(self, slot: str) -> Mapping[str, Plan]:
        """Return the plans of a slot's programs, by program."""
        return {key.program: plan for key, plan in self.eager.items() if key.slot == slot}

    def parts_of(self, slot: str) -> Mapping[str, Mapping[SlotChoice, Stored]]:
        """Return the newest record of each way of filling a slot, by program."""
        return {name: self.known(slot, plan.rows[0].subject) for name, plan in self.of(slot).items()}


def make_programs(
    request: PipelineRequest, asked: Sequence[RequestedMix], runs: Path, progress: Progress
) -> PipelinePlan:
    """Return the plan of a request without its mixes. Raises BakeoffError for a name, number or combination that does
    not exist."""
    check_counts(request)
    whole = next((mix for mix in asked if isinstance(mix, Mix)), None)
    device = host.usable_device(agreed("--device", request.device, whole.device if whole else ""))
    preset = agreed("preset", request.preset, whole.preset if whole else "")
    options = chosen_options(request, whole)
    loop = described_loop(request.pipeline, preset, options, device, request.threads, request.weight_seed, progress)
    loop = with_models(loop, device, request.threads, progress)
    check_mixes(asked, loop)
    if request.horizon_db is not None and request.units > (loop.max_units or request.units):
        text = f"--units {request.units}: a session of {loop.name} has {loop.max_units}; give at most that"
        raise BakeoffError(text, "bad-option")
    if request.horizon_db is not None and loop.draws:
        text = f"{loop.name}: its units draw random numbers by themselves, which are others in the reference's fp64"
        raise BakeoffError(f"{text}, so there is nothing to compare with; draw them in given()", "not-comparable")
    if not loop.programs:
        raise BakeoffError(f"{loop.name}:{loop.preset} calls no program, so there is nothing to compare", "bad-option")
    files, eager = checkpoint_files(request, loop), dict[Key, Plan]()
    for key in loop.programs:
        slot = loop.slot(key.slot)
        eager[key] = make_plan(
            Request(
                component=slot.component,
                presets=(slot.preset,),
                workloads=(key.program,),
                backends=("eager[]",),
                dtypes=("fp32",),
                device=device,
                batches=(slot.batch,),
                weight_seed=request.weight_seed,
                input_seed=request.input_seed,
                threads=request.threads,
                checkpoint=files.get(slot.name, ""),
                policy=request.policy,
                final_s=0.0,
                ceilings=False,
            )
        )
    of_slot = {key.slot: plan for key, plan in eager.items()}
    subjects = {slot: plan.rows[0].subject for slot, plan in of_slot.items()}
    with_files = {slot: subject for slot, subject in subjects.items() if subject.checkpoint}
    first, stored = next(iter(subjects.values())), load_all(runs)
    ran = of_one_host(stored.pipelines, this_machine(first.device))
    computed = [
        loop.name,
        loop.preset,
        list(loop.changed.items()),
        {slot.name: of_slot[slot.name].component.preset(slot.preset).config for slot in loop.slots},
        request.weight_seed,
        request.input_seed,
        {slot: subject.checkpoint_hash for slot, subject in with_files.items()},
    ]
    return PipelinePlan(
        request=request,
        subject=LoopSubject(
            loop=loop,
            weight_seed=request.weight_seed,
            input_seed=request.input_seed,
            checkpoints={slot: subject.checkpoint for slot, subject in with_files.items()},
            device=first.device,
            threads=first.threads,
        ),
        subject_id=digest(computed),
        eager=eager,
        known=known_parts(stored.current),
        spread=shown_spread(ran),
        anchored_spread=shown_spread(ran, anchored=True),
        notes=loop.notes,
        started=_started(stored.sustained, loop, digest(computed), first.device, first.threads),
    )


def _started(
    stored: Sequence[StoredPipeline], loop: Loop, subject_id: str, device: Device, threads: int
) -> dict[str, Started]:
    """Return `PipelinePlan.started` of these records, the oldest first."""

    def is_current(backend: BackendSource) -> bool:
        return backend.name in backend_names() and backend_source(backend.name) == backend

    found = dict[str, Started]()
    for entry in of_one_host(stored, this_machine(device)):
        record = entry.record
        same = (record.subject_id, record.mix.device, record.threads, record.status)
        if same != (subject_id, device, threads, "ok") or record.libraries != libraries(host.read_versions()):
            continue
        sources = [one.source for one in record.measurement.programs if one.source is not None]
        if (
            (record.loop_hash, record.instrument) == (pipeline_hash(loop.reference), instrument_hash())
            and {one.component for one in sources} <= {component_hash(slot.component) for slot in loop.slots}
            and all(is_current(each) for one in sources for each in one.backends)
            and (figures := started(entry.id, record)) is not None
        ):
            found[record.mix.variants] = figures
    return found


def make_pipeline_plan(request: PipelineRequest, runs: Path, progress: Progress) -> PipelinePlan:
    """Return the plan of a request. Raises BakeoffError for a name, number or combination that does not exist."""
    asked = requested_mixes(request)
    plan = make_programs(request, asked, runs, progress)
    chosen, notes = chosen_mixes(plan, asked)
    slots: dict[str, list[Plan]] = {}
    mixes: dict[str, MixPlan] = {}
    schedules, refused = _schedules(plan)
    for role, choices, own_schedule in chosen:
        by_slot = {choice.slot: choice for choice in choices}
        plans = {key: _filled_by(own, by_slot[key.slot]) for key, own in plan.eager.items()}
        for key, own in plans.items():
            slots.setdefault(key.slot, []).append(own)
        if own_schedule and request.schedules:
            raise BakeoffError(f"--schedule: the mix has its own, {own_schedule}; leave one out", "bad-option")
        for schedule in schedules or (own_schedule,):
            mix = _mix(plan, role, plans, schedule)
            mixes.setdefault(str(mix.mix), mix)
    missing: dict[str, list[str]] = {}
    for key in plan.loop.calls():
        if any(key not in mix.parts for mix in mixes.values()):
            missing.setdefault(key.slot, []).append(key.program)
    if missing and not notes and request.horizon_db is None and not schedules:
        notes = [f"no promise of a unit's time: {no_records(plan, missing)}"]
    facts = [request.policy, request.units, request.profile, request.horizon_db]
    facts += [*schedules, host.read_host(), host.read_versions(), *paths.commit()]
    if (sustained := request.sustained) is not None:
        request = replace(request, sustained=replace(sustained, fps=sustained.fps or plan.loop.rate or USUAL_FPS))
        facts += [request.sustained, request.minutes, request.cold]
    return replace(
        plan,
        request=request,
        notes=(*plan.notes, *notes, *refused),
        slots={
            slot: replace(plans[0], rows=tuple(row for own in plans for row in own.rows))
            for slot, plans in slots.items()
        },
        mixes=tuple(mixes.values()),
        key=digest([[mix.config_id for mix in mixes.values()], *facts]),
    )


def _schedules(plan: PipelinePlan) -> tuple[list[str], list[str]]:
    """Return the schedules under each of which every mix runs, "" for the sequential one, and why `all` has no others.

    Raises BakeoffError for a schedule that does not exist, or one by name that the loop forbids.
    """
    asked, threads = plan.request.schedules, plan.subject.threads
    found, refused = list[str](), list[str]()
    for name in NAMES if "all" in asked else asked:
        lanes = splits(threads) if plan.subject.device == "cpu" else ((threads, threads),)
        reason = why_not(plan.loop, name, plan.subject.device)
        if name == SEQUENTIAL:
            found.append("")
        elif name == ONE_GRAPH and not reason:
            found.append(name)
        elif not reason and lanes:
            found += [str(Schedule(name, each)) for each in lanes]
        else:
            text = f"--schedule {name}: {reason or 'each lane needs a thread, and there is one'}"
            if "all" not in asked:
                raise BakeoffError(text, "bad-option")
            refused.append(text)
    return found, refused


def _filled_by(plan: Plan, choice: SlotChoice) -> Plan:
    """Return the plan with its one row built by the backends and dtype that fill the slot."""
    request = in_way(plan, choice)
    return plan if request == plan.request else make_plan(request)


def in_way(plan: Plan, way: SlotChoice) -> Request:
    """Return the request of a program's plan with the backends and dtype that fill its slot."""
    backends = "+".join(str(use) if use.options else f"{use.name}[]" for use in way.backends)
    return replace(plan.request, backends=(backends,), dtypes=(way.dtype,))


def _mix(plan: PipelinePlan, role: Role, plans: Mapping[Key, Plan], schedule: str = "") -> MixPlan:
    loop, device, threads = plan.loop, plan.subject.device, plan.subject.threads
    rows = {key: own.rows[0] for key, own in plans.items()}
    slots = {key.slot: SlotChoice(key.slot, row.variant.backends, row.variant.dtype) for key, row in rows.items()}
    filled_by = tuple(slots[one.name] for one in loop.slots)
    mix = Mix(loop.name, loop.preset, tuple(loop.changed.items()), filled_by, device, schedule)
    batches = [(*key, row.subject.batch) for key, row in rows.items()]
    config_id = digest([str(mix), batches, plan.subject_id, threads])
    machine = this_machine(device).machine_class
    folder = build_cache.usual_folder([str(mix), config_id, host.read_versions(), machine])
    backends = [resolve_backend(step.backend) for row in rows.values() for step in row.steps]
    user_code = plan.request.pipeline not in pipeline_names() or any(own.request.user_code for own in plans.values())
    environment = build_environment(backends, folder, threads, user_code)
    parts = {key: plan.known(key.slot, row.subject).get(slots[key.slot]) for key, row in rows.items()}
    memory = with_process([_memory(plans, slot) for slot in slots])
    obstacles = (
        Precheck(row.never_runs.status, f"{key.slot}: {row.never_runs}")
        for key, row in rows.items()
        if row.never_runs is not None
    )
    return MixPlan(
        mix=mix,
        role=role,
        rows={key: replace(row, cache_folder=folder / str(key), environment=environment) for key, row in rows.items()},
        parts={key: part for key, part in parts.items() if part is not None and usable(part.record) and not schedule},
        forecast=promised(plan, mix.slots) if not schedule else None,
        config_id=config_id,
        precheck=next(obstacles, None) or short_of_memory(memory, device),  # memory is counted for the whole mix
        memory=memory,
        cache_folder=folder,
        environment=environment,
        threads=_lanes(plan, schedule),
    )


def _lanes(plan: PipelinePlan, text: str) -> Mapping[Key, int]:
    """Return the threads of each program under a schedule; none for "". Raises BakeoffError if it cannot run so."""
    if not text:
        return {}
    schedule, request = parse_schedule(text), plan.request
    if reason := why_not(plan.loop, schedule.name, plan.subject.device):
        raise BakeoffError(f"the schedule {text}: {reason}", "bad-option")
    if request.profile is not None or request.horizon_db is not None or request.cold:
        raise BakeoffError(f"the schedule {text}: only pipeline and deadline run it; leave it out", "bad-option")
    if plan.subject.device == "cpu" and sum(schedule.threads) > plan.subject.threads:
        raise BakeoffError(f"the schedule {text}: this run has {counted(plan.subject.threads, 'thread')}", "bad-option")
    return threads_of(plan.loop, schedule, plan.subject.threads) if schedule.threads else {}


def _memory(plans: Mapping[Key, Plan], slot: str) -> Need:
    """Return the memory of one slot in a worker; all programs of the slot are loaded and share its weights."""
    own = [plan for key, plan in plans.items() if key.slot == slot]
    component, row = own[0].component, own[0].rows[0]
    preset = component.preset(row.subject.preset)
    subjects = [plan.rows[0].subject for plan in own]
    workloads = [component.workload(preset.config, one.workload, one.batch) for one in subjects]
    backends = [resolve_backend(step.backend) for step in row.steps]
    return programs_memory(preset, workloads, backends, row.variant.dtype, row.subject.device)


def chosen_mixes(
    plan: PipelinePlan, asked: Sequence[RequestedMix]
) -> tuple[list[tuple[Role, tuple[SlotChoice, ...], str]], list[str]]:
    """Return role, slots and schedule of each requested mix, and notes about mixes that are left out.

    `best` and `best-full` are left out if the records do not tell what is best. Raises BakeoffError if no mix remains.
    """
    chosen: list[tuple[Role, tuple[SlotChoice, ...], str]] = []
    notes: list[str] = []
    for mix in asked:
        if not isinstance(mix, str) or mix in ("", "eager"):
            schedule = mix.schedule if isinstance(mix, Mix) else ""
            chosen.append((mix if isinstance(mix, str) else "", filled(named_slots(mix), plan.loop), schedule))
            continue
        slots, missing = _best(plan, quantised=mix == "best")
        if missing:
            notes.append(f"{mix}: {no_records(plan, missing)}")
        else:
            chosen.append((mix, slots, ""))
    if not chosen:
        raise BakeoffError(notes[0], "no-record")
    return chosen, notes


def no_records(plan: PipelinePlan, missing: Mapping[str, Sequence[str]], of: str = "") -> str:
    """Return that slots lack records (`of` some kind), and the sweeps that would make them, of these programs each."""
    text = f"no ok records of this machine and code{of} for {', '.join(missing)}"
    parts = [part for slot in missing for found in plan.parts_of(slot).values() for part in found.values()]
    if any(part.record.status == "unstable" for part in parts):
        text += " (unstable ones do not count)"
    whole = all(slot.name in missing for slot in plan.loop.slots if slot.users)
    sweeps = dict.fromkeys(
        f"sweep {plan.loop.typed}" if slot.users and whole else sweep_of(plan, slot, missing[slot.name])
        for slot in plan.loop.slots
        if slot.name in missing
    )
    return f"{text}; run: {'; '.join(f'bakeoff {sweep}' for sweep in sweeps)}"


def _best(plan: PipelinePlan, quantised: bool) -> tuple[tuple[SlotChoice, ...], dict[str, list[str]]]:
    """Return the best variant of each slot by the records, and the programs of slots that lack records."""
    slots, missing = [], {}
    for slot in plan.loop.slots:
        found = forecasts(plan, slot.name, None if quantised else ())
        if found:
            slots.append(min(found, key=lambda way: (found[way].ms, str(way))))
        else:
            missing[slot.name] = [name for name in plan.of(slot.name) if plan.loop.calls().get(Key(slot.name, name))]
    return tuple(slots), missing


def sweep_of(plan: PipelinePlan, slot: Slot, programs: Sequence[str] = ()) -> str:
    """Return the command of the sweep whose records would tell how to fill a slot: of these programs, or of all."""
    own = plan.of(slot.name)
    first = next(iter(own.values()))
    request, named = first.request, first.component.name if slot.users else first.request.component
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
_GUESS_EAGER_S, _GUESS_CALL_S = 5.0, 1.0
"""Seconds of a build by eager, and of a call in a mix that records do not promise."""
_ROLLOUT_RUNS = 12
"""Runs of all units that a rollout takes: two of the mix, and of eager seven in its dtypes and one in fp64 (three)."""


def estimate(plan: PipelinePlan, runs: Path) -> dict[str, Any]:
    """Return what `--dry-run --json` prints: each mix with its calls, memory and time."""
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

    `promised_ms` is what records promise of a steady unit, None if a program lacks a record. `seconds_from` is the id
    of the record that the time is taken from, `parts` or `guess`.
    """
    request, calls, promise = plan.request, plan.loop.calls(), mix.forecast
    unit_s = promise.ms / 1000 if promise is not None else _GUESS_CALL_S * sum(calls.values())
    if mix.precheck is not None:
        seconds, source = 0.0, ""
    elif earlier is not None and request.sustained is None:
        seconds, source = earlier.record.wall_s, earlier.id
    else:
        units_s = min(request.minutes * 60, (plan.loop.filling + request.units) * unit_s)
        if request.horizon_db is not None:
            units_s = _ROLLOUT_RUNS * request.units * unit_s
        if request.sustained is not None:
            units_s = request.minutes * 60
        builds_s = sum(guess_build_s(row) or _GUESS_EAGER_S for row in mix.rows.values())
        seconds = builds_s * (STARTS if request.cold else 1) + units_s
        source = "parts" if promise is not None else GUESS
    return {
        "mix": str(mix.mix),
        "role": mix.role,
        "precheck": str(mix.precheck or ""),
        "calls": {str(key): count for key, count in calls.items()},
        "parts": {str(key): part.id for key, part in mix.parts.items()},
        "promised_ms": promise.ms if promise is not None else None,
        "memory_bytes": mix.memory.device,
        "seconds": seconds,
        "seconds_from": source,
    }
