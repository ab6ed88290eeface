"""The rows of a plan: one attempt at one variant each, with everything that is known before it runs."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bakeoff.backends import may_overlap
from bakeoff.backends.backend import Backend, by_options
from bakeoff.machine import build_cache, host, paths
from bakeoff.machine.files import digest
from bakeoff.machine.identity import this_machine
from bakeoff.machine.known_issues import known_issues
from bakeoff.models.component import Component, Layer, Quantisation, Workload
from bakeoff.models.errors import BakeoffError
from bakeoff.models.types import BASELINE_DTYPES, Dtype
from bakeoff.plan.memory import LARGE_WEIGHTS_BYTES, Need, memory_of, weights_bytes
from bakeoff.plan.request import Request
from bakeoff.plan.suites import Step
from bakeoff.process.environment import own_home, user_code_path, worker_environment
from bakeoff.process.jobs import BackendStep, Subject
from bakeoff.record.schema import Status
from bakeoff.record.source import component_hash
from bakeoff.variant import Variant, use_of

Key = tuple[str, int, int]
"""Variant, batch, and number of the process."""


@dataclass(frozen=True, slots=True)
class Precheck:
    """A status that is known without running the row, and its reason."""

    status: Status
    reason: str

    def __str__(self) -> str:
        return f"{self.status}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Row:
    """One attempt at one variant, of which a sweep makes one record."""

    variant: Variant
    subject: Subject
    steps: tuple[BackendStep, ...]
    config_id: str
    precheck: Precheck | None
    """Why the row cannot run; None if it can. `oom` is judged by the memory that was free when the plan was made."""
    memory: Need
    build_deadline_s: float
    caches: bool
    baseline: bool
    """True for eager without options, in any dtype: it builds nothing and changes nothing."""
    quantisation: Quantisation
    cache_folder: Path
    environment: Mapping[str, str]
    """Environment of the row's worker: that of this process, with variables that must be set before torch is imported.
    """
    checkpoint: str
    """Name and content hash of the weights file; "" for random weights."""
    known_issues: tuple[str, ...]
    """What is known of library versions that mislead rows of this dtype and device."""
    overlaps: bool = False
    """Whether the row's build may run at the same time as other rows' builds."""
    searches: bool = False
    """Whether the row's build times many kernels for each operator, which takes minutes."""
    target: str = ""
    """Architecture of another GPU for which the row is built, and so not run; "": it runs here."""
    label: str = ""
    """The variant, with its batch and process if there are several; set by `make_plan`."""
    process: int = 1
    """Number of this row's fresh process, from 1."""

    @property
    def key(self) -> Key:
        """Key of the row, and of its record, within a sweep."""
        return str(self.variant), self.subject.batch, self.process

    @property
    def is_eager_fp32(self) -> bool:
        """Whether the row is the baseline of speed-ups: eager in fp32, or in its own dtypes for a model of mixed
        dtypes."""
        return self.baseline and self.variant.dtype in BASELINE_DTYPES

    @property
    def never_runs(self) -> Precheck | None:
        """Why the row can never run on this machine; None if it may, since a shortage of memory may pass."""
        return lasting(self.precheck)

    def obstacle(self) -> Precheck | None:
        """Return why the row cannot run now; None if it can."""
        return self.never_runs or short_of_memory(self.memory, self.subject.device)

    @property
    def slug(self) -> str:
        """Text that identifies the row in file names."""
        batch = f"-batch{self.subject.batch}" if self.subject.batch > 1 else ""
        process = f"-{self.process}" if self.process > 1 else ""
        return f"{self.variant.slug}-{digest(str(self.variant))[:6]}{batch}{process}"


@dataclass(frozen=True, slots=True)
class Target:
    """Facts that the rows of one workload share."""

    request: Request
    component: Component
    config: Any
    workload: Workload
    subject: Subject


def row_of(target: Target, steps: Sequence[Step], dtype: Dtype) -> Row:
    """Return a variant's row. Raises BakeoffError for backends that cannot be composed."""
    _check_composition(steps)
    request, component, config, subject = target.request, target.component, target.config, target.subject
    uses = tuple(use_of(step.backend, step.options) for step in steps)
    variant = Variant(component.name, subject.preset, target.workload.name, uses, dtype, subject.device)
    seeds = [subject.batch, subject.weight_seed, subject.input_seed, subject.checkpoint_hash, subject.threads]
    config_id = digest([str(variant), config, *seeds])
    preset = component.preset(subject.preset)
    memory = memory_of(preset, target.workload, steps, dtype, subject.device)
    machine, versions = this_machine(subject.device).machine_class, host.read_versions(subject.python)
    folder = build_cache.usual_folder([str(variant), config_id, versions, machine])
    searches = any(by_options(step.backend.searches, step.options) for step in steps)
    slow = searches or weights_bytes(preset, dtype) >= LARGE_WEIGHTS_BYTES
    return Row(
        variant=variant,
        subject=subject,
        steps=tuple(BackendStep(step.reference, dict(use.options)) for step, use in zip(steps, uses, strict=True)),
        config_id=config_id,
        precheck=_precheck(steps, subject.device, dtype, memory, sized=bool(target.workload.axes)),
        memory=memory,
        build_deadline_s=request.policy.large_build_deadline_s if slow else request.policy.build_deadline_s,
        caches=any(step.backend.caches for step in steps),
        baseline=all(step.backend.baseline and not use.options for step, use in zip(steps, uses, strict=True)),
        quantisation=next(filter(None, (by_options(step.backend.quantises, step.options) for step in steps)), ""),
        cache_folder=folder,
        environment=build_environment(
            [step.backend for step in steps], folder, target.subject.threads, target.request.user_code
        ),
        checkpoint=component.weights or _checkpoint_label(subject),
        known_issues=tuple(known_issues(versions, subject.device, [dtype], _layers(component, target.workload))),
        overlaps=may_overlap([(step.backend, step.options) for step in steps], subject.device, request.policy.beside),
        searches=searches,
        target=by_options(steps[-1].backend.builds_for, steps[-1].options),
    )


def _layers(component: Component, workload: Workload) -> Collection[Layer] | None:
    """Return the kinds of the component's layers; None if it has convolutions outside modules, of an unknown kind."""
    convolves = workload.work is not None and workload.work.convolution_flops > 0
    unknown = convolves and not any(layer.startswith("conv") for layer in component.layers)
    return None if unknown else component.layers


def build_environment(backends: Iterable[Backend], folder: Path, threads: int, user_code: bool) -> dict[str, str]:
    """Return a worker's environment, with its home and its compilers' caches in `folder`."""
    extra = own_home(folder) | (user_code_path() if user_code else {})
    for backend in backends:
        extra.update(backend.environment(folder))
    return worker_environment(threads, extra)


def _checkpoint_label(subject: Subject) -> str:
    """Return the name and content hash of the weights file, "" for random weights. Copies of a file share the hash."""
    return f"{Path(subject.checkpoint).name}, sha256 {subject.checkpoint_hash}" if subject.checkpoint else ""


def _check_composition(steps: Sequence[Step]) -> None:
    """Raise BakeoffError if these backends can never be composed in this order, on any device and for any component."""
    for step in steps[:-1]:
        if step.backend.prepare is None:
            text = f"{step.backend.name} builds engines and prepares nothing; it can only stand last"
            raise BakeoffError(text, "not-composable")
    last = steps[-1].backend
    if last.build is None:
        text = f"{last.name} only prepares a module; add the backend that builds it, as in {last.name}+inductor"
        raise BakeoffError(text, "not-composable")


def _precheck(steps: Sequence[Step], device: str, dtype: str, needed: Need, sized: bool) -> Precheck | None:
    for step in steps:
        missing = step.backend.unavailable(step.options, device)
        if missing is not None:
            return Precheck("unavailable", missing)
    for step in steps:
        reason = step.backend.unsupported(step.options, device, dtype)
        if reason is not None:
            return Precheck("unsupported", reason)
    for step in steps if sized else ():
        reason = by_options(step.backend.unsupported_sizes, step.options)
        if reason is not None:
            return Precheck("unsupported", f"{step.backend.name}: {reason}")
    for step in steps[:-1]:
        reason = step.backend.unsupported_builder(step.options, steps[-1].backend)
        if reason is not None:
            return Precheck("unsupported", reason)
    return short_of_memory(needed, device)


def lasting(precheck: Precheck | None) -> Precheck | None:
    """Return the precheck, or None if it may pass, as a shortage of memory does."""
    return precheck if precheck is not None and precheck.status != "oom" else None


def short_of_memory(needed: Need, device: str) -> Precheck | None:
    """Return the precheck `oom` if less memory than `needed` is free now, else None.

    It is called again just before the row runs, which may be hours later.
    """
    places = [(needed.device, device, "")] + [(needed.host, "cpu", " of the host's memory")] * bool(needed.host)
    for needed_bytes, place, whose in places:
        free = host.available_bytes(place)
        if needed_bytes > free:
            text = f"needs an estimated {needed_bytes >> 20} MiB{whose}, {free >> 20} MiB are free; not started"
            return Precheck("oom", text)
    return None


_VERSION = 9
"""Version of the reference files' format; files of another version are made again."""


def reference_folder(subject: Subject, component: Component) -> Path:
    """Return the folder of a subject's references.

    Its name is a hash of config, workload, seeds or weights, device, threads, torch and the component's source. Raises
    BakeoffError if the component's network module is gone.
    """
    weights = ["file", subject.checkpoint_hash] if subject.checkpoint else ["random", subject.weight_seed]
    key = digest(
        [
            component.name,
            component.preset(subject.preset).config,
            subject.workload,
            subject.batch,
            subject.input_seed,
            weights,
            subject.device,
            subject.threads,
            this_machine(subject.device).machine_class,
            host.read_versions(subject.python).get("torch", ""),
            component_hash(subject.component),
            _VERSION,
        ]
    )
    return paths.cache_folder() / "references" / f"{component.name}-{subject.preset}-{subject.workload}-{key}"
