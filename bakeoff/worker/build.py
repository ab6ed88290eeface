"""Builds a variant: prepares the module with all backends but the last, builds an engine with the last and calls it."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from bakeoff.backends import resolve_backend
from bakeoff.backends.backend import Backend, BuildContext, Call, Engine, Prepared
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
    last, options = steps[-1]
    before_bytes, activity, resident = layer_bytes(loaded.module), snapshot(), resident_bytes()
    reset_peaks()
    clock = _BuildClock()
    context = build_context(job, loaded, trace, clock.pause, report)
    cache: _Cache = "warm" if is_warm(context.cache_dir) else "cold"
    context = replace(context, opens=job.opens and cache == "warm")
    try:
        example = _example(job, loaded, sets)
        prepared, opened = Prepared(loaded.module), None
        if job.engine and len(steps) == 1 and not trace and not context.sizes:
            note = Path(job.cache_folder, f"{digest([job.engine, loaded.weights, input_layouts(example)])}.json")
            opened = _open_kept(note, last, options, example, context) if context.opens else None
            context = replace(context, keep=lambda save: _keep(note, save, clock))
        if opened is None:
            prepared = prepare(steps[:-1], loaded.module, example, context)
        after_bytes = layer_bytes(prepared.module)
        assert last.build is not None, "the plan refuses a backend that cannot build in this position"
        engine = opened or last.build(prepared.module, example, options_of(last, dict(options)), context)
        calls = () if job.target else tuple(engine.bind(inputs) for inputs in sets)
        if calls:
            calls[0]()
            synchronise(job.subject.device)
        build_s, cpu_s = clock.spent_s()
        mark_finished(context.cache_dir, job.overlapped)
        proof = engine.prove()
    except Exception as error:
        raise _failed(error, loaded.module) from error
    cost = BuildCost(
        cache="stored" if opened else cache if any(backend.caches for backend, _ in steps) else "none",
        build_s=None if job.overlapped else build_s,
        peak_bytes=max(0, peak_bytes() - resident),
        children_peak_bytes=children_peak_bytes() or None,
        artifact_bytes=proof.artifact_bytes,
        untimed_s=None if job.overlapped else clock.paused_s,
        cpu_s=cpu_s,
        overlapped=job.overlapped,
    )
    fallback = None
    if job.quantisation:
        prepared, fallback = check_quantisation(prepared, proof.quantised, before_bytes, after_bytes)
    compiled = (snapshot() - activity).compiled
    uses_inductor = any(backend.uses_inductor for backend, _ in steps)
    if compiled and fallback is None and not uses_inductor:
        fallback = f"inductor: it compiled {counted(compiled, 'graph')}"
    if not last.keeps_module_weights:
        free_weights(prepared.module)
        free_weights(loaded.module)
    return BuiltEngine(engine, calls, cost, prepared, after_bytes[""], fallback, last.runs_eagerly, uses_inductor)


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


class _BuildClock:
    """Wall and CPU time of a build, without that of contexts whose work does not count as part of it."""

    def __init__(self) -> None:
        self.paused_s = self._paused_cpu_s = 0.0
        self._began_s, self._began_cpu_s = time.monotonic(), _cpu_s()

    @contextmanager
    def pause(self) -> Iterator[None]:
        started, used_s = time.monotonic(), _cpu_s()
        try:
            yield
        finally:
            self._paused_cpu_s += _cpu_s() - used_s
            self.paused_s += time.monotonic() - started

    def spent_s(self) -> tuple[float, float]:
        """Return the wall and the CPU seconds so far."""
        return time.monotonic() - self._began_s - self.paused_s, _cpu_s() - self._began_cpu_s - self._paused_cpu_s


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


def _keep(note: Path, save: Callable[[], Mapping[str, Any]], clock: _BuildClock) -> None:
    """Keep the engine that was just built: call `save`, and write the values that it returns to `note`, untimed.

    An error, such as a full disk, is ignored: later builds then build again.
    """
    with clock.pause(), suppress(OSError, BakeoffError):
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
    named = prepared.quantised
    unchanged = [
        name
        for name in named
        if prepared.shrinks_weights and name in before_bytes and after_bytes.get(name, 0) >= before_bytes[name]
    ]
    smaller = after_bytes[""] < before_bytes[""] and len(unchanged) < len(named)
    fallback = None
    if not named and not quantised_by_build:
        fallback = "the unquantised module: no layer was quantised"
    elif named and prepared.shrinks_weights and not smaller:
        count = counted(len(named), "layer")
        fallback = f"the unquantised module: {count} reported as quantised, but their weights take as many bytes as "
        fallback += "before"
    quantised = {name: how for name, how in named.items() if name not in unchanged}
    skipped = {**prepared.skipped, **dict.fromkeys(unchanged, "takes as many bytes as before")}
    return replace(prepared, quantised=quantised, skipped=skipped), fallback


def layer_bytes(module: nn.Module) -> dict[str, int]:
    """Return the stored bytes of each submodule by name; those of the whole module have the name ""."""
    return {name: memory.stored_bytes(part) for name, part in module.named_modules()}
