"""From a job's steps to a built engine that was called once; an exception on the way is a status."""

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor, nn

from bakeoff.backends import resolve_backend
from bakeoff.backends.backend import Backend, BuildContext, Call, Engine, Prepared, Unavailable, Unsupported
from bakeoff.machine.build_cache import is_warm
from bakeoff.models.errors import BakeoffError
from bakeoff.process.jobs import MeasureJob
from bakeoff.record.schema import BuildCost, Status
from bakeoff.variant import options_of
from bakeoff.worker.checks import memory
from bakeoff.worker.checks.memory import stored_bytes
from bakeoff.worker.failures import first_line, is_out_of_memory
from bakeoff.worker.subject import LoadedSubject, drawn_inputs, synchronise

T = TypeVar("T")


class StageError(Exception):
    """An exception of the variant's own code, with the status it means."""

    def __init__(self, status: Status, error: BaseException) -> None:
        super().__init__(str(error))
        self.status: Status = status
        self.error = error

    @property
    def reason(self) -> str:
        line = first_line(self.error)
        return line.partition(": ")[2] if isinstance(self.error, BakeoffError) else line


@dataclass(frozen=True, slots=True)
class BuiltEngine:
    """An engine that was called once, bound to each set of inputs."""

    engine: Engine
    calls: tuple[Call, ...]
    cost: BuildCost
    prepared: Prepared
    """The module as the last backend got it, and what was changed in it."""
    weights_bytes: int
    """Of that module, as they are stored."""
    unproved: str
    """What ran instead, by what the build itself showed; empty if nothing speaks against it."""
    interprets: bool
    """The last backend runs the framework's operators by design."""
    through_inductor: bool
    """One of the backends has inductor compile for it."""


def build(
    job: MeasureJob, loaded: LoadedSubject, sets: Sequence[Mapping[str, Tensor]], trace: bool = False
) -> BuiltEngine:
    """Prepare, build and call once. Raises StageError: `build_failed`, or what the backend itself says.

    The module of `loaded` is the variant's own from here on: it may be quantised in place, and its weights are let go
    where the engine does not need them.
    """
    steps = [(resolve_backend(step.backend), step.options) for step in job.steps]
    context = build_context(job, loaded, trace)
    warm = is_warm(context.cache_dir)
    given_bytes = layer_bytes(loaded.module)
    compiled = inductor_graphs()
    before = memory.resident_bytes()
    memory.reset_host_peak()
    started = time.monotonic()
    try:
        prepared = prepare(steps[:-1], loaded.module, sets[0], context)
        now_bytes = layer_bytes(prepared.module)
        weights_bytes = now_bytes[""]
        engine = _build_last(*steps[-1], prepared.module, sets[0], context)
        calls = tuple(engine.bind(inputs) for inputs in sets)
        calls[0]()
        synchronise(job.subject.device)
        seconds = time.monotonic() - started
        proof = engine.prove()
    except Exception as error:
        raise StageError(_status_of(error, "build_failed"), error) from error
    caches = any(backend.caches for backend, _ in steps)
    cost = BuildCost(
        cache=("warm" if warm else "cold") if caches else "none",
        build_s=seconds,
        peak_bytes=max(0, memory.host_peak_bytes() - before),
        children_peak_bytes=memory.children_peak_bytes() or None,
        artifact_bytes=proof.artifact_bytes,
    )
    unproved = ""
    if job.quantisation:
        unchanged = [] if job.quantisation == "static" else not_shrunk(prepared.quantised, given_bytes, now_bytes)
        shrank = job.quantisation == "static" or weights_bytes < given_bytes[""]
        shrank = shrank and len(unchanged) < len(prepared.quantised)
        unproved = nothing_quantised(prepared.quantised, proof.quantised, shrank)
        prepared = _without(prepared, unchanged)
    through, through_inductor = inductor_graphs() - compiled, any(backend.through_inductor for backend, _ in steps)
    if through and not unproved and not through_inductor:
        unproved = f"inductor: it compiled {through} graph{'s' if through > 1 else ''}"
    if not steps[-1][0].keeps_module:
        free_weights(prepared.module)
        free_weights(loaded.module)
    return BuiltEngine(
        engine, calls, cost, prepared, weights_bytes, unproved, steps[-1][0].interprets, through_inductor
    )


def build_context(job: MeasureJob, loaded: LoadedSubject, trace: bool = False) -> BuildContext:
    """For what and where this worker builds."""
    return BuildContext(
        variant=job.variant,
        device=job.subject.device,
        dtype=job.dtype,
        threads=job.subject.threads,
        work_dir=Path.cwd(),
        cache_dir=Path(job.cache_folder),
        draw=lambda seed: drawn_inputs(loaded, seed, job.dtype, job.subject.device),
        trace=trace,
    )


def prepare(
    steps: Sequence[tuple[Backend, Mapping[str, Any]]],
    module: nn.Module,
    inputs: Mapping[str, Tensor],
    context: BuildContext,
) -> Prepared:
    """The module after all backends that prepare it, with what each of them changed."""
    prepared = Prepared(module)
    for backend, options in steps:
        assert backend.prepare is not None, "the plan settles what cannot be composed"
        more = backend.prepare(prepared.module, inputs, options_of(backend, dict(options)), context)
        prepared = Prepared(
            more.module,
            {**prepared.quantised, **more.quantised},
            {**prepared.skipped, **more.skipped},
            {**prepared.facts, **more.facts},
        )
    return prepared


def layer_bytes(module: nn.Module) -> dict[str, int]:
    """Stored bytes of each layer by its name; of the whole module by ""."""
    return {name: stored_bytes(part) for name, part in module.named_modules()}


def not_shrunk(names: Iterable[str], given_bytes: Mapping[str, int], now_bytes: Mapping[str, int]) -> list[str]:
    """Those layers that take as many bytes as they were given with; of a name that is no layer's nothing is known."""
    return [name for name in names if name in given_bytes and now_bytes.get(name, 0) >= given_bytes[name]]


def _without(prepared: Prepared, layers: Sequence[str]) -> Prepared:
    """The same with some layers told as skipped, whatever is said of them."""
    quantised = {name: how for name, how in prepared.quantised.items() if name not in layers}
    skipped = {**prepared.skipped, **dict.fromkeys(layers, "takes as many bytes as before")}
    return replace(prepared, quantised=quantised, skipped=skipped)


def nothing_quantised(prepared: Mapping[str, str], built: Mapping[str, str], shrank: bool) -> str:
    """What a variant that should be quantised is instead, or "".

    Whoever prepares a module must name layers, and its weights must have become smaller; whoever quantises in its own
    build must name nodes.
    """
    if not prepared and not built:
        return "the module as it was: not one layer was quantised"
    if prepared and not shrank:
        count = f"{len(prepared)} layer{'s are' if len(prepared) > 1 else ' is'}"
        return f"the module as it was: {count} said to be quantised, no weight of theirs became smaller"
    return ""


def inductor_graphs() -> int:
    """How many graphs inductor has compiled, or taken from its cache, in this process."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    if dynamo is None:
        return 0
    counts = dynamo.counters["inductor"].items()
    return sum(int(count) for name, count in counts if name.startswith("fxgraph_cache_"))


def free_weights(module: nn.Module) -> None:
    """Forget a module's weights; an engine that holds some of them keeps them alive."""
    for part in module.modules():
        for name in list(part._parameters):
            part._parameters[name] = None
        for name in list(part._buffers):
            part._buffers[name] = None


def _build_last(
    backend: Backend, options: Mapping[str, Any], module: nn.Module, inputs: Mapping[str, Tensor], context: BuildContext
) -> Engine:
    assert backend.build is not None, "the plan settles what cannot be composed"
    return backend.build(module, inputs, options_of(backend, dict(options)), context)


def call_stage(action: Callable[[], T]) -> T:
    """Do something with a built engine. Raises StageError: `call_failed`, or what the backend itself says."""
    try:
        return action()
    except Exception as error:
        raise StageError(_status_of(error, "call_failed"), error) from error


def _status_of(error: BaseException, otherwise: Status) -> Status:
    if isinstance(error, Unavailable):
        return "unavailable"
    if isinstance(error, Unsupported):
        return "unsupported"
    return "oom" if is_out_of_memory(error) else otherwise
