"""Builds a variant: prepares the module with all backends but the last, builds an engine with the last and calls it."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from bakeoff.backends import resolve_backend
from bakeoff.backends.backend import Backend, BuildContext, Call, Engine, Prepared, Proof
from bakeoff.backends.graphs import input_layouts
from bakeoff.backends.torch_internals import snapshot
from bakeoff.machine import paths
from bakeoff.machine.build_cache import header_folder, is_warm, make_shared, mark_finished
from bakeoff.machine.files import digest, write_atomically
from bakeoff.machine.processes import children_peak_bytes, helper_cpu_s, peak_bytes, reset_peaks, resident_bytes
from bakeoff.models.errors import BakeoffError
from bakeoff.models.options import options_of
from bakeoff.models.words import counted
from bakeoff.process.jobs import MeasureJob
from bakeoff.record.codec import encode_json
from bakeoff.record.schema import BuildCost
from bakeoff.worker.checks import memory
from bakeoff.worker.failures import StageError, first_line, status_of
from bakeoff.worker.reporter import Report, unheard
from bakeoff.worker.subject import LoadedSubject, cast_inputs, drawn_inputs, synchronise

_Cache = Literal["cold", "warm", "stored"]
_Steps = Sequence[tuple[Backend, Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class BuiltEngine:
    """An engine that was called once, bound to each set of inputs."""

    engine: Engine
    calls: tuple[Call, ...]
    """One bound call for each set of inputs."""
    cost: BuildCost
    prepared: Prepared
    """The module passed to the last backend, and the changes that earlier backends made to it."""
    weights_bytes: int
    """Bytes of that module's parameters and buffers as stored."""
    fallback: str | None
    """What ran instead of the requested backend, as far as the build shows, as a noun phrase; None if nothing did."""
    runs_eagerly: bool
    """True if the last backend runs the framework's operators one by one by design."""
    uses_inductor: bool
    """True if one of the backends compiles with inductor by design."""


def build_engine(
    job: MeasureJob,
    loaded: LoadedSubject,
    sets: Sequence[Mapping[str, Tensor]],
    trace: bool = False,
    report: Report = unheard,
) -> BuiltEngine:
    """Prepare the module, build the engine, bind every set of inputs and call the first; all this is the build's cost.

    An engine for another GPU is neither bound nor called.

    If the job states that other builds run at the same time, the cost has CPU seconds but no wall seconds. With
    `trace`, build so that kernels can be traced. The module of `loaded` belongs to the variant from here on: it may be
    quantised in place, and its weights are freed if the engine does not need them. Raises StageError with
    `build_failed`, or with the status of the exception.
    """
    steps = [(resolve_backend(step.backend), step.options) for step in job.steps]
    pauses = _Pauses()
    context = build_context(job, loaded, trace, pauses.pause, report)
    cache: _Cache = "warm" if is_warm(context.cache_dir) else "cold"
    context = replace(context, opens=job.opens and cache == "warm")
    before_bytes = layer_bytes(loaded.module)
    activity = snapshot()
    resident = resident_bytes()
    reset_peaks()
    used_s, started = _cpu_s(), time.monotonic()
    try:
        example = _example(job, loaded, sets)
        prepared, opened = Prepared(loaded.module), None
        if job.engine and len(steps) == 1 and not trace and not context.sizes:
            note = Path(job.cache_folder, f"{digest([job.engine, loaded.weights, input_layouts(example)])}.json")
            opened = _open_kept(note, *steps[0], example, context) if context.opens else None
            context = replace(context, keep=lambda save: _keep(note, save, pauses))
        if opened is None:
            prepared = prepare(steps[:-1], loaded.module, example, context)
        after_bytes = layer_bytes(prepared.module)
        engine = opened or _build_last(*steps[-1], prepared.module, example, context)
        calls = () if job.target else tuple(engine.bind(inputs) for inputs in sets)
        if calls:
            calls[0]()
            synchronise(job.subject.device)
        spent = _BuildTime(time.monotonic() - started - pauses.wall_s, _cpu_s() - used_s - pauses.cpu_s, pauses.wall_s)
        mark_finished(context.cache_dir, job.overlapped)
        proof = engine.prove()
    except Exception as error:
        raise _failed(error, loaded.module) from error
    cost = _cost(job, steps, spent, cache if opened is None else "stored", resident, proof)
    fallback = None
    if job.quantisation:
        prepared, fallback = check_quantisation(prepared, proof.quantised, before_bytes, after_bytes)
    compiled = (snapshot() - activity).compiled
    uses_inductor = any(backend.uses_inductor for backend, _ in steps)
    if compiled and fallback is None and not uses_inductor:
        fallback = f"inductor: it compiled {counted(compiled, 'graph')}"
    if not steps[-1][0].keeps_module_weights:
        free_weights(prepared.module)
        free_weights(loaded.module)
    return BuiltEngine(
        engine, calls, cost, prepared, after_bytes[""], fallback, steps[-1][0].runs_eagerly, uses_inductor
    )


def _failed(error: Exception, module: nn.Module) -> StageError:
    """Return the StageError of a failed build; its text names TorchScript if the module contains any."""
    status = status_of(error, "build_failed")
    scripts = [each.original_name for each in module.modules() if isinstance(each, torch.jit.ScriptModule)]
    if status != "build_failed" or not scripts:
        return StageError(status, error)
    text = f"the model holds TorchScript ({scripts[0]}), which compilers take in part or not at all; give the Python"
    return StageError(status, BakeoffError(f"{text} module that it was made from ({first_line(error, 200)})"))


def _example(job: MeasureJob, loaded: LoadedSubject, sets: Sequence[Mapping[str, Tensor]]) -> Mapping[str, Tensor]:
    """Return the inputs to build with: the first set, or if a dynamic axis has size 1 in it, a set of the largest size.

    torch specialises graphs on a size of 1.
    """
    if all(axis.usual > 1 for axis in loaded.workload.axes):
        return sets[0]
    elements = [sum(spec.elements for spec in size.inputs) for size in loaded.workload.sizes]
    largest = loaded.sized[elements.index(max(elements))][0]
    return cast_inputs(loaded.workload, largest, job.dtype, job.subject.device)


def _cpu_s() -> float:
    """Return the CPU seconds used so far by this process and all processes that it started."""
    return time.process_time() + helper_cpu_s()


class _Pauses:
    """Sums the wall and CPU time of contexts whose work does not count as part of a build."""

    def __init__(self) -> None:
        self.wall_s = 0.0
        self.cpu_s = 0.0

    @contextmanager
    def pause(self) -> Iterator[None]:
        started, used_s = time.monotonic(), _cpu_s()
        try:
            yield
        finally:
            self.cpu_s += _cpu_s() - used_s
            self.wall_s += time.monotonic() - started


@dataclass(frozen=True, slots=True)
class _BuildTime:
    """Wall and CPU time of a build, without its pauses."""

    wall_s: float
    cpu_s: float
    paused_s: float
    """Wall time of the pauses."""


def _cost(
    job: MeasureJob, steps: _Steps, spent: _BuildTime, cache: _Cache, resident_before: int, proof: Proof
) -> BuildCost:
    caches = cache == "stored" or any(backend.caches for backend, _ in steps)
    return BuildCost(
        cache=cache if caches else "none",
        build_s=None if job.overlapped else spent.wall_s,
        peak_bytes=max(0, peak_bytes() - resident_before),
        children_peak_bytes=children_peak_bytes() or None,
        artifact_bytes=proof.artifact_bytes,
        untimed_s=None if job.overlapped else spent.paused_s,
        cpu_s=spent.cpu_s,
        overlapped=job.overlapped,
    )


def build_context(
    job: MeasureJob,
    loaded: LoadedSubject,
    trace: bool = False,
    untimed: Callable[[], AbstractContextManager[None]] = nullcontext,
    report: Report = unheard,
) -> BuildContext:
    """Return the context to build in: variant, device, dtype and folders. The work folder is the current folder."""
    return BuildContext(
        variant=job.variant,
        device=job.subject.device,
        dtype=job.dtype,
        threads=job.subject.threads,
        work_dir=Path.cwd(),
        cache_dir=Path(job.cache_folder),
        draw=lambda seed: drawn_inputs(loaded, seed, job.dtype, job.subject.device),
        trace=trace,
        sizes=loaded.workload.axes,
        untimed=untimed,
        share=partial(_share, untimed, report),
    )


def _share(
    untimed: Callable[[], AbstractContextManager[None]], report: Report, file: Path, make: Callable[[], None]
) -> None:
    """Make a file that all builds share, in a phase of its own."""
    with untimed():
        report("headers")
        make_shared(header_folder(paths.cache_folder()), file, make)
        report("build")


def prepare(steps: _Steps, module: nn.Module, inputs: Mapping[str, Tensor], context: BuildContext) -> Prepared:
    """Prepare the module with each of these backends in order; return the final module and all their changes."""
    prepared = Prepared(module)
    for backend, options in steps:
        assert backend.prepare is not None, "the plan refuses a backend that cannot prepare in this position"
        more = backend.prepare(prepared.module, inputs, options_of(backend, dict(options)), context)
        prepared = Prepared(
            more.module,
            {**prepared.quantised, **more.quantised},
            {**prepared.skipped, **more.skipped},
            {**prepared.facts, **more.facts},
            {**prepared.settings, **more.settings},
            prepared.shrinks_weights and more.shrinks_weights,
            (*prepared.ran_instead, *more.ran_instead),
        )
    return prepared


def free_weights(module: nn.Module) -> None:
    """Drop a module's parameters and buffers, but not TorchScript's; any that an engine also references stay alive."""
    for part in module.modules():
        if isinstance(part, torch.jit.ScriptModule):  # holds them in C++
            continue
        for name in list(part._parameters):
            part._parameters[name] = None
        for name in list(part._buffers):
            part._buffers[name] = None


def _build_last(
    backend: Backend, options: Mapping[str, Any], module: nn.Module, inputs: Mapping[str, Tensor], context: BuildContext
) -> Engine:
    assert backend.build is not None, "the plan refuses a backend that cannot build in this position"
    return backend.build(module, inputs, options_of(backend, dict(options)), context)


def _keep(note: Path, save: Callable[[], Mapping[str, Any]], pauses: "_Pauses") -> None:
    """Keep the engine that was just built: call `save`, and write the values that it returns to `note`, untimed.

    An error, such as a full disk, is ignored: later builds then build again.
    """
    with pauses.pause(), suppress(OSError, BakeoffError):
        write_atomically(note, encode_json(save()))


def _open_kept(
    note: Path, backend: Backend, options: Mapping[str, Any], inputs: Mapping[str, Tensor], context: BuildContext
) -> Engine | None:
    """Return the engine that an earlier build kept; None if there is none, or if its files cannot be opened."""
    if backend.open is None or not note.exists():
        return None
    with suppress(Exception):
        return backend.open(json.loads(note.read_bytes()), inputs, options_of(backend, dict(options)), context)
    return None


def check_quantisation(
    prepared: Prepared,
    quantised_by_build: Mapping[str, str],
    before_bytes: Mapping[str, int],
    after_bytes: Mapping[str, int],
) -> tuple[Prepared, str | None]:
    """Return `prepared`, with layers that did not shrink listed as skipped, and what ran instead of a quantised module.

    `before_bytes` and `after_bytes` are `layer_bytes` of the module before and after its preparation.
    `quantised_by_build` maps the layers or nodes that the build itself quantised to their methods. The second value is
    a noun phrase, or None if something was quantised. A preparation that inserts nodes may leave the weights as they
    are until the build, so sizes are not checked for it.
    """
    names = list(prepared.quantised)
    unchanged = layers_not_smaller(names, before_bytes, after_bytes) if prepared.shrinks_weights else []
    smaller = after_bytes[""] < before_bytes[""] and len(unchanged) < len(names)
    shrank = smaller or not prepared.shrinks_weights
    fallback = nothing_quantised(prepared.quantised, quantised_by_build, shrank)
    return mark_skipped(prepared, unchanged), fallback


def layer_bytes(module: nn.Module) -> dict[str, int]:
    """Return the stored bytes of each submodule by name; those of the whole module have the name ""."""
    return {name: memory.stored_bytes(part) for name, part in module.named_modules()}


def layers_not_smaller(
    names: Iterable[str], before_bytes: Mapping[str, int], after_bytes: Mapping[str, int]
) -> list[str]:
    """Return which of `names` take at least as many bytes as before. Names that are not layers are left out."""
    return [name for name in names if name in before_bytes and after_bytes.get(name, 0) >= before_bytes[name]]


def mark_skipped(prepared: Prepared, layers: Iterable[str]) -> Prepared:
    """Return `prepared` with these layers listed as skipped instead of quantised."""
    unchanged = list(layers)
    quantised = {name: how for name, how in prepared.quantised.items() if name not in unchanged}
    skipped = {**prepared.skipped, **dict.fromkeys(unchanged, "takes as many bytes as before")}
    return replace(prepared, quantised=quantised, skipped=skipped)


def nothing_quantised(prepared: Mapping[str, str], built: Mapping[str, str], shrank: bool) -> str | None:
    """Return what ran instead of a quantised module, as a noun phrase; None if something was quantised.

    `prepared` and `built` map the layers or nodes that the preparation and the build quantised to their methods. One of
    them must name something. If the preparation does, the module's weights must have become smaller too (`shrank`).
    """
    if not prepared and not built:
        return "the unquantised module: no layer was quantised"
    if prepared and not shrank:
        count = counted(len(prepared), "layer")
        return f"the unquantised module: {count} reported as quantised, but their weights take as many bytes as before"
    return None
