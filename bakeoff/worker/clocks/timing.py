"""One engine timed: warm-up, the window in which both clocks run, and a last checked call of each set of inputs."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bakeoff.backends.backend import Call, Outputs
from bakeoff.record.schema import Clock, Finding, Samples, new_finding
from bakeoff.worker.checks.outputs import LATE_S, copied, overwrite
from bakeoff.worker.checks.window import WindowChecker
from bakeoff.worker.clocks.clock import TimingConfig, time_call
from bakeoff.worker.clocks.cpu_usage import CpuUsage, measure_cpu_usage
from bakeoff.worker.clocks.warm_up import Activity, warm_up
from bakeoff.worker.clocks.window import Window

_TYPICAL_CALLS = 20
"""The last calls of warm-up, whose median says how long a call takes."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Both clocks' samples, and what was observed in the timed window."""

    latency: Clock
    throughput: Clock
    outputs: tuple[Outputs, ...]
    """Copies of what the last timed call of each set of inputs returned."""
    moved_counters: tuple[str, ...]
    """Compile, autotune or capture counters that moved in the window."""
    findings: tuple[Finding, ...]
    cpu: CpuUsage
    """Who used the CPUs in the window."""
    held_bytes: tuple[int, ...]
    """Bytes held, at regular moments of the window."""
    calls: int
    """All calls in the window, untimed ones included."""
    host_slowdown: float
    """Time of a fixed piece of CPU work at the end of the window over that at its beginning."""
    """Round trips of a cache line between two CPUs, at the same moments as `held_bytes`; empty where not read."""


def time_calls(
    calls: Sequence[Call], activity: Activity, config: TimingConfig, checker: WindowChecker | None = None
) -> Timing:
    """Warm up, then run both clocks over `calls` in turn, one bound call for each set of inputs.

    `checker` compares outputs in full and changes inputs between timed calls.
    """
    config.report("warm-up")
    warmup_ns, settled = warm_up(calls, activity, config)
    findings = []
    if not settled:
        text = f"samples still drifted after {config.policy.warmup_cap_s:.0f} s of warm-up"
        findings.append(new_finding("warm-up", text))
    window = Window(calls, median(warmup_ns[-_TYPICAL_CALLS:]), config, checker)
    before = dict(activity())
    with measure_cpu_usage() as usage:
        window.run()
    moved = _moved(before, activity())
    config.report("check")
    last_ns, outputs = _last_calls(calls, config)
    return Timing(
        latency=Clock(
            Samples(window.latency_ns), Samples(warmup_ns), 1, window.stopped, Samples(last_ns), window.latency_calls
        ),
        throughput=Clock(
            Samples(window.throughput_ns),
            calls_per_sample=window.block_calls,
            stopped="window",
            calls=window.throughput_calls,
        ),
        outputs=outputs,
        moved_counters=tuple(sorted(moved)),
        findings=tuple(findings),
        cpu=usage(),
        held_bytes=tuple(window.held_bytes),
        calls=window.made,
        host_slowdown=_host_slowdown(window.probes_ns),
    )


def _moved(before: Mapping[str, int], after: Mapping[str, int]) -> set[str]:
    return {name for name, count in after.items() if count != before.get(name, 0)}


def _last_calls(calls: Sequence[Call], config: TimingConfig) -> tuple[list[int], tuple[Outputs, ...]]:
    """One more timed call of each set of inputs; returns the samples and copies of the outputs, made at once.

    Before it the set is called once more, and after a pause those outputs are overwritten: a call that returns before
    its work is done, or that returns outputs of an earlier call again, then gives NaN. The samples tell what a call
    takes after a pause; they are not those of the window.
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


def _host_slowdown(probes: Sequence[int]) -> float:
    """The median of the last fifth of the probes over that of the first; 1.0 for fewer than five."""
    part = len(probes) // 5
    return median(probes[-part:]) / median(probes[:part]) if part else 1.0
