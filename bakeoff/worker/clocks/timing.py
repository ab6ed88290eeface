"""Times one engine: warm-up, the window in which both clocks run, and a last checked call of each input set."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from bakeoff.backends.backend import Call, Outputs
from bakeoff.models.words import counted
from bakeoff.record.finding import Finding, new_finding
from bakeoff.record.schema import Clock, Samples
from bakeoff.record.statistics import half_width, modes
from bakeoff.worker.checks.growth import is_flat, is_steady
from bakeoff.worker.checks.outputs import LATE_S, copied, overwrite
from bakeoff.worker.checks.window import WindowChecker
from bakeoff.worker.clocks.clock import TimingConfig, now_ns, time_block, time_call, time_checked_call
from bakeoff.worker.clocks.cpu_usage import CpuUsage, measure_cpu_usage

Activity = Callable[[], Mapping[str, int]]
"""Returns counters that change when anything is compiled, tuned or captured."""
_TYPICAL_CALLS = 20
"""Number of calls at the end of warm-up whose median is the expected time of a call."""
_LEAST_SAMPLES = 5
_LEAST_BLOCKS = 3
_BLOCK_S = 0.05
_SEGMENTS = 10
"""Number of segments into which the least time of each clock is divided; the clocks take turns segment by segment."""
_CHECK_EVERY_S = 0.25
_MOMENTS = 20
"""Number of moments in a window at which memory, the GPU and the host's speed are read."""
_CALLS_BETWEEN_READINGS = 4
_SETTLED_NS = 100_000_000
"""Calls longer than this are timed even right after a reading, which takes at most a hundredth of their time."""
_PROBES = 5
_PROBE_ADDITIONS = 2000
_LEAST_WINDOW = 3
_LARGEST_WINDOW = 200


@dataclass(frozen=True, slots=True)
class Timing:
    """Samples of both clocks, and what was observed in the timed window."""

    latency: Clock
    throughput: Clock
    outputs: tuple[Outputs, ...]
    """Copies of the outputs of the last timed call of each input set."""
    moved_counters: tuple[str, ...]
    """Compile, autotune or capture counters that moved in the window."""
    findings: tuple[Finding, ...]
    cpu: CpuUsage
    """CPU usage in the window, by this process, its descendants and others."""
    held_bytes: tuple[int, ...]
    """Bytes that the process held at regular moments of the window."""
    calls: int
    """Number of all calls in the window, untimed ones included."""
    host_slowdown: float
    """Ratio of the time of a fixed piece of CPU work at the end of the window to that at its beginning."""


def time_calls(
    calls: Sequence[Call], activity: Activity, config: TimingConfig, checker: WindowChecker | None = None
) -> Timing:
    """Warm up, then run both clocks over `calls` in turn, one bound call for each input set.

    `checker` compares outputs in full and changes inputs between timed calls.
    """
    config.report("warm-up")
    warmup_ns, settled = warm_up(calls, activity, config)
    findings = []
    if not settled:
        text = f"samples still drifted after {config.policy.warmup_cap_s:.0f} s of warm-up"
        findings.append(new_finding("warm-up", text))
    window = _Window(calls, warmup_ns, config, checker)
    before = dict(activity())
    with measure_cpu_usage() as usage:
        window.run()
    moved = moved_counters(before, activity())
    config.report("check")
    last_ns, outputs = _last_calls(calls, config)
    return Timing(
        latency=Clock(
            Samples(window.latency.samples_ns),
            Samples(warmup_ns),
            1,
            window.stopped,
            Samples(last_ns),
            window.latency.calls,
        ),
        throughput=Clock(
            Samples(window.throughput.samples_ns),
            calls_per_sample=window.block_calls,
            stopped="window",
            calls=window.throughput.calls,
        ),
        outputs=outputs,
        moved_counters=tuple(sorted(moved)),
        findings=tuple(findings),
        cpu=usage(),
        held_bytes=tuple(window.held_bytes),
        calls=window.made,
        host_slowdown=_host_slowdown(window.probes_ns),
    )


def moved_counters(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[str, ...]:
    """Return the names of the counters whose values differ, in the order of `after`."""
    return tuple(name for name, count in after.items() if count != before.get(name, 0))


def _last_calls(calls: Sequence[Call], config: TimingConfig) -> tuple[list[int], tuple[Outputs, ...]]:
    """Time one more call of each input set; return the nanoseconds, and copies of the outputs made right afterwards.

    The set is called once before, and after a pause those outputs are overwritten: a call that returns before its work
    is done, or that returns earlier outputs again, then gives NaN. The samples show what a call takes after a pause,
    and are kept apart from those of the window.
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
    """Return the ratio of the median of the last fifth of the probes to that of the first; 1.0 for fewer than five."""
    part = len(probes) // 5
    return median(probes[-part:]) / median(probes[:part]) if part else 1.0


@dataclass(slots=True)
class _ClockSamples:
    """Samples of one clock in the window, and how many samples and seconds it needs."""

    least: int
    """Fewest samples that are needed."""
    least_s: float
    """Shortest time in seconds that is needed."""
    room: int
    """Largest number of samples that are kept."""
    samples_ns: list[int] = field(default_factory=list)
    seconds: float = 0.0
    calls: int = 0
    """Number of timed calls, including those whose samples were not kept."""

    @property
    def progress(self) -> float:
        """Share of the least time and number of samples that is reached; infinite without room for more samples."""
        if len(self.samples_ns) >= self.room:
            return math.inf
        return min(self.seconds / self.least_s if self.least_s else math.inf, len(self.samples_ns) / self.least)


@dataclass(slots=True)
class _Window:
    """State of a running window: the samples of both clocks, and readings of the machine between them."""

    calls: Sequence[Call]
    warmup_ns: Sequence[int]
    config: TimingConfig
    checker: WindowChecker | None = None
    stopped: str = ""
    """Reason why the window ended, as in `Clock.stopped`; empty while it runs."""
    made: int = 0
    """Number of all calls so far, untimed ones included; it decides which input set is next."""
    held_bytes: list[int] = field(default_factory=list)
    probes_ns: list[int] = field(default_factory=list)
    """Times of a fixed piece of CPU work, which show slowdowns of the whole host."""
    expected_ns: float = field(init=False)
    """Expected time of a call, from warm-up."""
    latency: _ClockSamples = field(init=False)
    throughput: _ClockSamples = field(init=False)
    _started: float = 0.0
    _checked: float = 0.0
    _read: float = -math.inf
    _read_at: int = -_CALLS_BETWEEN_READINGS
    _stride: int = 1
    _disturbed: bool = False
    """Whether the next call follows work of the instrument itself and so is not timed."""

    def __post_init__(self) -> None:
        policy = self.config.policy
        self.expected_ns = median(self.warmup_ns[-_TYPICAL_CALLS:])
        self.latency = _ClockSamples(_LEAST_SAMPLES, policy.min_s, policy.max_samples)
        self.throughput = _ClockSamples(_LEAST_BLOCKS, policy.throughput_s, policy.max_samples)

    @property
    def block_calls(self) -> int:
        """Number of calls in a throughput sample of about 50 ms, at least two; `time_block` may end it early."""
        return max(2, round(_BLOCK_S * 1e9 / self.expected_ns))

    def run(self) -> None:
        """Sample until the policy's stopping rule applies. The clock that is behind runs a tenth of its least time."""
        policy = self.config.policy
        # Where calls are so fast that samples would reach their maximum before the full time, every n-th is kept.
        self._stride = max(1, math.ceil(max(policy.min_s, policy.full_s) * 1e9 / self.expected_ns / policy.max_samples))
        if self.checker is not None:
            self.checker.begin(policy, self.expected_ns, self.block_calls)
        self._started = self._checked = time.monotonic()
        while not self.stopped:
            if self.latency.progress <= self.throughput.progress:
                self._run_segment("latency", self.latency, self._time_latency)
            else:
                self._run_segment("throughput", self.throughput, self._time_throughput)
        while self.checker is not None and self.checker.lacking:
            self.made += self.checker.check(self.calls, self.made, self.config)

    def _run_segment(self, phase: str, taken: _ClockSamples, sample: Callable[[], None]) -> None:
        # Samples of both clocks: each phase is announced in turn, and a count of one alone would seem to run backwards.
        counts = f"{counted(len(self.latency.samples_ns), 'sample')} one by one, {len(self.throughput.samples_ns)}"
        self.config.report(phase, f"{counts} of blocks")
        end = taken.progress + 1 / _SEGMENTS
        while not self.stopped and taken.progress < end:
            sample()
            self._read_machine()
            self.stopped = self._reason_to_stop()

    def _time_latency(self) -> None:
        checker = self.checker
        if checker is not None and checker.due():
            self.made += checker.check(self.calls, self.made, self.config)
            self._disturbed = True
        started = time.monotonic()
        elapsed_ns = time_checked_call(self.calls, self.made, self.config)
        self.made += 1
        if self._disturbed:
            self._disturbed = False
            return
        self.latency.seconds += time.monotonic() - started
        self.latency.calls += 1
        if self.latency.calls % self._stride == 0:
            self.latency.samples_ns.append(elapsed_ns)

    def _time_throughput(self) -> None:
        checker, count, sets = self.checker, self.block_calls, len(self.calls)
        if checker is not None and checker.block_due():
            self.made += checker.check_block(self.calls, count, self.config)
            self._disturbed = True
        if self._disturbed:
            time_checked_call(self.calls, self.made, self.config)
            self.made += 1
            self._disturbed = False
        started = time.monotonic()
        block = [self.calls[(self.made + index) % sets] for index in range(count)]
        elapsed_ns, outputs, made = time_block(block, self.config)
        self.made += made
        self.throughput.calls += made
        self.config.check_outputs((self.made - 1) % sets, outputs)
        self.throughput.seconds += time.monotonic() - started
        self.throughput.samples_ns.append(elapsed_ns)

    def _read_machine(self) -> None:
        policy, now = self.config.policy, time.monotonic()
        length_s = policy.min_s + policy.throughput_s
        slow = self.expected_ns >= _SETTLED_NS
        if now - self._read < length_s / _MOMENTS or (self.made - self._read_at < _CALLS_BETWEEN_READINGS and not slow):
            return
        self._read, self._read_at = now, self.made
        self.held_bytes.append(self.config.held_bytes())
        self.probes_ns.append(_probe_ns())
        self.config.read_gpu()
        self._disturbed = not slow

    def _reason_to_stop(self) -> str:
        policy, now = self.config.policy, time.monotonic()
        samples, blocks = self.latency.samples_ns, self.throughput.samples_ns
        enough_blocks = self.throughput.progress >= 1
        if len(samples) >= policy.max_samples and enough_blocks:
            return "samples"
        if now - self._started >= policy.cap_s + policy.throughput_s:
            return "cap" if len(samples) >= _LEAST_SAMPLES and len(blocks) >= _LEAST_BLOCKS else ""
        enough = enough_blocks and len(samples) >= policy.min_samples and self.latency.progress >= 1
        if not enough or now - self._checked < _CHECK_EVERY_S:
            return ""
        self._checked = now
        full = self.latency.seconds >= policy.full_s
        if half_width(samples) >= policy.narrow_ratio:
            return "modes" if full and modes(samples) is not None else ""
        if full:
            return "narrow"
        flat = is_flat(self.held_bytes, policy.min_s / policy.full_s)
        return "steady" if flat and is_steady(samples, self.warmup_ns, blocks, policy.narrow_ratio) else ""


def _probe_ns() -> int:
    """Return the nanoseconds of a fixed piece of work on one core, a fraction of a millisecond: the fastest of five."""
    samples = []
    for _ in range(_PROBES):
        started = now_ns()
        sum(range(_PROBE_ADDITIONS))
        samples.append(now_ns() - started)
    return min(samples)


def warm_up(calls: Sequence[Call], activity: Activity, config: TimingConfig) -> tuple[list[int], bool]:
    """Call until no counter changes and the last samples agree with those before them, for `warmup_s` or longer.

    Return the samples in nanoseconds, at most the newest `max_samples`, and whether steady state was reached before
    `warmup_cap_s`. Every input set is called at least once.
    """
    policy = config.policy
    samples: list[int] = []
    started = time.monotonic()
    quiet_since, counters = 0, dict(activity())
    while True:
        samples.append(time_checked_call(calls, len(samples), config))
        elapsed = time.monotonic() - started
        enough = max(2 * window_of(samples), len(calls))
        if elapsed >= policy.warmup_s and len(samples) - quiet_since >= enough:
            moved = dict(activity())
            if moved != counters:
                counters, quiet_since = moved, len(samples)
            elif agree(samples, policy.settle_ratio):
                return samples[-policy.max_samples :], True
        if elapsed >= policy.warmup_cap_s and len(samples) >= len(calls):
            return samples[-policy.max_samples :], False


def window_of(samples: Sequence[int]) -> int:
    """Return how many of the newest samples are compared with as many before them."""
    return max(_LEAST_WINDOW, min(len(samples) // 4, _LARGEST_WINDOW))


def agree(samples: Sequence[int], ratio: float) -> bool:
    """Return whether the medians of the last two windows of samples differ by less than `ratio`; both have samples."""
    window = window_of(samples)
    return abs(median(samples[-window:]) / median(samples[-2 * window : -window]) - 1) < ratio
