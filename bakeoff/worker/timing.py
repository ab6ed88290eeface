"""Two clocks: what one call takes until it is done, and what a call takes when the queue is never empty."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

import psutil
import torch

from bakeoff.backends.backend import Call, Outputs
from bakeoff.policy import Policy
from bakeoff.record import Clock, Finding, Samples
from bakeoff.summary import interval_ranks
from bakeoff.worker.bench import Report, synchronise

_LEAST_SAMPLES = 5
_WARMUP_WINDOW = 3
_THROUGHPUT_SAMPLE_S = 0.05
_CHECK_EVERY_S = 0.25

Activity = Callable[[], Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Timing:
    """Both clocks' samples, and the outputs of the last timed call of each set of inputs."""

    latency: Clock
    throughput: Clock
    outputs: tuple[Outputs, ...]
    moved: tuple[str, ...]
    """Compile, autotune or capture counters that moved while the latency or throughput clock ran."""
    findings: tuple[Finding, ...]
    others: float
    """Share of all cores that other processes took in the timed windows."""


def time_calls(
    calls: Sequence[Call],
    device: str,
    policy: Policy,
    activity: Activity,
    report: Report,
    flush: Callable[[], None] | None,
) -> Timing:
    """Warm up, then run both clocks over `calls`, one bound call a set of inputs, in turn.

    `flush` empties the caches before each call, untimed, for components that would else be measured from cache.
    """
    report("warm-up", "")
    warmup_ns, settled = _warm_up(calls, device, policy, activity, flush)
    findings = (
        [] if settled else [Finding("warm-up", f"samples still drifted after {policy.warmup_cap_s:.0f} s of warm-up")]
    )
    before = dict(activity())
    report("latency", "")
    with _other_processes() as other_latency:
        samples, stopped, outputs = _latency(calls, device, policy, median(warmup_ns[-_LEAST_SAMPLES:]), report, flush)
    report("throughput", "")
    with _other_processes() as other_throughput:
        throughput = _throughput(calls, device, policy, median(samples), flush)
    after = activity()
    return Timing(
        latency=Clock(Samples(samples), Samples(warmup_ns), 1, stopped),
        throughput=throughput,
        outputs=outputs,
        moved=tuple(sorted(name for name, count in after.items() if count != before.get(name, 0))),
        findings=tuple(findings),
        others=max(other_latency(), other_throughput()),
    )


def _timed(call: Call, device: str, flush: Callable[[], None] | None) -> tuple[int, Outputs]:
    if flush is not None:
        flush()
        synchronise(device)
    started = time.perf_counter_ns()
    outputs = call()
    synchronise(device)
    return time.perf_counter_ns() - started, outputs


def _warm_up(
    calls: Sequence[Call], device: str, policy: Policy, activity: Activity, flush: Callable[[], None] | None
) -> tuple[list[int], bool]:
    """Call until no counter moves and the last samples agree with the ones before, for `warmup_s` at least."""
    samples: list[int] = []
    started = time.monotonic()
    quiet_since, counters = 0, dict(activity())
    while True:
        samples.append(_timed(calls[len(samples) % len(calls)], device, flush)[0])
        elapsed = time.monotonic() - started
        window = max(_WARMUP_WINDOW, min(len(samples) // 4, 200))
        if elapsed >= policy.warmup_s and (len(samples) - quiet_since) >= max(2 * window, len(calls)):
            moved = dict(activity())
            if moved != counters:
                counters, quiet_since = moved, len(samples)
            elif _agree(samples[-window:], samples[-2 * window : -window], policy.settle_ratio):
                return samples[-policy.max_samples :], True
        if elapsed >= policy.warmup_cap_s and len(samples) >= len(calls):
            return samples[-policy.max_samples :], False


def _agree(newest: Sequence[int], older: Sequence[int], ratio: float) -> bool:
    return abs(median(newest) / median(older) - 1) < ratio


def _latency(
    calls: Sequence[Call],
    device: str,
    policy: Policy,
    expected_ns: float,
    report: Report,
    flush: Callable[[], None] | None,
) -> tuple[list[int], str, tuple[Outputs, ...]]:
    """Sample until the rule says stop, then once more for each set, keeping a copy of what those last calls gave.

    Of calls so fast that the samples would fill up before `min_s`, every n-th is kept.
    """
    samples: list[int] = []
    room = policy.max_samples - len(calls)
    stride = max(1, math.ceil(policy.min_s * 1e9 / expected_ns / room))
    started = checked = time.monotonic()
    stopped, count = "", 0
    while not stopped:
        elapsed_ns, _ = _timed(calls[count % len(calls)], device, flush)
        count += 1
        if count % stride:
            continue
        samples.append(elapsed_ns)
        now = time.monotonic()
        if len(samples) >= room:
            stopped = "samples"
        elif now - started >= policy.cap_s and len(samples) >= _LEAST_SAMPLES:
            stopped = "cap"
        elif now - checked >= _CHECK_EVERY_S or now - started >= policy.min_s:
            checked = now
            report("latency", f"{len(samples)} samples")
            enough = len(samples) >= policy.min_samples and now - started >= policy.min_s
            if enough and _half_width(samples) < policy.narrow_ratio:
                stopped = "narrow"
    outputs = []
    for call in calls:
        elapsed_ns, produced = _timed(call, device, flush)
        samples.append(elapsed_ns)
        outputs.append(tuple(output.clone() if isinstance(output, torch.Tensor) else output for output in produced))
    return samples, stopped, tuple(outputs)


def _half_width(samples: Sequence[int]) -> float:
    """Half the width of the median's 95 % interval as a share of the median."""
    ordered = sorted(samples)
    low, high = interval_ranks(len(ordered))
    return (ordered[high] - ordered[low]) / 2 / median(ordered)


def _throughput(
    calls: Sequence[Call], device: str, policy: Policy, latency_ns: float, flush: Callable[[], None] | None
) -> Clock:
    """Blocks of calls without waiting between them: device events on CUDA, the wall clock on a CPU.

    Where caches are flushed, CUDA events bracket each call in a full queue; on a CPU there is no queue to fill, so the
    flush is left out of the sum by timing each call alone.
    """
    count = max(2, round(_THROUGHPUT_SAMPLE_S * 1e9 / latency_ns))
    samples: list[int] = []
    started = time.monotonic()
    block = _cuda_block if device == "cuda" else _cpu_block
    while len(samples) < 3 or (time.monotonic() - started < policy.throughput_s and len(samples) < policy.max_samples):
        samples.append(block([calls[(len(samples) + index) % len(calls)] for index in range(count)], flush))
    return Clock(Samples(samples), Samples(), count, "window")


def _cpu_block(calls: Sequence[Call], flush: Callable[[], None] | None) -> int:
    if flush is not None:
        return sum(_timed(call, "cpu", flush)[0] for call in calls) // len(calls)
    started = time.perf_counter_ns()
    for call in calls:
        call()
    return (time.perf_counter_ns() - started) // len(calls)


def _cuda_block(calls: Sequence[Call], flush: Callable[[], None] | None) -> int:
    groups = [[call] for call in calls] if flush is not None else [list(calls)]
    calls[0]()  # the queue is not empty when the first event is reached
    brackets = []
    for group in groups:
        if flush is not None:
            flush()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for call in group:
            call()
        end.record()
        brackets.append((begin, end))
    torch.cuda.synchronize()
    return round(sum(begin.elapsed_time(end) for begin, end in brackets) * 1e6 / len(calls))


@contextmanager
def _other_processes() -> Iterator[Callable[[], float]]:
    """Yields a function that gives, after the block, the share of all cores that others (and the hypervisor) took."""
    share = 0.0
    system, own, started = psutil.cpu_times(), time.process_time(), time.monotonic()
    yield lambda: share
    wall = time.monotonic() - started
    later = psutil.cpu_times()
    busy = sum(
        getattr(later, field) - getattr(system, field)
        for field in ("user", "nice", "system", "irq", "softirq", "steal")
        if hasattr(later, field)
    )
    share = max(0.0, busy - (time.process_time() - own)) / (wall * (psutil.cpu_count() or 1))
