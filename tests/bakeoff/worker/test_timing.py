"""The clocks: a call of 5 ms reads 5 ms, and every stopping and warm-up rule holds."""

import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import median

import pytest
import torch
from torch import Tensor

from bakeoff.backends.backend import Call, Outputs
from bakeoff.record.policy import Policy
from bakeoff.worker.clocks import clock
from bakeoff.worker.clocks import timing as timing_module
from bakeoff.worker.clocks.clock import TimingConfig, time_block, time_call
from bakeoff.worker.clocks.timing import Timing, time_calls, window_of

MILLISECOND = 1_000_000
EVER = 1e9


def busy(milliseconds: float) -> Call:
    """A call that uses a CPU core for this long, by the same counter as the clocks."""

    def call() -> Outputs:
        until = time.perf_counter_ns() + milliseconds * MILLISECOND
        while time.perf_counter_ns() < until:
            pass
        return (torch.ones(1),)

    return call


def idle(milliseconds: float) -> Call:
    def call() -> Outputs:
        time.sleep(milliseconds / 1000)
        return (torch.ones(1),)

    return call


def no_counters() -> Mapping[str, int]:
    return {}


def timed(
    policy: Policy,
    *calls: Call,
    activity: Callable[[], Mapping[str, int]] = no_counters,
    report: Callable[[str, str], None] = lambda _phase, _detail="": None,
    flush: Callable[[], None] | None = None,
) -> Timing:
    config = TimingConfig("cpu", policy, lambda _index, _outputs: None, flush, report=report)
    return time_calls(calls, activity, config)


def test_five_milliseconds_read_as_five_milliseconds(fast: Policy) -> None:
    own: list[int] = []  # each call timed from within: delays by other processes are in both figures
    five = busy(5)

    def call() -> Outputs:
        started = time.perf_counter_ns()
        outputs = five()
        own.append(time.perf_counter_ns() - started)
        return outputs

    ratios = []
    for _ in range(5):
        own.clear()
        timing = timed(fast, call, call)
        latency, throughput = timing.latency, timing.throughput
        taken = own[len(latency.warmup_ns) : -4]  # after the window an untimed call and a timed one for each of the two
        assert len(taken) == timing.calls >= latency.calls + throughput.calls
        assert latency.calls == len(latency.samples_ns)
        assert throughput.calls == len(throughput.samples_ns) * throughput.calls_per_sample
        assert min(*latency.samples_ns, *throughput.samples_ns) >= 5 * MILLISECOND
        ratios = [
            min(latency.samples_ns) / (5 * MILLISECOND),
            median(latency.samples_ns) / median(taken),
            median(throughput.samples_ns) / median(taken),
        ]
        if max(ratios) < 1.2:
            break
    assert max(ratios) < 1.2
    assert min(ratios) >= 0.9


def test_what_takes_twice_as_long_reads_as_twice_as_long(fast: Policy) -> None:
    ratios = []
    for _ in range(5):
        once, twice = (median(timed(fast, idle(length)).latency.samples_ns) for length in (5, 10))
        ratios.append(twice / once)
        if 1.6 < ratios[-1] < 2.4:
            break
    assert 1.6 < ratios[-1] < 2.4, ratios


def test_a_sample_lasts_until_the_device_is_done(fast: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "synchronise", lambda _device: time.sleep(0.005))
    elapsed_ns, _ = time_call(lambda: (torch.ones(1),), TimingConfig("cpu", fast, lambda _index, _outputs: None))
    assert elapsed_ns >= 5 * MILLISECOND


def test_the_clock_that_is_read_is_none_that_other_code_put_in_its_place(
    fast: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = TimingConfig("cpu", fast, lambda _index, _outputs: None)
    monkeypatch.setattr(time, "perf_counter_ns", lambda: 0)
    assert time_call(idle(1), config)[0] >= MILLISECOND


def test_a_narrow_interval_ends_the_clock_but_not_before_the_least_samples(fast: Policy) -> None:
    policy = replace(fast, min_samples=30, min_s=0.001, full_s=0.001, cap_s=EVER, narrow_ratio=EVER)
    latency = timed(policy, idle(2)).latency
    assert latency.stopped == "narrow"
    assert len(latency.samples_ns) >= 30


def test_the_clock_runs_for_the_least_time(fast: Policy) -> None:
    policy = replace(fast, min_samples=1, min_s=0.3, full_s=0.3, cap_s=EVER, narrow_ratio=EVER)
    latency = timed(policy, idle(10)).latency
    assert latency.stopped == "narrow"
    assert sum(latency.samples_ns) >= 0.25e9


@pytest.mark.parametrize(("steady", "grown", "stopped"), [(1, 0, "steady"), (0, 0, "narrow"), (1, 1 << 30, "narrow")])
def test_a_window_ends_before_its_full_time_only_where_nothing_is_suspicious(
    fast: Policy, monkeypatch: pytest.MonkeyPatch, steady: int, grown: int, stopped: str
) -> None:
    monkeypatch.setattr(timing_module, "is_steady", lambda *_: bool(steady))
    held = itertools.count(0, grown)
    policy = replace(fast, min_s=0.1, full_s=0.6, cap_s=EVER, narrow_ratio=EVER)
    config = TimingConfig("cpu", policy, lambda _index, _outputs: None, held_bytes=lambda: next(held))
    latency = time_calls([idle(2)], no_counters, config).latency
    assert latency.stopped == stopped
    assert (sum(latency.samples_ns) >= 0.5e9) == (stopped == "narrow")


def test_the_cap_ends_the_clock_after_five_samples(fast: Policy) -> None:
    policy = replace(fast, min_samples=1000, min_s=0.0, cap_s=0.01, throughput_s=0.0, narrow_ratio=0.0)
    latency = timed(policy, idle(20), idle(20)).latency
    assert latency.stopped == "cap"
    assert len(latency.samples_ns) == 5


def test_calls_after_a_pause_of_the_instrument_are_no_samples(fast: Policy) -> None:
    """Of each set the last call follows a pause of 20 ms; here it takes ten times as long as the others."""
    resting = [time.perf_counter()]

    def call() -> Outputs:
        outputs = idle(20 if time.perf_counter() - resting[0] > 0.015 else 2)()
        resting[0] = time.perf_counter()
        return outputs

    latency = timed(replace(fast, warmup_s=0.0), call, call, call).latency
    assert len(latency.after_pause_ns) == 3
    assert min(latency.after_pause_ns) >= 20 * MILLISECOND
    assert median(latency.samples_ns) < 10 * MILLISECOND
    assert latency.calls == len(latency.samples_ns)


def test_the_call_after_the_instruments_own_work_is_no_sample(fast: Policy) -> None:
    """It finds the instrument's data in the caches."""
    read = itertools.count()
    config = TimingConfig("cpu", fast, lambda _index, _outputs: None, held_bytes=lambda: next(read))
    timing = time_calls([idle(2), idle(2)], no_counters, config)
    left_out = timing.calls - timing.latency.calls - timing.throughput.calls
    readings = len(timing.held_bytes)
    assert readings >= 3
    assert readings - 1 <= left_out <= readings, "one after each, but where the window ends with it"


def test_both_clocks_see_the_same_moments(fast: Policy) -> None:
    """Calls are slow in the second half of the window: the clocks agree, though neither time is steady."""
    began: list[float] = []

    def report(phase: str, _detail: str = "") -> None:
        if phase == "latency" and not began:
            began.append(time.monotonic())

    def call() -> Outputs:
        return idle(4 if began and time.monotonic() - began[0] > 0.6 else 2)()

    policy = replace(fast, min_s=0.6, throughput_s=0.6, cap_s=0.6, narrow_ratio=0.0)
    timing = timed(policy, call, call, report=report)
    for taken in (timing.latency, timing.throughput):
        slow = sum(sample > 3.2 * MILLISECOND for sample in taken.samples_ns) / len(taken.samples_ns)
        assert 0.2 < slow < 0.8, taken


def test_a_drifting_interval_runs_into_the_cap(fast: Policy) -> None:
    policy = replace(fast, min_samples=5, min_s=0.01, full_s=0.01, cap_s=0.3, throughput_s=0.1, narrow_ratio=0.0)
    started = time.monotonic()
    timing = timed(policy, idle(5))
    assert timing.latency.stopped == "cap"
    assert time.monotonic() - started >= 0.4


def test_calls_of_two_speeds_are_sampled_no_longer_than_others(fast: Policy) -> None:
    """More samples make the median of both no narrower."""
    number = itertools.count()

    def call() -> Outputs:
        return idle(4 if next(number) % 10 < 3 else 2)()

    policy = replace(fast, min_s=0.1, full_s=0.4, cap_s=EVER, narrow_ratio=0.0)
    latency = timed(policy, call).latency
    assert latency.stopped == "modes"
    assert 0.3e9 < sum(latency.samples_ns) < 1.5e9


def test_samples_are_bounded(fast: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing_module, "modes", lambda _samples: None)
    policy = replace(fast, min_s=0.3, full_s=0.3, cap_s=EVER, narrow_ratio=0.0, max_samples=40)
    calls = itertools.count()

    def fast_call() -> Outputs:
        next(calls)
        return (torch.ones(1),)

    timing = timed(policy, fast_call, fast_call, fast_call)
    assert timing.latency.stopped == "samples"
    assert len(timing.latency.samples_ns) == 40
    assert len(timing.latency.warmup_ns) <= 40
    assert len(timing.throughput.samples_ns) <= 40
    assert next(calls) > 200
    assert timing.latency.calls > 40, "of fast calls, every n-th is kept"


def test_outputs_are_copies_of_what_the_last_timed_call_of_each_set_gave(fast: Policy) -> None:
    buffer = torch.zeros(3)
    clocks: list[str] = []

    def bound(index: int) -> Call:
        return lambda: (buffer.fill_(index + (0 if clocks[-1] == "check" else 100)), index)  # type: ignore[return-value]

    timing = timed(
        fast, bound(0), bound(1), bound(2), report=lambda phase, _detail="": clocks.append(phase) if phase else None
    )
    assert [entry[1] for entry in timing.outputs] == [0, 1, 2]
    for index, (output, _) in enumerate(timing.outputs):
        assert isinstance(output, Tensor)
        assert output.tolist() == [index] * 3
        assert output.data_ptr() != buffer.data_ptr()


@pytest.mark.parametrize(
    ("window", "moved"), [("latency", ("compiles",)), ("throughput", ("compiles",)), ("check", ())]
)
def test_counters_that_move_in_the_window_are_named(fast: Policy, window: str, moved: tuple[str, ...]) -> None:
    counters = {"compiles": 3, "steady": 1}

    def report(phase: str, _detail: str = "") -> None:
        if phase == window:
            counters["compiles"] += 1

    assert timed(fast, idle(1), activity=lambda: counters, report=report).moved_counters == moved


def test_a_counter_that_appears_in_the_window_is_named(fast: Policy) -> None:
    counters: dict[str, int] = {}
    timing = timed(fast, idle(1), activity=lambda: counters, report=lambda phase, _="": counters.update({phase: 1}))
    assert set(timing.moved_counters) == {"latency", "throughput"}


def test_warm_up_lasts_until_no_counter_moves(fast: Policy) -> None:
    policy = replace(fast, warmup_s=0.0, warmup_cap_s=EVER, settle_ratio=EVER)
    calls = itertools.count(1)
    seen = [0]

    def call() -> Outputs:
        seen[0] = next(calls)
        return idle(1)()

    still = timed(policy, call, call)
    calls = itertools.count(1)
    moving = timed(policy, call, call, activity=lambda: {"tuned": min(seen[0], 50)})
    assert len(still.latency.warmup_ns) < 50
    assert len(moving.latency.warmup_ns) >= 50 + 2 * window_of(range(50)), "all that is compared came after it"
    assert moving.moved_counters == ()
    assert moving.findings == ()


def test_warm_up_lasts_until_samples_agree(fast: Policy) -> None:
    policy = replace(fast, warmup_s=0.0, warmup_cap_s=EVER, settle_ratio=0.5)
    calls = itertools.count()

    def slow_at_first() -> Outputs:
        return idle(20 if next(calls) < 4 else 1)()

    timing = timed(policy, slow_at_first)
    assert timing.findings == ()
    assert len(timing.latency.warmup_ns) > 6
    assert min(timing.latency.warmup_ns[:4]) > 10 * MILLISECOND, "warm-up's samples are kept, the first ones too"
    assert median(timing.latency.samples_ns) < 10 * MILLISECOND


def test_endless_drift_is_a_finding(fast: Policy) -> None:
    policy = replace(fast, warmup_s=0.0, warmup_cap_s=0.2, settle_ratio=0.05)
    calls = itertools.count(1)
    timing = timed(policy, lambda: idle(1.3 ** min(next(calls), 15))())
    assert [finding.code for finding in timing.findings] == ["warm-up"]
    assert sum(timing.latency.warmup_ns) >= 0.2e9


def test_every_set_is_warmed_however_slow(fast: Policy) -> None:
    policy = replace(fast, warmup_s=0.0, warmup_cap_s=0.001, min_s=0.0, cap_s=0.0)
    called = [0, 0, 0, 0]

    def bound(index: int) -> Call:
        def call() -> Outputs:
            called[index] += 1
            return idle(2)()

        return call

    timing = timed(policy, *(bound(index) for index in range(4)))
    assert len(timing.latency.warmup_ns) >= 4
    assert max(called) - min(called) <= 2, "sets take turns"


def test_caches_are_flushed_before_each_call_and_outside_the_clock(fast: Policy) -> None:
    happened: list[str] = []

    def call() -> Outputs:
        happened.append("call")
        return idle(4)()

    def flush() -> None:
        happened.append("flush")
        time.sleep(0.02)

    timing = timed(fast, call, call, flush=flush)
    assert happened == ["flush", "call"] * (len(happened) // 2)
    for taken in (timing.latency, timing.throughput):
        assert median(taken.samples_ns) < 20 * MILLISECOND


def test_throughput_takes_calls_in_blocks(fast: Policy) -> None:
    quick, slow = timed(fast, idle(1)).throughput, timed(fast, idle(40)).throughput
    assert 8 <= quick.calls_per_sample <= 50, "blocks of some 50 ms"
    assert slow.calls_per_sample == 2, "never a single call"
    assert len(slow.samples_ns) >= 3
    assert min(quick.samples_ns) >= 1 * MILLISECOND, "a sample is of one call"
    assert median(slow.samples_ns) < 80 * MILLISECOND


def test_a_block_ends_early_where_calls_are_far_slower_than_in_warm_up(
    fast: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So no load of the host lets the window last for minutes."""
    monkeypatch.setattr(clock, "LONGEST_BLOCK_S", 0.1)
    warm = [True]

    def report(phase: str, _detail: str = "") -> None:
        warm[0] = phase == "warm-up"

    made = itertools.count()

    def call() -> Outputs:
        next(made)
        return busy(0.05)() if warm[0] else idle(5)()

    timing = timed(fast, call, call, report=report)
    throughput = timing.throughput
    assert 3 * 2 <= throughput.calls < len(throughput.samples_ns) * throughput.calls_per_sample
    assert min(throughput.samples_ns) >= 5 * MILLISECOND, "a sample is of the calls that were made"
    assert next(made) == len(timing.latency.warmup_ns) + timing.calls + 4


@pytest.mark.parametrize("flush", [None, lambda: None])
def test_no_block_is_of_a_single_call(
    fast: Policy, monkeypatch: pytest.MonkeyPatch, flush: Callable[[], None] | None
) -> None:
    monkeypatch.setattr(clock, "LONGEST_BLOCK_S", 0.0)
    config = TimingConfig("cpu", fast, lambda _index, _outputs: None, flush)
    assert time_block([idle(1)] * 9, config)[2] == 2
    monkeypatch.setattr(clock, "LONGEST_BLOCK_S", EVER)
    assert time_block([idle(1)] * 99, config)[2] == 99


def test_the_phases_are_reported_in_order(fast: Policy) -> None:
    phases: list[str] = []
    timed(fast, idle(1), report=lambda phase, _detail="": phases.append(phase) if phase not in phases[-1:] else None)
    assert (phases[0], phases[-1]) == ("warm-up", "check")
    assert set(phases[1:-1]) == {"latency", "throughput"}
    assert len(phases) > 6, "the clocks take turns"


def test_the_counts_that_are_reported_do_not_run_backwards(fast: Policy) -> None:
    counts: list[list[int]] = []

    def report(phase: str, detail: str = "") -> None:
        if phase in ("latency", "throughput"):
            counts.append([int(word) for word in detail.split() if word.isdecimal()])

    timed(fast, idle(1), report=report)
    assert all(len(each) == 2 for each in counts)
    assert counts == sorted(counts)
    assert [blocks for _, blocks in counts] == sorted(blocks for _, blocks in counts)
