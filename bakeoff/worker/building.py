"""From a job's steps to a built engine that was called once; an exception on the way is a status."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor, nn

from bakeoff.backends import resolve_backend
from bakeoff.backends.backend import Backend, BuildContext, Call, Engine, Unavailable, Unsupported
from bakeoff.job import MeasureJob
from bakeoff.models.errors import BakeoffError
from bakeoff.record import BuildCost, Scalar, Status
from bakeoff.variant import options_of
from bakeoff.worker import memory
from bakeoff.worker.bench import synchronise
from bakeoff.worker.failures import first_line, is_out_of_memory

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
class Built:
    """An engine that was called once, bound to each set of inputs."""

    engine: Engine
    calls: tuple[Call, ...]
    cost: BuildCost
    facts: dict[str, Scalar]
    """What preparing the module learned."""
    interprets: bool
    """The last backend runs the framework's operators by design."""


def build(job: MeasureJob, module: nn.Module, sets: Sequence[Mapping[str, Tensor]]) -> Built:
    """Prepare, build and call once. Raises StageError: `build_failed`, or what the backend itself says."""
    steps = [(resolve_backend(step.backend), step.options) for step in job.steps]
    cache = Path(job.cache_folder)
    warm = cache.is_dir() and any(cache.iterdir())
    context = BuildContext(
        variant=job.variant,
        device="cuda" if job.subject.device == "cuda" else "cpu",
        dtype=job.dtype,
        threads=job.subject.threads,
        work_dir=Path.cwd(),
        cache_dir=cache,
    )
    facts: dict[str, Scalar] = {}
    before = memory.resident_bytes()
    memory.reset_host_peak()
    started = time.monotonic()
    try:
        for backend, options in steps[:-1]:
            assert backend.prepare is not None, "the plan settles what cannot be composed"
            module, learned = backend.prepare(module, sets[0], options_of(backend, options), context)
            facts.update(learned)
        engine = _build_last(*steps[-1], module, sets[0], context)
        calls = tuple(engine.bind(inputs) for inputs in sets)
        calls[0]()
        synchronise(job.subject.device)
        seconds = time.monotonic() - started
        artifact_bytes = engine.prove().artifact_bytes
    except Exception as error:
        raise StageError(_status_of(error, "build_failed"), error) from error
    caches = any(backend.caches for backend, _ in steps)
    cost = BuildCost(
        cache=("warm" if warm else "cold") if caches else "none",
        build_s=seconds,
        peak_bytes=max(0, memory.host_peak_bytes() - before),
        children_peak_bytes=memory.children_peak_bytes() or None,
        artifact_bytes=artifact_bytes,
    )
    return Built(engine, calls, cost, facts, steps[-1][0].interprets)


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
