"""Traces: the time of a call by kernel, recorded with a profiler."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from bakeoff.backends.torch_internals import WRAPPER_EVENTS, occupy_gpu

if TYPE_CHECKING:
    from torch.autograd.profiler_util import FunctionEvent

TRACED_CALLS = 5
_LAUNCH_PAUSE_NS = 5000
"""Longest pause between two queued kernels, in ns, that is attributed to the device's launch of the second; measured
pauses are 1 to 2 us."""
_OCCUPYING_KERNEL = "spin_kernel"
"""Name of the kernel of `occupy_gpu` (aten/src/ATen/cuda/Sleep.cu), which is not part of the call."""
_LAUNCHES = ("cudaLaunch", "cuLaunch", "cudaGraphLaunch", "cudaMemcpy", "cudaMemset")
"""Prefixes of the names of calls of the CUDA runtime and driver that start something on the device."""
_LONGEST_OCCUPATION_NS = 500_000_000


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel, operator or node of a traced call."""

    name: str
    calls: float
    """Number of runs in one call of the engine."""
    ns: int
    """The kernel's own time in one call of the engine, in ns, without nested events, summed over its runs."""
    own: bool
    """Whether the compiler generated or ships the kernel; else it is a framework's operator or in a vendor's library.
    """


@dataclass(frozen=True, slots=True)
class DeviceTime:
    """Time that a GPU spent on one call, in ns."""

    span_ns: int
    """Time between CUDA events around an ordinary call, without a profiler; includes all time that the GPU waits."""
    busy_ns: int
    """Time in which at least one kernel ran, the median of the traced calls; kernels of several streams may overlap."""
    named_ns: int
    """The same plus the short pauses between consecutive kernels."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Kernels of a call of a traced build, the longest first: means over a few calls, on CUDA in the proportion that
    makes them add up to the median of the calls' busy times if none overlap."""

    kernels: tuple[Kernel, ...]
    total_ns: int
    """Time of one call in ns, which includes the kernels' times. On a CPU it is wall time; on CUDA the time between
    events around a call that was queued while the device was busy, whether or not the profiler saw its kernels, less
    the waits for kernels that the host launched too late."""
    operators_inside: Mapping[str, int] = field(default_factory=dict)
    """Number of each operator after the compiler's own optimisations, if only a trace shows them."""
    operators_outside: Mapping[str, int] = field(default_factory=dict)
    """Operators that ran elsewhere, for example on another provider than the requested one; each of them is a fallback.
    """
    device: DeviceTime | None = None
    """None on a CPU, and if a compiler's own profiler was used."""


def trace_operators(
    call: Callable[[], Sequence[Any]],
    own: tuple[str, ...] = (),
    own_regions: tuple[str, ...] = (),
) -> Trace:
    """Profile a few calls with torch's profiler: operators and compiled kernels on a CPU, device kernels on CUDA.

    `own` are prefixes of the names of the compiler's own kernels. `own_regions` are prefixes of the names of operators
    within which every kernel that is launched on CUDA is the compiler's, whatever its name. Events that only enclose
    other events (their names begin with one of WRAPPER_EVENTS) are not kernels, and their own time is left out.
    AOTInductor's `aoti_torch_cpu_addmm_out` counts as a kernel: it calls ATen's product without the dispatcher, so the
    profiler sees no event below it.
    """
    import torch

    if torch.cuda.is_available() and any(output.is_cuda for output in call()):
        return _trace_gpu(call, own, own_regions)
    return _trace_cpu(call, own)


def _trace_cpu(call: Callable[[], Sequence[Any]], own: tuple[str, ...]) -> Trace:
    from torch.autograd.profiler import profile

    with profile() as recorded:
        started = time.perf_counter_ns()
        for _ in range(TRACED_CALLS):
            call()
        wall_ns = time.perf_counter_ns() - started
    kernels = []
    for event in recorded.key_averages():
        if event.self_cpu_time_total > 0 and not event.key.startswith(WRAPPER_EVENTS):
            name, ns = event.key, round(event.self_cpu_time_total * 1000 / TRACED_CALLS)
            kernels.append(Kernel(name, event.count / TRACED_CALLS, ns, name.startswith(own) if own else False))
    return Trace(_longest_first(kernels), wall_ns // TRACED_CALLS)


def _trace_gpu(call: Callable[[], Sequence[Any]], own: tuple[str, ...], own_regions: tuple[str, ...]) -> Trace:
    """Time ordinary calls by CUDA events, then profile calls that a busy GPU delays until their kernels are queued.

    So the GPU waits for the host only after the some thousand kernels that fit into its queue (the 1,092nd on an H200),
    and `gpu_trace` leaves these waits out. Kernels that the profiler missed are absent from the list of kernels but
    included in the time between events.
    """
    import torch
    from torch.autograd.profiler import profile

    def event() -> Any:
        made = torch.cuda.Event(enable_timing=True)
        made.record()
        return made

    call()  # the second or third since the build: inductor captures CUDA graphs at its second
    torch.cuda.synchronize()
    started, before = event(), time.perf_counter_ns()
    for _ in range(TRACED_CALLS):
        call()
    launch_ns = (time.perf_counter_ns() - before) // TRACED_CALLS
    ended = event()
    torch.cuda.synchronize()
    span_ns = round(started.elapsed_time(ended) * 1e6 / TRACED_CALLS)
    # The profiler makes launches slower. Without use_kineto it would record times of operators and no kernels at all
    # (torch/autograd/profiler.py: ProfilerState.KINETO_GPU_FALLBACK).
    occupied_ns = min(3 * launch_ns + 1_000_000, _LONGEST_OCCUPATION_NS)
    milliseconds = []
    with profile(use_device="cuda", use_kineto=True) as recorded:
        for _ in range(TRACED_CALLS):
            occupy_gpu(occupied_ns)
            started = event()
            call()
            ended = event()
            torch.cuda.synchronize()
            milliseconds.append(started.elapsed_time(ended))
    totals_ns = [elapsed * 1e6 for elapsed in milliseconds]
    return gpu_trace(recorded.function_events, span_ns, totals_ns, own, own_regions)


def gpu_trace(
    events: "Sequence[FunctionEvent]",
    span_ns: int,
    totals_ns: Sequence[float],
    own: tuple[str, ...] = (),
    own_regions: tuple[str, ...] = (),
) -> Trace:
    """Return the trace of TRACED_CALLS profiled calls. By CUDA events, an ordinary call takes `span_ns`, and each of
    the profiled ones the time in `totals_ns`.

    Copies and fills count as kernels. `record_function` ranges that the profiler repeats on the device do not: they
    enclose kernels. A kernel of a replayed CUDA graph belongs to the operator that launched the graph.
    """
    from torch.profiler import DeviceType

    on_device = [event for event in events if event.device_type == DeviceType.CUDA and not event.is_user_annotation]
    ran = [event for event in on_device if not _occupies(event.name)]
    launched = {
        event.id: event.time_range.end
        for event in events
        if event.device_type == DeviceType.CPU and event.name.startswith(_LAUNCHES)
    }
    before, *times_us = _device_times(on_device, launched)
    if len(times_us) != len(totals_ns):  # the profiler saw no delays
        mean = [sum(each) / TRACED_CALLS for each in zip(before, *times_us, strict=True)]
        times_us = [(mean[0], mean[1], 0.0)] * len(totals_ns)
    busy_us = median(busy for busy, _, _ in times_us)
    all_busy_us = sum(busy for busy, _, _ in times_us)
    part = busy_us / all_busy_us if all_busy_us else 0.0
    every = _by_name((event.name, event.time_range.elapsed_us()) for event in ran)
    regional = _by_name(
        (kernel.name, kernel.duration) for event in events if _is_within(event, own_regions) for kernel in event.kernels
    )
    kernels = []
    for name, (count, microseconds) in every.items():
        inside, inside_us = regional.get(name, (0, 0.0))
        if inside:
            kernels.append(_kernel(name, inside, inside_us * part, own=True))
        if count > inside:
            by_name = name.startswith(own) if own else False
            kernels.append(_kernel(name, count - inside, (microseconds - inside_us) * part, own=by_name))
    # Medians: the profiler starts during the first call, which may then outlast the delay, with longer pauses.
    total_ns = round(median(total - wait * 1000 for total, (_, _, wait) in zip(totals_ns, times_us, strict=True)))
    device = DeviceTime(span_ns, round(busy_us * 1000), round(median(named for _, named, _ in times_us) * 1000))
    return Trace(_longest_first(kernels), total_ns, device=device)


def _occupies(name: str) -> bool:
    return _OCCUPYING_KERNEL in name


def _is_within(event: "FunctionEvent", regions: tuple[str, ...]) -> bool:
    """Return whether the name of an operator, or of one that encloses it, begins with one of the `regions`."""
    found: FunctionEvent | None = event
    while found is not None:
        if regions and found.name.startswith(regions):
            return True
        found = found.cpu_parent
    return False


def _by_name(timed: Iterable[tuple[str, float]]) -> dict[str, tuple[int, float]]:
    """Return for each name how often it occurs and the sum of its times."""
    found: dict[str, tuple[int, float]] = {}
    for name, microseconds in timed:
        count, total = found.get(name, (0, 0.0))
        found[name] = (count + 1, total + microseconds)
    return found


def _kernel(name: str, count: int, microseconds: float, own: bool) -> Kernel:
    return Kernel(name, count / TRACED_CALLS, round(microseconds * 1000), own)


def _device_times(ran: "Iterable[FunctionEvent]", launched: Mapping[int, float]) -> list[tuple[float, float, float]]:
    """Return, in us, how long kernels ran in each call, the same with short pauses between kernels, and the waits.

    A call begins after a delay; the first entry is of what ran before all delays. `launched` holds when the launch of a
    kernel returned, by the kernel's correlation id: the device waited for the host until then if nothing ran.
    """
    times = [(0.0, 0.0, 0.0)]
    end = float("-inf")
    for event in sorted(ran, key=lambda event: event.time_range.start):
        start, stop = event.time_range.start, event.time_range.end
        if _occupies(event.name):
            times.append((0.0, 0.0, 0.0))
        else:
            wait = min(max(launched.get(event.id, end) - end, 0.0), max(start - end, 0.0)) if times[1:] else 0.0
            pause = max(start - end, 0.0) - wait
            ran_us = max(stop - max(start, end), 0.0)
            busy, named, waits = times[-1]
            named += ran_us + (pause if pause * 1000 <= _LAUNCH_PAUSE_NS else 0.0)
            times[-1] = (busy + ran_us, named, waits + wait)
        end = max(end, stop)
    return times


def _longest_first(kernels: Iterable[Kernel]) -> tuple[Kernel, ...]:
    return tuple(sorted(kernels, key=lambda kernel: -kernel.ns))
