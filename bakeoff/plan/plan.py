"""What a sweep will run: variants from a request and this host's defaults, and what is known beforehand."""

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, TypeVar

from bakeoff.backends import backend_names, resolve_backend
from bakeoff.backends.backend import Backend, Choice
from bakeoff.machine import build_cache, host, paths
from bakeoff.machine.files import digest
from bakeoff.models import resolve_component
from bakeoff.models.component import Component, Quantisation, Workload
from bakeoff.models.errors import BakeoffError
from bakeoff.models.types import DTYPES, Dtype, parse_device, parse_dtype
from bakeoff.process.jobs import BackendStep, Subject
from bakeoff.record.policy import Policy
from bakeoff.record.schema import Status
from bakeoff.variant import BackendUse, Variant, options_of, parse_use, split_outside_brackets, use_of

T = TypeVar("T")
_DTYPE_BYTES = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2}
_LARGE_WEIGHTS_BYTES = 1 << 30
_JUDGED = 2
"""ArtifactFormat of a judge's files: another one makes them anew."""
FINAL_S = 30.0
"""Seconds of calls in the final of a sweep."""
_PROCESS_BYTES = 1 << 30
"""What torch and a compiler take by themselves."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a user asked for; empty means this host's default."""

    component: str
    presets: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    device: str = ""
    suite: Literal["default", "full"] = "default"
    batch: int = 1
    weight_seed: int = 0
    input_seed: int = 0
    threads: int = 0
    checkpoint: str = ""
    processes: int = 1
    """Fresh processes that each build of a variant is measured in."""
    builds: int = 1
    """Fresh builds of each variant that is built at all."""
    policy: Policy = field(default_factory=Policy)
    final_s: float = FINAL_S
    """About how long the two best rows are measured against each other at the end; 0 for no final."""
    ceilings: bool = True
    """Measure what the machine can do at best, where that is not known yet."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One variant of a plan, with its status if that is known without running it."""

    variant: Variant
    subject: Subject
    steps: tuple[BackendStep, ...]
    config_id: str
    settled: tuple[Status, str] | None
    memory_bytes: int
    build_deadline_s: float
    caches: bool
    baseline: bool
    quantisation: Quantisation
    cache_folder: Path
    environment: tuple[tuple[str, str], ...]
    builds: int = 1
    """How many fresh builds its variant gets."""
    build_number: int = 1
    """Which of them this is, from 1."""
    process: int = 1
    """Which of the fresh processes this is, from 1."""

    @property
    def key(self) -> tuple[str, int, int]:
        """What a sweep has one record of."""
        return str(self.variant), self.build_number, self.process


@dataclass(frozen=True, slots=True)
class Plan:
    """Entries grouped by subject, in the order they run: baselines first, then as backends are listed."""

    request: Request
    component: Component
    entries: tuple[Entry, ...]
    key: str
    """Hash of what `--resume` must find again: variants, policy, host, versions and commit."""

    def label(self, entry: Entry) -> str:
        """An entry's variant and, where there are several, which build and which process."""
        build = f", build {entry.build_number} of {entry.builds}" if entry.builds > 1 else ""
        process = f", process {entry.process} of {self.request.processes}" if self.request.processes > 1 else ""
        return f"{entry.variant}{build}{process}"


def request_of(variant: Variant) -> Request:
    """What asks for exactly this variant."""
    return Request(
        component=variant.component,
        presets=(variant.preset,),
        workloads=(variant.workload,),
        backends=("+".join(str(use) if use.options else f"{use.name}[]" for use in variant.backends),),
        dtypes=(variant.dtype,),
        device=variant.device,
    )


def make_plan(request: Request) -> Plan:
    """Resolve a request. Raises BakeoffError for any name, size or combination of them that does not exist."""
    component = resolve_component(request.component)
    device = parse_device(request.device or host.default_device())
    gap = host.device_gap(device)
    if gap:
        raise BakeoffError(f"--device {device}: {gap}")
    if request.batch < 1:
        raise BakeoffError(f"--batch {request.batch}: a batch is at least 1")
    if not 1 <= request.processes <= 100:
        raise BakeoffError(f"--processes {request.processes}: give 1 to 100")
    if not 1 <= request.builds <= 20:
        raise BakeoffError(f"--builds {request.builds}: give 1 to 20")
    if not 0 <= request.threads <= 1024:
        raise BakeoffError(f"--threads {request.threads}: give 0 for all cores, or 1 to 1024")
    threads = request.threads or host.usable_cores()
    checkpoint = _checkpoint(request.checkpoint)
    presets = request.presets or (_default(component.default_preset, component, device, "--preset"),)
    asked = tuple(parse_dtype(dtype) for dtype in request.dtypes)
    compositions = _compositions(request, component, device)
    entries: list[Entry] = []
    for preset_name in presets:
        config = component.preset(preset_name).config
        names = request.workloads or _default_workloads(component, config, device, request.suite)
        for name in names:
            workload = component.workload(config, name, request.batch)
            subject = Subject(
                component=request.component,
                preset=preset_name,
                workload=workload.name,
                batch=request.batch,
                weight_seed=request.weight_seed,
                input_seed=request.input_seed,
                checkpoint=checkpoint,
                device=device,
                threads=threads,
            )
            entries += [
                entry
                for dtype in asked or DTYPES
                for composition in compositions
                if dtype in (asked or composition.dtypes)
                for entry in _builds(request, component, config, workload, subject, composition.steps, dtype)
            ]
    return _plan(request, component, entries)


def _plan(request: Request, component: Component, entries: Iterable[Entry]) -> Plan:
    unique: dict[tuple[str, int, int], Entry] = {}
    for entry in entries:
        if unique.setdefault(entry.key, entry).steps != entry.steps:
            raise BakeoffError(f"two different backends are called {entry.variant.backend}; rename one")
    processes = range(1, request.processes + 1)
    built = sorted(unique.values(), key=lambda entry: entry.build_number)
    ordered = tuple(replace(entry, process=process) for process in processes for entry in built)
    commit, dirty = paths.commit()
    key = digest(
        [
            [entry.key for entry in ordered],
            [entry.config_id for entry in ordered],
            request.policy,
            host.read_host(),
            host.read_versions(),
            commit,
            dirty,
        ]
    )
    return Plan(request, component, ordered, key)


def _default_dtypes(device: str, suite: str) -> tuple[str, ...]:
    """CUDA: fp32 and bf16. CPU: fp32, and bf16 where the CPU multiplies it itself. The full suite adds the others."""
    if device == "cuda":
        return ("fp32", "bf16") if suite == "default" else ("fp32", "tf32", "bf16", "fp16")
    return ("fp32", "bf16") if host.has_native_bf16() or suite == "full" else ("fp32",)


def _default_workloads(component: Component, config: Any, device: str, suite: str) -> tuple[str, ...]:
    if suite == "full":
        return component.workload_names(config)
    return _default(component.default_workloads, component, device, "--workload")


def _default(defaults: Mapping[str, T], component: Component, device: str, option: str) -> T:
    if device not in defaults:
        raise BakeoffError(f"{component.name} states no default for {device}; give {option}")
    return defaults[device]


def _checkpoint(asked: str) -> str:
    """The absolute path of a weights' file that is there; what is in it, a worker finds out."""
    if not asked:
        return ""
    try:
        if not stat.S_ISREG(os.stat(asked).st_mode):
            raise BakeoffError(f"--checkpoint {asked}: not a file; give the file of the weights itself")
    except OSError as error:
        raise BakeoffError(f"--checkpoint {asked}: {error.strerror}; give the file of the weights") from error
    return str(Path(asked).absolute())


@dataclass(frozen=True, slots=True)
class _Composition:
    """Backends with their options in order, and the dtypes they are taken in when none is asked for."""

    steps: tuple[tuple[Backend, str, Any], ...]
    dtypes: tuple[str, ...]


def _compositions(request: Request, component: Component, device: str) -> list[_Composition]:
    """What is asked for; a bare name stands for all its choices in the suite. Nothing asked: every backend's."""
    usual = _default_dtypes(device, request.suite)
    found: list[_Composition] = []
    for text in request.backends or backend_names():
        parts = [_read_backend(part) for part in split_outside_brackets(text, "+")]
        if len(parts) > 1 or parts[0][2] is not None:
            steps = tuple(
                (backend, reference, backend.options() if options is None else options)
                for backend, reference, options in parts
            )
            found.append(_Composition(steps, usual))
            continue
        backend, reference, _ = parts[0]
        choices = [choice for choice in backend.choices if device in choice.devices]
        usual_choices = [choice for choice in choices if choice.suite == "default"]
        if request.suite == "default" and (usual_choices or not request.backends):
            choices = usual_choices
        if not request.backends:
            choices = [choice for choice in choices if component.name in (choice.components or (component.name,))]
        widened = request.suite == "full"
        found += [_chosen(backend, reference, choice, usual, widened) for choice in choices]
        if not choices and request.backends:
            found.append(_Composition(((backend, reference, backend.options()),), usual))
    return found


def _chosen(backend: Backend, reference: str, choice: Choice, usual: tuple[str, ...], widened: bool) -> _Composition:
    """A choice of the default suite is widened to all dtypes by the full one."""
    dtypes = usual
    if choice.dtypes and not (widened and choice.suite == "default"):
        dtypes = tuple(dtype for dtype in choice.dtypes if dtype in usual) or ("fp32",)
    steps = [(backend, reference, choice.options)]
    for part in split_outside_brackets(choice.then, "+") if choice.then else []:
        later, name, options = _read_backend(part)
        steps.append((later, name, later.options() if options is None else options))
    return _Composition(tuple(steps), dtypes)


def _read_backend(text: str) -> tuple[Backend, str, Any]:
    """`name`, `name[options]` or `package.module:BACKEND[options]`; options are None where no bracket is written."""
    reference, pairs = parse_use(text)
    backend = resolve_backend(reference)
    return backend, reference, None if pairs is None else options_of(backend, pairs)


def _builds(
    request: Request,
    component: Component,
    config: Any,
    workload: Workload,
    subject: Subject,
    steps: tuple[tuple[Backend, str, Any], ...],
    dtype: Dtype,
) -> Iterator[Entry]:
    """A variant's entry, or one for each of the builds asked for, each with a cache folder of its own.

    What runs the framework's operators one by one, and what can never run here, is not built several times. Memory
    that is short does not count: it may be free when the sweep is resumed, whose plan must be the same.
    """
    entry = _entry(request, component, config, workload, subject, steps, dtype)
    last = steps[-1][0]
    never = entry.settled is not None and entry.settled[0] != "oom"
    if request.builds == 1 or never or last.interprets or last.baseline:
        yield entry
        return
    for number in range(1, request.builds + 1):
        folder = build_cache.build_folder(entry.cache_folder, number)
        environment = _environment(request, steps, folder)
        yield replace(entry, builds=request.builds, build_number=number, cache_folder=folder, environment=environment)


def _environment(
    request: Request, steps: tuple[tuple[Backend, str, Any], ...], folder: Path
) -> tuple[tuple[str, str], ...]:
    """What a worker needs before it imports torch, its compilers' caches being in `folder`."""
    environment = user_code_environment(request)
    for backend, _, _ in steps:
        environment.update(backend.environment(folder))
    return tuple(sorted(environment.items()))


def _entry(
    request: Request,
    component: Component,
    config: Any,
    workload: Workload,
    subject: Subject,
    steps: tuple[tuple[Backend, str, Any], ...],
    dtype: Dtype,
) -> Entry:
    uses: tuple[BackendUse, ...] = tuple(use_of(backend, options) for backend, _, options in steps)
    variant = Variant(component.name, subject.preset, workload.name, uses, dtype, subject.device)
    config_id = digest(
        [
            str(variant),
            config,
            subject.batch,
            subject.weight_seed,
            subject.input_seed,
            checkpoint_label(subject),
            subject.threads,
        ]
    )
    weights_bytes = component.parameters(config) * element_bytes(dtype)
    memory_bytes = _memory_estimate(component, config, workload, steps, dtype)
    folder = build_cache.usual_folder([str(variant), config_id, host.read_versions(), host.read_host()])
    policy = request.policy
    return Entry(
        variant=variant,
        subject=subject,
        steps=tuple(
            BackendStep(reference, dict(use.options)) for (_, reference, _), use in zip(steps, uses, strict=True)
        ),
        config_id=config_id,
        settled=_settled(steps, subject.device, dtype, memory_bytes),
        memory_bytes=memory_bytes,
        build_deadline_s=policy.large_build_deadline_s
        if weights_bytes >= _LARGE_WEIGHTS_BYTES
        else policy.build_deadline_s,
        caches=any(backend.caches for backend, _, _ in steps),
        baseline=all(backend.baseline for backend, _, _ in steps),
        quantisation=next(filter(None, (backend.quantises(options) for backend, _, options in steps)), ""),
        cache_folder=folder,
        environment=_environment(request, steps, folder),
    )


def user_code_environment(request: Request) -> dict[str, str]:
    """A user's own package.module:ATTRIBUTE is looked up in the working folder too, here and in workers."""
    if not any(":" in reference for reference in (request.component, *request.backends)):
        return {}
    return {"PYTHONPATH": os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH", "")]))}


def checkpoint_label(subject: Subject) -> str:
    """Name and size of a subject's weights' file; "" for random weights."""
    if not subject.checkpoint:
        return ""
    path = Path(subject.checkpoint)
    return f"{path.name}, {path.stat().st_size if path.exists() else 0} bytes"


def _settled(
    steps: tuple[tuple[Backend, str, Any], ...], device: str, dtype: str, memory_bytes: int
) -> tuple[Status, str] | None:
    for backend, _, options in steps:
        gap = backend.unavailable(options, device)
        if gap:
            return "unavailable", gap
    for backend, _, _ in steps[:-1]:
        if backend.prepare is None:
            return "unsupported", f"{backend.name} builds engines and prepares nothing; it can only stand last"
    last = steps[-1][0]
    if last.build is None:
        return "unsupported", f"{last.name} only prepares a module; name what builds it, as in {last.name}+inductor"
    for backend, _, options in steps:
        reason = backend.unsupported(options, device, dtype)
        if reason:
            return "unsupported", reason
    free = host.available_bytes(device)
    if memory_bytes > free:
        return "oom", f"needs an estimated {memory_bytes >> 20} MiB, {free >> 20} MiB are free; not started"
    return None


def _memory_estimate(
    component: Component, config: Any, workload: Workload, steps: tuple[tuple[Backend, str, Any], ...], dtype: str
) -> int:
    """Weights as drawn (fp32) and as built, inputs and outputs of all sets, and the process itself."""
    count = component.parameters(config)
    built_bytes = count * element_bytes(dtype) * max(backend.weight_copies for backend, _, _ in steps)
    drawn = 0 if element_bytes(dtype) == 4 else count * 4
    return round(drawn + built_bytes + workload.work.io_elements * 4 * 4) + _PROCESS_BYTES


def element_bytes(dtype: str) -> int:
    """Bytes of one weight, and of one element of an input or output that follows the dtype."""
    return _DTYPE_BYTES[dtype]


def reference_folder(entry: Entry, component: Component) -> Path:
    """Where the references of an entry's subject are cached: by all that decides them, and the component's source."""
    subject = entry.subject
    weights: list[object] = ["random", subject.weight_seed]
    if subject.checkpoint:
        try:
            found = os.stat(subject.checkpoint)
        except OSError as error:
            raise BakeoffError(f"--checkpoint {subject.checkpoint}: {error.strerror}") from error
        weights = [subject.checkpoint, found.st_size, found.st_mtime_ns]
    machine = host.read_host()
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
            machine.name(subject.device),
            host.read_versions().get("torch", ""),
            _source_hash(component),
            _JUDGED,
        ]
    )
    return paths.cache_folder() / "references" / f"{component.name}-{subject.preset}-{subject.workload}-{key}"


def _source_hash(component: Component) -> str:
    """Hash of the component's own files and of those that draw weights and tables."""
    try:
        spec = find_spec(component.network)
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None:
        raise BakeoffError(f"{component.name}: its network module '{component.network}' cannot be found")
    shared = find_spec("bakeoff.models")
    files = sorted(Path(spec.origin).parent.glob("*.py"))
    for folder in (shared.submodule_search_locations or []) if shared else []:
        files += [Path(folder) / "weights.py", Path(folder) / "tables.py"]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
