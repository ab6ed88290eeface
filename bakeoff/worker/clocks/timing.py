"""Two clocks: what one call takes until it is done, and what a call takes when the queue is never empty."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median

import psutil
import torch

from bakeoff.backends.backend import Call, Outputs
from bakeoff.record.policy import Policy
from bakeoff.record.schema import Clock, Finding, Overhead, Samples
from bakeoff.record.statistics import interval_ranks
from bakeoff.worker.checks.outputs import OutputCheck, copied, overwrite
from bakeoff.worker.reporter import Report
from bakeoff.worker.subject import synchronise

_now_ns = time.perf_counter_ns
"""Taken when this file is imported: what a back end puts in its place later does not move the lab's clock."""

_LEAST_SAMPLES = 5
_WARMUP_WINDOW = 3
_THROUGHPUT_SAMPLE_S = 0.05
_CHECK_EVERY_S = 0.25
_POINTS = 20
_LATE_S = 0.02
_OVERHEAD_CALLS = 2000
_OVERHEAD_BLOCK = 200
_PROBES = 5
_PROBE_ADDITIONS = 2000

Activity = Callable[[], Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class TimingConfig:
    """What the clocks run under. `check_outputs` sees the outputs of each call, between calls, outside the clock."""

    device: str
    policy: Policy
    check_outputs: OutputCheck
    flush: Callable[[], None] | None = None
    """Empties the caches before each call, untimed, for components that would else be measured from cache."""
    resident: Callable[[], int] = field(default=lambda: 0)
    """Bytes that the process holds on the host and the device."""
    inputs: tuple[torch.Tensor, ...] = ()
    """What the calls are bound to; never overwritten."""
    report: Report = field(default=lambda _phase, _detail="": None)


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
    cores: float
    """Cores that this process kept busy in the timed windows."""
    sizes: tuple[int, ...]
    """Bytes held, at regular moments of the latency window."""
    called: int
    """Calls in the latency window."""
    host_climb: float
    """How much slower a fixed piece of work was at the end of the latency window than at its beginning, as a ratio."""


def time_calls(calls: Sequence[Call], activity: Activity, config: TimingConfig) -> Timing:
    """Warm up, then run both clocks over `calls`, one bound call a set of inputs, in turn."""
    policy, report = config.policy, config.report
    report("warm-up")
    warmup_ns, settled = warm_up(calls, activity, config)
    findings = (
        [] if settled else [Finding("warm-up", f"samples still drifted after {policy.warmup_cap_s:.0f} s of warm-up")]
    )
    before = dict(activity())
    report("latency")
    with measure_cpu_usage() as latency_use:
        samples, stopped, points, called = _latency(calls, median(warmup_ns[-_LEAST_SAMPLES:]), config)
    after = activity()
    last, outputs = _last_calls(calls, config)
    report("throughput")
    between = dict(activity())
    with measure_cpu_usage() as throughput_use:
        throughput = _throughput(calls, median(samples), config)
    end = activity()
    moved = {name for name, count in after.items() if count != before.get(name, 0)}
    moved |= {name for name, count in end.items() if count != between.get(name, 0)}
    return Timing(
        latency=Clock(Samples([*samples, *last]), Samples(warmup_ns), 1, stopped),
        throughput=throughput,
        outputs=outputs,
        moved=tuple(sorted(moved)),
        findings=tuple(findings),
        others=max(latency_use().others, throughput_use().others),
        cores=max(latency_use().own, throughput_use().own),
        sizes=tuple(point.size for point in points),
        called=called,
        host_climb=_host_climb([point.probe_ns for point in points]),
    )


def timed(call: Call, config: TimingConfig) -> tuple[int, Outputs]:
    """One sample of the latency clock, nanoseconds, and what the call gave."""
    if config.flush is not None:
        config.flush()
        synchronise(config.device)
    started = _now_ns()
    outputs = call()
    synchronise(config.device)
    return _now_ns() - started, outputs


def measure_overhead(outputs: Outputs, config: TimingConfig) -> Overhead:
    """What the clocks read for a call that does nothing and gives `outputs`; medians, nanoseconds a call."""

    def call() -> Outputs:
        return outputs

    latency = median(timed(call, config)[0] for _ in range(_OVERHEAD_CALLS))
    throughput = median(queued([call] * _OVERHEAD_BLOCK, config) for _ in range(15))
    return Overhead(round(latency), round(throughput))


def queued(calls: Sequence[Call], config: TimingConfig) -> int:
    """One sample of the throughput clock, nanoseconds a call."""
    return _block(calls, config)[0]


def warm_up(calls: Sequence[Call], activity: Activity, config: TimingConfig) -> tuple[list[int], bool]:
    """Call until no counter moves and the last samples agree with the ones before, for `warmup_s` at least."""
    policy = config.policy
    samples: list[int] = []
    started = time.monotonic()
    quiet_since, counters = 0, dict(activity())
    while True:
        samples.append(_sample(calls, len(samples), config))
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


def _sample(calls: Sequence[Call], count: int, config: TimingConfig) -> int:
    """A timed call of the set whose turn it is, looked at."""
    index = count % len(calls)
    elapsed_ns, outputs = timed(calls[index], config)
    config.check_outputs(index, outputs)
    return elapsed_ns


def _agree(newest: Sequence[int], older: Sequence[int], ratio: float) -> bool:
    return abs(median(newest) / median(older) - 1) < ratio


@dataclass(frozen=True, slots=True)
class _Point:
    """What is read at regular moments of the latency window, between two calls."""

    size: int
    """Bytes held."""
    probe_ns: int
    """A fixed piece of work: what the host does to everybody alike."""


def _latency(
    calls: Sequence[Call], expected_ns: float, config: TimingConfig
) -> tuple[list[int], str, list[_Point], int]:
    """Sample until the rule says stop; of calls so fast that the samples would fill up early, every n-th is kept.

    Returns the samples, why it stopped, what was read meanwhile, and the number of calls.
    """
    policy = config.policy
    samples: list[int] = []
    points: list[_Point] = []
    room = policy.max_samples - len(calls)
    stride = max(1, math.ceil(policy.min_s * 1e9 / expected_ns / room))
    started = checked = time.monotonic()
    weighed = -math.inf
    stopped, count = "", 0
    while not stopped:
        elapsed_ns = _sample(calls, count, config)
        count += 1
        now = time.monotonic()
        if now - weighed >= policy.min_s / _POINTS:
            points.append(_Point(config.resident(), _probe()))
            weighed = now
        if count % stride:
            continue
        samples.append(elapsed_ns)
        if len(samples) >= room:
            stopped = "samples"
        elif now - started >= policy.cap_s and len(samples) >= _LEAST_SAMPLES:
            stopped = "cap"
        elif now - checked >= _CHECK_EVERY_S or now - started >= policy.min_s:
            checked = now
            config.report("latency", f"{len(samples)} samples")
            enough = len(samples) >= policy.min_samples and now - started >= policy.min_s
            if enough and _half_width(samples) < policy.narrow_ratio:
                stopped = "narrow"
    return samples, stopped, points, count


def _last_calls(calls: Sequence[Call], config: TimingConfig) -> tuple[list[int], tuple[Outputs, ...]]:
    """One more timed call of each set, and copies of what these gave the moment that the clock stopped.

    Before it the set is called once untimed and what that gave is overwritten: a call that returns before its work is
    done, or hands out again what it gave before, is seen to.
    """
    samples: list[int] = []
    copies: list[Outputs] = []
    for call in calls:
        before = timed(call, config)[1]
        time.sleep(_LATE_S)
        overwrite(before, config.inputs)
        del before
        elapsed_ns, outputs = timed(call, config)
        copies.append(copied(outputs))
        samples.append(elapsed_ns)
    return samples, tuple(copies)


def _half_width(samples: Sequence[int]) -> float:
    """Half the width of the median's 95 % interval as a share of the median."""
    ordered = sorted(samples)
    low, high = interval_ranks(len(ordered))
    return (ordered[high] - ordered[low]) / 2 / median(ordered)


def _throughput(calls: Sequence[Call], latency_ns: float, config: TimingConfig) -> Clock:
    """Blocks of calls without waiting between them: device events on CUDA, the wall clock on a CPU.

    Where caches are flushed, CUDA events bracket each call in a full queue; on a CPU there is no queue to fill, so the
    flush is left out of the sum by timing each call alone.
    """
    policy = config.policy
    count = max(2, round(_THROUGHPUT_SAMPLE_S * 1e9 / latency_ns))
    samples: list[int] = []
    started = time.monotonic()
    while len(samples) < 3 or (time.monotonic() - started < policy.throughput_s and len(samples) < policy.max_samples):
        first = len(samples)
        elapsed_ns, last = _block([calls[(first + index) % len(calls)] for index in range(count)], config)
        samples.append(elapsed_ns)
        config.check_outputs((first + count - 1) % len(calls), last)
    return Clock(Samples(samples), Samples(), count, "window")


def _block(calls: Sequence[Call], config: TimingConfig) -> tuple[int, Outputs]:
    """Nanoseconds a call, and what the last call gave: engines may overwrite what earlier ones did."""
    return (_cuda_block if config.device == "cuda" else _cpu_block)(calls, config)


def _cpu_block(calls: Sequence[Call], config: TimingConfig) -> tuple[int, Outputs]:
    outputs: Outputs = ()
    if config.flush is not None:
        total = 0
        for call in calls:
            elapsed_ns, outputs = timed(call, config)
            total += elapsed_ns
        return total // len(calls), outputs
    *others, last = calls
    started = _now_ns()
    for call in others:
        call()  # what it gave is dropped at once, so that the next may have its memory
    outputs = last()
    return (_now_ns() - started) // len(calls), outputs


def _cuda_block(calls: Sequence[Call], config: TimingConfig) -> tuple[int, Outputs]:
    """By events in a full queue."""
    groups = [[call] for call in calls] if config.flush is not None else [list(calls)]
    outputs: Outputs = ()
    calls[0]()  # the queue is not empty when the first event is reached
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
    return round(sum(begin.elapsed_time(end) for begin, end in brackets) * 1e6 / len(calls)), outputs


def _probe() -> int:
    """A fixed piece of work on one core, nanoseconds, the fastest of a few repeats; a fraction of a millisecond."""
    samples = []
    for _ in range(_PROBES):
        started = _now_ns()
        sum(range(_PROBE_ADDITIONS))
        samples.append(_now_ns() - started)
    return min(samples)


def _host_climb(probes: Sequence[int]) -> float:
    """The last fifth of the probes over the first; 1.0 of too few."""
    part = len(probes) // 5
    return median(probes[-part:]) / median(probes[:part]) if part else 1.0


@dataclass(frozen=True, slots=True)
class _Use:
    others: float = 0.0
    own: float = 0.0


@contextmanager
def measure_cpu_usage() -> Iterator[Callable[[], _Use]]:
    """Yields a function that gives, after the block, the share of all cores that other processes (and the hypervisor)
    took, and the number of cores that this one kept busy."""
    use = _Use()
    system, own, started = psutil.cpu_times(), time.process_time(), time.monotonic()
    yield lambda: use
    wall = time.monotonic() - started
    later = psutil.cpu_times()
    busy = sum(
        getattr(later, name) - getattr(system, name)
        for name in ("user", "nice", "system", "irq", "softirq", "steal")
        if hasattr(later, name)
    )
    mine = time.process_time() - own
    use = _Use(max(0.0, busy - mine) / (wall * (psutil.cpu_count() or 1)), mine / wall)
