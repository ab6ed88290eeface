"""One engine timed: warm-up, the latency window, a last checked call of each set of inputs, the throughput window."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from bakeoff.backends.backend import Call, Outputs
from bakeoff.record.schema import Clock, Finding, Samples, new_finding
from bakeoff.record.statistics import interval_ranks
from bakeoff.worker.checks.outputs import LATE_S, copied, overwrite
from bakeoff.worker.clocks.clock import TimingConfig, now_ns, time_block, time_call, time_checked_call
from bakeoff.worker.clocks.cpu_usage import measure_cpu_usage
from bakeoff.worker.clocks.warm_up import Activity, warm_up

_LEAST_SAMPLES = 5
_THROUGHPUT_SAMPLE_S = 0.05
_CHECK_EVERY_S = 0.25
_POINTS = 20
"""Moments of the latency window at which memory and the host's speed are read."""
_PROBES = 5
_PROBE_ADDITIONS = 2000


@dataclass(frozen=True, slots=True)
class Timing:
    """Both clocks' samples, and what was observed in the timed windows."""

    latency: Clock
    throughput: Clock
    outputs: tuple[Outputs, ...]
    """Copies of what the last timed call of each set of inputs returned."""
    moved_counters: tuple[str, ...]
    """Compile, autotune or capture counters that moved in a timed window."""
    findings: tuple[Finding, ...]
    other_cpu_share: float
    """Share of all cores that other processes used, 0 to 1; the larger of the two windows."""
    cores_busy: float
    """Cores that this process kept busy; the larger of the two windows."""
    held_bytes: tuple[int, ...]
    """Bytes held, at regular moments of the latency window."""
    calls: int
    """Calls in the latency window, samples that were not kept included."""
    host_slowdown: float
    """Time of a fixed piece of CPU work at the end of the latency window over that at its beginning."""


@dataclass(slots=True)
class _Window:
    """The latency window as it goes on."""

    samples_ns: list[int] = field(default_factory=list)
    calls: int = 0
    stopped: str = ""
    """Why it ended: "narrow", "cap" or "samples"; empty while it goes on."""
    held_bytes: list[int] = field(default_factory=list)
    probes_ns: list[int] = field(default_factory=list)
    """Fixed CPU work, timed to detect slowdowns of the whole host."""


def time_calls(calls: Sequence[Call], activity: Activity, config: TimingConfig) -> Timing:
    """Warm up, then run both clocks over `calls` in turn, one bound call for each set of inputs."""
    policy, report = config.policy, config.report
    report("warm-up")
    warmup_ns, settled = warm_up(calls, activity, config)
    findings = []
    if not settled:
        text = f"samples still drifted after {policy.warmup_cap_s:.0f} s of warm-up"
        findings.append(new_finding("warm-up", text))
    before = dict(activity())
    report("latency")
    with measure_cpu_usage() as latency_usage:
        window = _latency_window(calls, median(warmup_ns[-_LEAST_SAMPLES:]), config)
    after = dict(activity())
    last_ns, outputs = _last_calls(calls, config)
    between = dict(activity())
    report("throughput")
    with measure_cpu_usage() as throughput_usage:
        throughput = _throughput_window(calls, median(window.samples_ns), config)
    moved = _moved(before, after) | _moved(between, activity())
    return Timing(
        latency=Clock(Samples([*window.samples_ns, *last_ns]), Samples(warmup_ns), 1, window.stopped),
        throughput=throughput,
        outputs=outputs,
        moved_counters=tuple(sorted(moved)),
        findings=tuple(findings),
        other_cpu_share=max(latency_usage().other_share, throughput_usage().other_share),
        cores_busy=max(latency_usage().own_cores, throughput_usage().own_cores),
        held_bytes=tuple(window.held_bytes),
        calls=window.calls,
        host_slowdown=_host_slowdown(window.probes_ns),
    )


def _moved(before: Mapping[str, int], after: Mapping[str, int]) -> set[str]:
    return {name for name, count in after.items() if count != before.get(name, 0)}


def _latency_window(calls: Sequence[Call], expected_ns: float, config: TimingConfig) -> _Window:
    """Sample until the policy's stopping rule holds. Where calls are so fast that the samples would reach their maximum
    before the least time, only every n-th is kept."""
    policy = config.policy
    window = _Window()
    room = policy.max_samples - len(calls)
    stride = max(1, math.ceil(policy.min_s * 1e9 / expected_ns / room))
    started = checked = time.monotonic()
    observed = -math.inf
    while not window.stopped:
        elapsed_ns = time_checked_call(calls, window.calls, config)
        window.calls += 1
        now = time.monotonic()
        if now - observed >= policy.min_s / _POINTS:
            window.held_bytes.append(config.held_bytes())
            window.probes_ns.append(_probe_ns())
            observed = now
        if window.calls % stride:
            continue
        samples = window.samples_ns
        samples.append(elapsed_ns)
        if len(samples) >= room:
            window.stopped = "samples"
        elif now - started >= policy.cap_s and len(samples) >= _LEAST_SAMPLES:
            window.stopped = "cap"
        elif now - checked >= _CHECK_EVERY_S or now - started >= policy.min_s:
            checked = now
            config.report("latency", f"{len(samples)} samples")
            enough = len(samples) >= policy.min_samples and now - started >= policy.min_s
            if enough and _half_width(samples) < policy.narrow_ratio:
                window.stopped = "narrow"
    return window


def _last_calls(calls: Sequence[Call], config: TimingConfig) -> tuple[list[int], tuple[Outputs, ...]]:
    """One more timed call of each set of inputs; returns the samples and copies of the outputs, made at once.

    Before it the set is called once more and those outputs are overwritten: a call that returns before its work is
    done, or that returns outputs of an earlier call again, then gives NaN.
    """
    samples: list[int] = []
    copies: list[Outputs] = []
    for call in calls:
        before = time_call(call, config)[1]
        time.sleep(LATE_S)
        overwrite(before, config.inputs)
        del before
        elapsed_ns, outputs = time_call(call, config)
        copies.append(copied(outputs))
        samples.append(elapsed_ns)
    return samples, tuple(copies)


def _half_width(samples: Sequence[int]) -> float:
    """Half the width of the median's 95 % interval as a share of the median."""
    ordered = sorted(samples)
    low, high = interval_ranks(len(ordered))
    return (ordered[high] - ordered[low]) / 2 / median(ordered)


def _throughput_window(calls: Sequence[Call], latency_ns: float, config: TimingConfig) -> Clock:
    """Blocks of about 50 ms of calls without waiting between them, for `throughput_s`; three at least."""
    policy = config.policy
    count = max(2, round(_THROUGHPUT_SAMPLE_S * 1e9 / latency_ns))
    samples: list[int] = []
    started = time.monotonic()
    while len(samples) < 3 or (time.monotonic() - started < policy.throughput_s and len(samples) < policy.max_samples):
        first = len(samples)
        elapsed_ns, last = time_block([calls[(first + index) % len(calls)] for index in range(count)], config)
        samples.append(elapsed_ns)
        config.check_outputs((first + count - 1) % len(calls), last)
    return Clock(Samples(samples), Samples(), count, "window")


def _probe_ns() -> int:
    """Fixed work on one core, a fraction of a millisecond: nanoseconds, the fastest of a few repeats."""
    samples = []
    for _ in range(_PROBES):
        started = now_ns()
        sum(range(_PROBE_ADDITIONS))
        samples.append(now_ns() - started)
    return min(samples)


def _host_slowdown(probes: Sequence[int]) -> float:
    """The median of the last fifth of the probes over that of the first; 1.0 for fewer than five."""
    part = len(probes) // 5
    return median(probes[-part:]) / median(probes[:part]) if part else 1.0
