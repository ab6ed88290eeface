"""The timed window: segments of both clocks in turn, so that a slow stretch of the machine falls on both."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bakeoff.backends.backend import Call
from bakeoff.models.words import counted
from bakeoff.record.statistics import half_width
from bakeoff.worker.checks.window import WindowChecker
from bakeoff.worker.clocks.clock import TimingConfig, now_ns, time_block, time_checked_call

_LEAST_SAMPLES = 5
_LEAST_BLOCKS = 3
_BLOCK_S = 0.05
_SEGMENTS = 10
"""Segments of each clock in the least time of a window."""
_CHECK_EVERY_S = 0.25
_MOMENTS = 20
"""Moments at which memory, the GPU and the host's speed are read."""
_CALLS_BETWEEN_READINGS = 4
_SETTLED_NS = 100_000_000
"""Longer calls are timed even after such a reading, which takes a hundredth of them at most."""
_PROBES = 5
_PROBE_ADDITIONS = 2000


@dataclass(slots=True)
class Window:
    """Samples of both clocks and what was read between them, as the window goes on."""

    calls: Sequence[Call]
    expected_ns: float
    """Of a call, from warm-up."""
    config: TimingConfig
    checker: WindowChecker | None = None
    latency_ns: list[int] = field(default_factory=list)
    throughput_ns: list[int] = field(default_factory=list)
    stopped: str = ""
    """Why it ended: "narrow", "cap" or "samples"; empty while it goes on."""
    latency_calls: int = 0
    """Calls that the latency clock timed, those whose samples were not kept included."""
    throughput_calls: int = 0
    made: int = 0
    """All calls, untimed ones included; decides whose turn it is."""
    held_bytes: list[int] = field(default_factory=list)
    probes_ns: list[int] = field(default_factory=list)
    """Fixed CPU work, timed to detect slowdowns of the whole host."""
    _latency_s: float = 0.0
    _throughput_s: float = 0.0
    _started: float = 0.0
    _checked: float = 0.0
    _read: float = -math.inf
    _read_at: int = -_CALLS_BETWEEN_READINGS
    _stride: int = 1
    _disturbed: bool = False
    """The next call follows work of the instrument itself and is not timed."""

    @property
    def block_calls(self) -> int:
        """Calls of one throughput sample, about 50 ms; two at least, and fewer in one that `time_block` ends early."""
        return max(2, round(_BLOCK_S * 1e9 / self.expected_ns))

    def run(self) -> None:
        """Sample until the policy's stopping rule holds; the clock that is behind goes on, a tenth of its time."""
        policy = self.config.policy
        # Where calls are so fast that samples would reach their maximum before the least time, every n-th is kept.
        self._stride = max(1, math.ceil(policy.min_s * 1e9 / self.expected_ns / policy.max_samples))
        if self.checker is not None:
            self.checker.begin(policy, self.expected_ns, self.block_calls)
        self._started = self._checked = time.monotonic()
        while not self.stopped:
            if self._latency_progress() <= self._throughput_progress():
                self.config.report("latency", self._counted())
                self._run_segment(self._latency_progress, self._time_latency)
            else:
                self.config.report("throughput", self._counted())
                self._run_segment(self._throughput_progress, self._time_throughput)
        while self.checker is not None and self.checker.lacking:
            self.made += self.checker.check(self.calls, self.made, self.config)

    def _counted(self) -> str:
        """Samples of both clocks: each is announced in turn, and a count of one alone would seem to run backwards."""
        return f"{counted(len(self.latency_ns), 'sample')} one by one, {len(self.throughput_ns)} of blocks"

    def _latency_progress(self) -> float:
        """1.0 once the least time and number of samples are reached; infinite once there is no room for samples."""
        policy, count = self.config.policy, len(self.latency_ns)
        if count >= policy.max_samples:
            return math.inf
        return min(_share(self._latency_s, policy.min_s), count / _LEAST_SAMPLES)

    def _throughput_progress(self) -> float:
        policy, count = self.config.policy, len(self.throughput_ns)
        if count >= policy.max_samples:
            return math.inf
        return min(_share(self._throughput_s, policy.throughput_s), count / _LEAST_BLOCKS)

    def _run_segment(self, progress: Callable[[], float], sample: Callable[[], None]) -> None:
        end = progress() + 1 / _SEGMENTS
        while not self.stopped and progress() < end:
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
        self._latency_s += time.monotonic() - started
        self.latency_calls += 1
        if self.latency_calls % self._stride == 0:
            self.latency_ns.append(elapsed_ns)

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
        self.throughput_calls += made
        self.config.check_outputs((self.made - 1) % sets, outputs)
        self._throughput_s += time.monotonic() - started
        self.throughput_ns.append(elapsed_ns)

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
        policy, now, count = self.config.policy, time.monotonic(), len(self.latency_ns)
        enough_blocks = self._throughput_progress() >= 1
        if count >= policy.max_samples and enough_blocks:
            return "samples"
        if now - self._started >= policy.cap_s + policy.throughput_s:
            return "cap" if count >= _LEAST_SAMPLES and len(self.throughput_ns) >= _LEAST_BLOCKS else ""
        enough = enough_blocks and count >= policy.min_samples and self._latency_s >= policy.min_s
        if not enough or now - self._checked < _CHECK_EVERY_S:
            return ""
        self._checked = now
        return "narrow" if half_width(self.latency_ns) < policy.narrow_ratio else ""


def _share(done_s: float, wanted_s: float) -> float:
    return done_s / wanted_s if wanted_s else math.inf


def _probe_ns() -> int:
    """Fixed work on one core, a fraction of a millisecond: nanoseconds, the fastest of a few repeats."""
    samples = []
    for _ in range(_PROBES):
        started = now_ns()
        sum(range(_PROBE_ADDITIONS))
        samples.append(now_ns() - started)
    return min(samples)
