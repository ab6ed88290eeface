"""Where a call spends its time, kernel by kernel: what a traced build is for."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bakeoff.backends.torch_internals import WRAPPER_EVENTS

TRACED_CALLS = 5


@dataclass(frozen=True, slots=True)
class Kernel:
    """Where a traced call spends its time: a kernel, an operator or a node."""

    name: str
    calls: float
    """Of one call of the engine."""
    ns: int
    """Time of its own in one call of the engine, all its calls together."""
    own: bool
    """Whether the compiler generated or shipped it; else it is a framework's operator or in a vendor's library."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Mean of a few calls of a traced build, kernel by kernel; the longest first."""

    kernels: tuple[Kernel, ...]
    total_ns: int
    """The whole that kernels' times are shares of: the wall time of a call on a CPU, kernel time on CUDA."""
    operators_inside: Mapping[str, int] = field(default_factory=dict)
    """Operators after the compiler's own optimiser, by name, where only a trace shows them."""
    operators_outside: Mapping[str, int] = field(default_factory=dict)
    """Operators that ran elsewhere, for instance on another provider than asked; any is a fallback."""


def trace_operators(
    call: Callable[[], Sequence[Any]], own: tuple[str, ...] = (), wrappers: tuple[str, ...] = ()
) -> Trace:
    """Profile a few calls with torch's profiler: operators and compiled kernels on a CPU, device kernels on CUDA.

    `own` are prefixes of the names of the compiler's own kernels. Events that only enclose others (WRAPPER_EVENTS, and
    those whose names begin with one of `wrappers`) are no kernels: their own time stays unnamed. AOTInductor's
    `aoti_torch_cpu_addmm_out` is counted as a kernel: it calls ATen's product without the dispatcher, so that nothing
    below it has a name.
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
