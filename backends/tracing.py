"""Traces: the time of a call by kernel, recorded with a traced build."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bakeoff.backends.torch_internals import WRAPPER_EVENTS

TRACED_CALLS = 5


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel, operator or node of a traced call."""

    name: str
    calls: float
    """How often it runs in one call of the engine."""
    ns: int
    """Its own time in one call of the engine, without nested events, summed over its runs."""
    own: bool
    """Whether the compiler generated or ships it; else it is a framework's operator or in a vendor's library."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Kernels of a call, as the mean over a few calls of a traced build; the longest first."""

    kernels: tuple[Kernel, ...]
    total_ns: int
    """Time of one call, of which the kernels' times are parts: wall time on a CPU, kernel time on CUDA."""
    operators_inside: Mapping[str, int] = field(default_factory=dict)
    """Number of each operator after the compiler's own optimisations, if only a trace shows them."""
    operators_outside: Mapping[str, int] = field(default_factory=dict)
    """Operators that ran elsewhere, for example on another provider than requested; any of them is a fallback."""


def trace_operators(
    call: Callable[[], Sequence[Any]], own: tuple[str, ...] = (), wrappers: tuple[str, ...] = ()
) -> Trace:
    """Profile a few calls with torch's profiler: operators and compiled kernels on a CPU, device kernels on CUDA.

    `own` are prefixes of the names of the compiler's own kernels. Events that only enclose other events (those whose
    names begin with one of WRAPPER_EVENTS or `wrappers`) are not kernels; their own time is left out. AOTInductor's
    `aoti_torch_cpu_addmm_out` counts as a kernel: it calls ATen's product without the dispatcher, so the profiler sees
    no event below it.
    """
    import torch
    from torch.autograd.profiler import profile

    cuda = torch.cuda.is_available() and any(output.is_cuda for output in call())
    with profile(use_device="cuda" if cuda else None) as recorded:
        started = time.perf_counter_ns()
        for _ in range(TRACED_CALLS):
            call()
        if cuda:
            torch.cuda.synchronize()
        wall_ns = time.perf_counter_ns() - started
    kernels = []
    for event in recorded.key_averages():
        on_device = event.device_type == torch.profiler.DeviceType.CUDA
        microseconds = event.self_device_time_total if cuda else event.self_cpu_time_total
        if cuda is on_device and microseconds > 0 and not event.key.startswith(WRAPPER_EVENTS + wrappers):
            name, ns = event.key, round(microseconds * 1000 / TRACED_CALLS)
            kernels.append(Kernel(name, event.count / TRACED_CALLS, ns, name.startswith(own) if own else False))
    total_ns = sum(kernel.ns for kernel in kernels) if cuda else wall_ns // TRACED_CALLS
    return Trace(tuple(sorted(kernels, key=lambda kernel: -kernel.ns)), total_ns)
