"""Checks the clocks against a busy wait of known length and against torch's own timer."""

import random
import time
from collections.abc import Callable
from statistics import median

import torch
from torch.utils.benchmark import Timer

from bakeoff.backends.backend import Outputs
from bakeoff.process.jobs import ClockJob, ClockResult
from bakeoff.record.policy import Policy
from bakeoff.worker.clocks.clock import TimingConfig, measure_overhead, time_block, time_call
from bakeoff.worker.reporter import Report
from bakeoff.worker.torch_flags import flags

_WAIT_NS = 5_000_000
_WAITS = 200
_PROBES = 60
_QUIET = 0.02
_ATTEMPTS = 5
_PAUSE_S = 0.5
_PAIRS = 12
_BLOCK_S = 0.1
_TENSORS = 4


def check_clock(job: ClockJob, report: Report) -> ClockResult:
    """Compare the clocks with a busy wait and torch's timer, up to five times until the host is quiet and both agree.

    The host is quiet if fixed work repeats within 2 %. One thread is used: with two, the host's scheduler would be
    measured too.
    """
    config = TimingConfig(job.device, Policy(), lambda _index, _outputs: None)
    with flags("fp32", 1):
        for attempt in range(1, _ATTEMPTS + 1):
            report("clock", f"attempt {attempt}")
            spread = _probe_spread(config)
            if spread >= _QUIET and attempt < _ATTEMPTS:
                time.sleep(_PAUSE_S)
                continue
            waits = [time_call(_busy_wait, config)[0] for _ in range(_WAITS)]
            timer_ratio = _timer_ratio(config)
            spread = max(spread, _probe_spread(config))
            if spread < _QUIET and abs(median(waits) / _WAIT_NS - 1) <= 0.02 and abs(timer_ratio - 1) <= 0.03:
                break
        outputs = tuple(torch.ones(1, device=job.device) for _ in range(_TENSORS))
        overhead = measure_overhead(outputs, config)
    return ClockResult(
        probe_spread=spread,
        wait_ratio=median(waits) / _WAIT_NS,
        wait_samples=len(waits),
        timer_ratio=timer_ratio,
        latency_overhead_ns=overhead.latency_ns,
        throughput_overhead_ns=overhead.throughput_ns,
        attempts=attempt,
    )


def _busy_wait() -> Outputs:
    until = time.perf_counter_ns() + _WAIT_NS
    while time.perf_counter_ns() < until:
        pass
    return ()


def _work(config: TimingConfig) -> Callable[[], Outputs]:
    """Return a function that computes a matrix product, which takes about a millisecond on one CPU core."""
    left = torch.full((320, 320), 0.5, device=config.device)
    return lambda: (torch.mm(left, left),)


def _probe_spread(config: TimingConfig) -> float:
    """Return the relative difference between the medians of two series of the same work."""
    work = _work(config)
    samples = [time_call(work, config)[0] for _ in range(2 * _PROBES)]
    return abs(median(samples[:_PROBES]) / median(samples[_PROBES:]) - 1)


def _timer_ratio(config: TimingConfig) -> float:
    """Return the ratio of the throughput clock to torch's timer on one callable: a median of blocks in random order."""
    work = _work(config)
    timer = Timer("work()", globals={"work": work}, num_threads=1)
    order = random.Random(0)
    ratios = []
    for _ in range(_PAIRS):
        ours_first = order.random() < 0.5
        taken = {}
        for ours in (ours_first, not ours_first):
            taken[ours] = _ours(work, config) if ours else timer.blocked_autorange(min_run_time=_BLOCK_S).median * 1e9
        ratios.append(taken[True] / taken[False])
    return median(ratios)


def _ours(work: Callable[[], Outputs], config: TimingConfig) -> float:
    count = 20
    samples = []
    started = time.monotonic()
    while time.monotonic() - started < _BLOCK_S:
        samples.append(time_block([work] * count, config)[0])
    return median(samples)
