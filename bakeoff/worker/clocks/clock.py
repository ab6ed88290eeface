"""The two clocks: latency, one call until its work is done, and throughput, the time per call in a full queue."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

import torch

from bakeoff.backends.backend import Call, Outputs
from bakeoff.record.policy import Policy
from bakeoff.record.schema import Overhead
from bakeoff.worker.checks.outputs import OutputCheck
from bakeoff.worker.reporter import Report
from bakeoff.worker.subject import synchronise

now_ns = time.perf_counter_ns
"""Clock in nanoseconds, bound when this file is imported, so that a backend that replaces `time.perf_counter_ns` does
not change it."""

LONGEST_BLOCK_S = 1.0
"""Time after which a block of many calls ends early; on a quiet host it takes about a twentieth of this."""
_PARTS = 16
"""Number of parts of a block; the clock is read only after each part, so that reading it costs nothing."""
_OVERHEAD_CALLS = 2000
_OVERHEAD_BLOCK = 200
_OVERHEAD_BLOCKS = 15


@dataclass(frozen=True, slots=True)
class TimingConfig:
    """Device, policy and hooks of a timing."""

    device: str
    policy: Policy
    check_outputs: OutputCheck
    """Called with the outputs of each timed call, outside the clock."""
    flush: Callable[[], None] | None = None
    """Empties the device's caches before each call, outside the clock; None to leave the caches as they are."""
    held_bytes: Callable[[], int] = field(default=lambda: 0)
    """Returns the bytes that the process holds on the host and the device."""
    read_gpu: Callable[[], None] = field(default=lambda: None)
    """Reads the GPU's clocks, power and users; does nothing on a CPU."""
    inputs: tuple[torch.Tensor, ...] = ()
    """The tensors that the calls are bound to; never overwritten."""
    report: Report = field(default=lambda _phase, _detail="": None)


def time_call(call: Call, config: TimingConfig) -> tuple[int, Outputs]:
    """Time one call with the latency clock; return its nanoseconds and its outputs."""
    if config.flush is not None:
        config.flush()
        synchronise(config.device)
    started = now_ns()
    outputs = call()
    synchronise(config.device)
    return now_ns() - started, outputs


def time_checked_call(calls: Sequence[Call], number: int, config: TimingConfig) -> int:
    """Time a call on the set whose turn it is in call `number`, then check its outputs; return its nanoseconds."""
    index = number % len(calls)
    elapsed_ns, outputs = time_call(calls[index], config)
    config.check_outputs(index, outputs)
    return elapsed_ns


def time_often(calls: Sequence[Call], config: TimingConfig, least: int, most: int, seconds: float) -> list[int]:
    """Time calls in turn, `least` or more of them, up to `most` within `seconds`; return the nanoseconds of each."""
    samples: list[int] = []
    end = time.monotonic() + seconds
    while len(samples) < least or (len(samples) < most and time.monotonic() < end):
        samples.append(time_call(calls[len(samples) % len(calls)], config)[0])
    return samples


def time_block(calls: Sequence[Call], config: TimingConfig) -> tuple[int, Outputs, int]:
    """Time a block of calls with the throughput clock; return nanoseconds per call, last outputs and number of calls.

    Outputs of earlier calls are dropped at once, because engines may reuse their memory. If caches are flushed, CUDA
    events bracket each call in a full queue; a CPU has no queue, so each call is timed alone, without the flush. On a
    CPU a block ends early after `LONGEST_BLOCK_S`, but not before two calls: if threads wait for each other and another
    process has the CPU of one of them, a call was seen to take a thousand times as long as before.
    """
    return (_time_cuda_block if config.device == "cuda" else _time_cpu_block)(calls, config)


def _time_cpu_block(calls: Sequence[Call], config: TimingConfig) -> tuple[int, Outputs, int]:
    outputs: Outputs = ()
    longest_ns = round(LONGEST_BLOCK_S * 1e9)
    if config.flush is not None:
        total = made = 0
        for call in calls:
            elapsed_ns, outputs = time_call(call, config)
            total, made = total + elapsed_ns, made + 1
            if total > longest_ns and made >= 2:
                break
        return total // made, outputs, made
    parts = [(part[:-1], part[-1]) for part in _parts(calls)]
    made = elapsed_ns = 0
    started = now_ns()
    for others, last in parts:
        outputs = ()
        for call in others:
            call()
        outputs = last()
        made += len(others) + 1
        elapsed_ns = now_ns() - started
        if elapsed_ns > longest_ns and made >= 2:
            break
    return elapsed_ns // made, outputs, made


def _parts(calls: Sequence[Call]) -> list[Sequence[Call]]:
    size = -(-len(calls) // _PARTS)
    return [calls[begin : begin + size] for begin in range(0, len(calls), size)]


def _time_cuda_block(calls: Sequence[Call], config: TimingConfig) -> tuple[int, Outputs, int]:
    groups = [[call] for call in calls] if config.flush is not None else [list(calls)]
    outputs: Outputs = ()
    calls[0]()  # so that the queue is not empty when the device reaches the first event
    brackets = []
    for group in groups:
        if config.flush is not None:
            config.flush()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        *others, last = group
        for call in others:
            call()
        outputs = last()
        end.record()
        if group is not groups[-1]:
            outputs = ()
        brackets.append((begin, end))
    torch.cuda.synchronize()
    return round(sum(begin.elapsed_time(end) for begin, end in brackets) * 1e6 / len(calls)), outputs, len(calls)


def measure_overhead(outputs: Outputs, config: TimingConfig) -> Overhead:
    """Return the overhead of both clocks: their median nanoseconds per call, for calls that only return `outputs`."""

    def call() -> Outputs:
        return outputs

    latency = median(time_call(call, config)[0] for _ in range(_OVERHEAD_CALLS))
    throughput = median(time_block([call] * _OVERHEAD_BLOCK, config)[0] for _ in range(_OVERHEAD_BLOCKS))
    return Overhead(round(latency), round(throughput))
