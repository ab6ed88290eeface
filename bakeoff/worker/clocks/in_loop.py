"""Times calls as a loop makes them: with cold caches and sleeping threads, after a call of another module."""

from collections.abc import Callable
from dataclasses import replace

import torch

from bakeoff.backends.backend import Call
from bakeoff.models import resolve_component
from bakeoff.process.jobs import MeasureJob
from bakeoff.record.schema import Samples
from bakeoff.worker.clocks.clock import now_ns
from bakeoff.worker.failures import StageError, call_stage
from bakeoff.worker.subject import cast_inputs, load_subject, synchronise

_WORK_NS, _WORK_ELEMENTS = 300_000, 1 << 18
"""What a run takes between two units to draw inputs and check outputs, and values that it reads and writes."""
_LONGEST_NS, _FEWEST = 1_000_000_000, 5


def other_work(device: str) -> Callable[[], None]:
    """Return a function that does as much as a run does between two units, and waits for the device."""
    scratch = torch.zeros(_WORK_ELEMENTS, device=device)

    def work() -> None:
        until_ns = now_ns() + _WORK_NS
        while now_ns() < until_ns:
            scratch.add_(1.0)
        synchronise(device)

    return work


def time_in_loop(job: MeasureJob, call: Call) -> Samples:
    """Return times of calls, each after an eager call of the module that the loop calls next, and other work.

    Empty for a row of no loop, and where that module does not run beside the engine.
    """
    if not job.next_slot:
        return Samples()
    try:
        return call_stage(lambda: _samples(job, call))
    except StageError:
        return Samples()


def _samples(job: MeasureJob, call: Call) -> Samples:
    component, device = resolve_component(job.next_slot), job.subject.device
    workload = component.default_workloads[device][0]
    subject = replace(job.subject, component=job.next_slot, preset=component.presets[0].name, workload=workload)
    loaded = load_subject(replace(subject, checkpoint="", checkpoint_hash="", batch=1))
    inputs = [*cast_inputs(loaded.workload, loaded.sets[0], "fp32", device).values()]
    module, work = loaded.cast("fp32", device), other_work(device)
    samples, ends_ns = list[int](), now_ns() + _LONGEST_NS
    while len(samples) < _FEWEST or now_ns() < ends_ns:
        module(*inputs)
        work()
        started_ns = now_ns()
        call()
        synchronise(device)
        samples.append(now_ns() - started_ns)
    return Samples(samples)
