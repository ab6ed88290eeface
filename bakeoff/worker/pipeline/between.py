"""Times a loop between its programs: units whose engines return recorded outputs, fed as those of a mix are.

Each call first does other work on all threads, so that the loop's own operations find caches cold as after an engine.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bakeoff.backends.backend import Call, Engine
from bakeoff.backends.port import NOTHING_CARRIED, Port, bound_port
from bakeoff.models.pipelines.pipeline import Key, Loop, Pipeline
from bakeoff.models.signature import Signature, describe_output
from bakeoff.process.jobs import DescribeLoopJob, LoopSubject
from bakeoff.worker.clocks.clock import now_ns
from bakeoff.worker.clocks.in_loop import other_work
from bakeoff.worker.failures import StageError, call_stage
from bakeoff.worker.pipeline.feeder import ProgramEngine
from bakeoff.worker.pipeline.runner import LoopRunner
from bakeoff.worker.torch_flags import flags

if TYPE_CHECKING:
    from bakeoff.worker.pipeline.describe import UnitRun

_UNITS, _FEWEST = 200, 3
_LONGEST_NS = 1_000_000_000
_MOST_ELEMENTS = 1 << 26
"""Values of all programs' inputs and outputs; a loop of more takes so long that the time between is a small part."""


@dataclass(frozen=True, slots=True)
class _Passing(Engine):
    """Returns recorded outputs after other work; a loop passes it other tensors at each call."""

    outputs: tuple[Tensor, ...]
    work: Callable[[], None]

    def bind(self, inputs: Mapping[str, Tensor]) -> Call:  # noqa: ARG002
        return self._returning(self.outputs)

    def _returning(self, outputs: Sequence[Tensor]) -> Call:
        def call() -> tuple[Tensor, ...]:
            self.work()
            return tuple(outputs)

        return call

    def rebinds(self) -> bool:
        return True


class _Bound(_Passing):
    """Returns recorded outputs after other work; a loop copies new values into the memory that it is bound to."""

    __slots__ = ()

    def port(
        self,
        inputs: Mapping[str, Tensor],
        outputs: Sequence[str],
        carried: Mapping[str, str] = NOTHING_CARRIED,
        shared: bool = False,
    ) -> Port:
        def bind(_inputs: Mapping[str, Tensor], results: Sequence[Tensor]) -> Call:
            return self._returning(results)

        return bound_port(inputs, self.outputs, bind, outputs, carried, shared)


def with_between(
    pipeline: Pipeline,
    loop: Loop,
    units: Sequence["UnitRun"],
    signatures: Mapping[Key, Signature],
    job: DescribeLoopJob,
) -> Loop:
    """Return the loop with the mean time that a steady unit takes outside of calls.

    `units` are the loop's first ones, `signatures` those of its author's programs; without any, nothing was computed
    and outputs are zeros. A loop without programs, with large inputs, or that cannot run on such outputs, is returned
    as it is.
    """
    work = other_work(job.device)
    subject = LoopSubject(loop, job.seed, 0, {}, job.device, job.threads)
    calls = {one.key: one for unit in units for one in unit.calls}
    elements = sum(value.numel() for one in calls.values() for value in (*one.inputs.values(), *one.outputs.values()))
    if not calls or elements > _MOST_ELEMENTS:
        return loop

    def unit_ns(engine: Callable[[tuple[Tensor, ...], Callable[[], None]], Engine]) -> int:
        engines = {}
        for key, one in calls.items():
            outputs = tuple(
                value.clone().contiguous() if signatures else _zeros(value, job.device)
                for value in one.outputs.values()
            )
            inputs = {name: _zeros(value, job.device) for name, value in one.inputs.items()}
            call = (signatures[key], describe_output(one.result)) if key in signatures else None
            engines[key] = ProgramEngine(engine(outputs, work), [*one.outputs], inputs, None, call)
        runner = LoopRunner(pipeline, subject, engines, {slot.name: "fp32" for slot in loop.slots})
        return _unit_ns(runner, loop)

    try:
        with flags("fp32", job.threads):
            found = {kind: call_stage(partial(unit_ns, engine)) for kind, engine in _KINDS.items()}
    except StageError:
        return loop
    return replace(loop, between_ns=found)


_KINDS = {"passed": _Passing, "bound": _Bound}


def _zeros(value: Tensor, device: str) -> Tensor:
    return torch.zeros(value.shape, dtype=value.dtype, device=device)


def _unit_ns(runner: LoopRunner, loop: Loop) -> int:
    """Return the mean time of a unit with full windows outside of its calls."""
    first = max(loop.filling, len(loop.opening))
    first = first if loop.max_units is None else min(first, loop.max_units - 1)
    times, until_ns = list[int](), now_ns() + _LONGEST_NS
    while len(times) < _UNITS and (now_ns() < until_ns or len(times) < _FEWEST):
        if runner.at_end:
            runner.open()
        number, sample = runner.next_unit, runner.unit()
        if number >= first:
            times.append(sum(ns for segment, ns in sample.segments.items() if not segment.program))
    return round(fmean(times))
