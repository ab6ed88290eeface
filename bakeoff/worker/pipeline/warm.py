"""Plays calls that warm a mix up, and finds those calls of its loop in which something is still compiled, allocated or
captured."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from bakeoff.backends.backend import ModuleEngine
from bakeoff.export.warmup import WarmCall, WarmUp, inputs_of, stated_call
from bakeoff.models.pipelines.pipeline import Key
from bakeoff.process.jobs import LoopSubject, WarmUpJob
from bakeoff.worker.device import context_bytes
from bakeoff.worker.pipeline.feeder import ProgramEngine
from bakeoff.worker.pipeline.parity import pipeline_of
from bakeoff.worker.pipeline.programs import loaded_programs
from bakeoff.worker.pipeline.runner import LoopRunner
from bakeoff.worker.pipeline.units import counters
from bakeoff.worker.reporter import Report
from bakeoff.worker.torch_flags import flags

_UNITS, _SESSION, _SECONDS = 1000, 500, 60.0
"""Units that run at most, of a session at most, and how long, beyond those that fill the windows."""


def find_unwarmed(job: WarmUpJob, report: Report) -> WarmUp:
    """Load the artifacts of a mix, make the job's calls, and return what `unwarmed` does."""
    device, threads = job.subject.device, job.subject.threads
    with flags("fp32", threads, search=device == "cuda"):
        context_bytes(device)
        report("open")
        engines = loaded_programs(job.subject.loop, job.artifacts, threads)
        report("bind")
        return unwarmed(job.subject, engines, job.dtypes, job.calls, report)


def play(engines: Mapping[Key, ProgramEngine], calls: Sequence[WarmCall]) -> None:
    """Make these calls."""
    named = {str(key): one for key, one in engines.items()}
    for call in calls:
        one = named[call.program]
        one.engine.bind(inputs_of(call, one.inputs))()


def unwarmed(
    subject: LoopSubject,
    engines: Mapping[Key, ProgramEngine],
    dtypes: Mapping[str, str],
    calls: Sequence[WarmCall],
    report: Report,
) -> WarmUp:
    """Make these calls, then run units of the loop, and return the calls of these in which a counter moved.

    After given calls, units end with the first such call. The engines are those of callables.
    """
    play(engines, calls)
    of_engines, moved = counters(engines), list[WarmCall]()

    def read() -> Sequence[Mapping[str, int]]:
        return [*of_engines(), *([_of_device()] if subject.device == "cuda" else [])]

    def watched(key: Key, one: ProgramEngine) -> ProgramEngine:
        assert isinstance(one.engine, ModuleEngine)
        function = one.engine.function

        def call(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            before = read()
            outputs = function(*inputs)
            if read() != before:
                moved.append(stated_call(str(key), runner.next_unit, dict(zip(one.inputs, inputs, strict=True))))
            return outputs

        return replace(one, engine=replace(one.engine, function=call))

    loop, started, units = subject.loop, time.monotonic(), 0
    runner = LoopRunner(pipeline_of(subject), subject, {k: watched(k, one) for k, one in engines.items()}, dtypes)
    least = max(loop.filling, len(loop.opening)) + 2
    while units < _UNITS and (units < least or time.monotonic() - started < _SECONDS) and not (calls and moved):
        report("loop check", f"unit {units}")
        if runner.at_end or runner.next_unit == _SESSION:
            runner.open()
        runner.unit()
        units += 1
    return WarmUp(tuple(moved), units, tuple(name for each in read()[2:] for name in each))


def _of_device() -> Mapping[str, int]:
    return {"device allocations": torch.cuda.memory_stats().get("num_device_alloc", 0)}
