"""A mix with every program that its worker builds, in one folder of caches and one environment."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bakeoff.backends import resolve_backend
from bakeoff.machine import build_cache, host
from bakeoff.machine.files import digest
from bakeoff.machine.identity import this_machine
from bakeoff.mix import Mix, SlotVariant
from bakeoff.models.component import Component
from bakeoff.models.pipelines.pipeline import Loop, Pipeline, Program
from bakeoff.models.types import Device
from bakeoff.pipeline.parts import Part, Parts, Way
from bakeoff.pipeline.request import PipelineRequest, Role
from bakeoff.plan.memory import Need, programs_memory, with_process
from bakeoff.plan.plan import Plan, make_plan
from bakeoff.plan.request import Request
from bakeoff.plan.rows import Precheck, Row, short_of_memory
from bakeoff.process.environment import own_home, user_code_path, worker_environment
from bakeoff.variant import OptionValue


@dataclass(frozen=True, slots=True)
class Making:
    """A request whose names are resolved, and the records that choose and predict."""

    request: PipelineRequest
    pipeline: Pipeline
    preset: str
    device: Device
    options: Any
    loop: Loop
    components: Mapping[str, Component]
    checkpoints: Mapping[str, str]
    parts: Parts

    def slot_plan(self, program: Program, slot: SlotVariant) -> Plan:
        """The plan with the one row of a program in one way."""
        backends = "+".join(str(use) if use.options else f"{use.name}[]" for use in slot.backends)
        component = next(entry.component for entry in self.loop.slots if entry.name == program.slot)
        return make_plan(
            Request(
                component=component,
                presets=(self.loop.presets[program.slot],),
                workloads=(program.workload,),
                backends=(backends,),
                dtypes=(slot.dtype,),
                device=self.device,
                batches=(program.batch,),
                weight_seed=self.request.weight_seed,
                input_seed=self.request.input_seed,
                threads=self.request.threads,
                checkpoint=self.checkpoints.get(program.slot, ""),
                policy=self.request.policy,
                final_s=0.0,
                ceilings=False,
            )
        )


@dataclass(frozen=True, slots=True)
class MixProgram:
    """One program of a mix, planned as a sweep's row whose caches lie in the mix's folder."""

    slot: str
    program: str
    row: Row
    part: Part | None
    """The record that predicts its time; None where there is none of the same machine and code."""

    @property
    def name(self) -> str:
        return f"{self.slot}.{self.program}"


@dataclass(frozen=True, slots=True)
class MixPlan:
    """One mix: what a run makes one record of."""

    mix: Mix
    role: Role
    programs: tuple[MixProgram, ...]
    config_id: str
    precheck: Precheck | None
    """None: it can run. `oom` was decided by the memory that was free when the plan was made."""
    memory: Need
    build_deadline_s: float
    cache_folder: Path
    environment: Mapping[str, str]

    @property
    def label(self) -> str:
        """What messages call it."""
        return self.role or self.mix.variants

    @property
    def slug(self) -> str:
        """Identifies the mix in names of files."""
        return f"{self.mix.slug}-{digest(str(self.mix))[:6]}"

    @property
    def never_runs(self) -> Precheck | None:
        """Why it cannot run on this machine at any time."""
        return self.precheck if self.precheck is not None and self.precheck.status != "oom" else None

    def obstacle(self) -> Precheck | None:
        """Why it cannot run now."""
        return self.never_runs or short_of_memory(self.memory, self.mix.device)


def make_mix(
    making: Making,
    role: Role,
    plans: Mapping[Program, Plan],
    options: tuple[tuple[str, OptionValue], ...],
    decided_by: object,
    user_code: bool,
) -> MixPlan:
    rows = {program: plan.rows[0] for program, plan in plans.items()}
    device = next(iter(rows.values())).subject.device
    slots = []
    for slot in making.loop.slots:
        variant = next(row.variant for program, row in rows.items() if program.slot == slot.name)
        slots.append(SlotVariant(slot.name, variant.backends, variant.dtype))
    mix = Mix(making.pipeline.name, making.preset, options, tuple(slots), device)
    batches = [(program.slot, program.workload, program.batch) for program in rows]
    config_id = digest([str(mix), batches, decided_by])
    machine = this_machine(device).machine_class
    folder = build_cache.usual_folder([str(mix), config_id, host.read_versions(), machine])
    environment = _environment(rows.values(), folder, user_code)
    memory = _memory(making, rows)
    return MixPlan(
        mix=mix,
        role=role,
        programs=tuple(_program(making, program, row, folder, environment) for program, row in rows.items()),
        config_id=config_id,
        precheck=_precheck(rows) or short_of_memory(memory, device),
        memory=memory,
        build_deadline_s=max(row.build_deadline_s for row in rows.values()),
        cache_folder=folder,
        environment=environment,
    )


def _program(making: Making, program: Program, row: Row, folder: Path, environment: Mapping[str, str]) -> MixProgram:
    """A program with its compiler's caches in the mix's folder: one environment holds for all that a worker builds."""
    parts = making.parts.of(making.components[program.slot], row.subject)
    part = parts.get(Way(row.variant.backends, row.variant.dtype, row.quantisation))
    own = replace(row, cache_folder=folder / f"{program.slot}.{program.workload}", environment=environment)
    return MixProgram(program.slot, program.workload, own, part if part is not None and part.usable else None)


def _environment(rows: Iterable[Row], folder: Path, user_code: bool) -> Mapping[str, str]:
    """A worker's environment, with its home and all its compilers' caches in `folder`."""
    extra = own_home(folder) | (user_code_path() if user_code else {})
    threads = 1
    for row in rows:
        threads = row.subject.threads
        for step in row.steps:
            extra.update(resolve_backend(step.backend).footprint.environment(folder))
    return worker_environment(threads, extra)


def _precheck(rows: Mapping[Program, Row]) -> Precheck | None:
    """The first slot's obstacle that no waiting removes; memory is counted for the whole mix."""
    for program, row in rows.items():
        found = row.never_runs
        if found is not None:
            return Precheck(found.status, f"{program.slot}: {found}")
    return None


def _memory(making: Making, rows: Mapping[Program, Row]) -> Need:
    """Of the worker with all programs in place; the programs of a slot share its weights."""
    needs = []
    for slot, component in making.components.items():
        own = {program: row for program, row in rows.items() if program.slot == slot}
        preset = component.preset(making.loop.presets[slot])
        workloads = [component.workload(preset.config, program.workload, program.batch) for program in own]
        row = next(iter(own.values()))
        backends = [resolve_backend(step.backend) for step in row.steps]
        needs.append(programs_memory(preset, workloads, backends, row.variant.dtype, row.subject.device))
    return with_process(needs)
