"""Samples must fit into the time of their phases, as this process saw it pass."""

from dataclasses import replace

import pytest

from bakeoff.record.schema import Clock, Measurement, Samples, WindowChecks
from bakeoff.sweeps.assemble import clock_span

PHASES = {"warm-up": 1.0, "latency": 5.0, "throughput": 3.0, "memory": 9.0}


def measured(call_ms: float, latency_s: float, throughput_s: float, kept: int = 1) -> Measurement:
    """Calls that fill so much of the phases; one latency sample in `kept` is in the record."""
    calls = round(latency_s * 1e3 / call_ms)
    blocks = max(3, round(throughput_s / 0.05))
    per_block = round(throughput_s * 1e3 / call_ms / blocks)
    sample = round(call_ms * 1e6)
    latency = Clock(Samples([sample] * (calls // kept)), calls=calls)
    throughput = Clock(Samples([sample] * blocks), calls_per_sample=per_block, calls=per_block * blocks)
    return Measurement("ok", latency=latency, throughput=throughput)


@pytest.mark.parametrize("kept", [1, 7])
@pytest.mark.parametrize("call_ms", [0.02, 1.0, 50.0])
def test_a_full_window_fits(call_ms: float, kept: int) -> None:
    assert clock_span(measured(call_ms, 4.8, 2.9, kept), PHASES, PHASES) is None


def test_fast_calls_leave_most_of_the_latency_phase_to_the_checks_between_them() -> None:
    assert clock_span(measured(0.02, 0.6, 2.9), PHASES, PHASES) is None


def test_one_combined_phase_is_the_same() -> None:
    assert clock_span(measured(1.0, 4.8, 2.9), {"latency": 8.0}, {"latency": 8.0}) is None
    assert clock_span(measured(1.0, 9.6, 5.8), {"latency": 8.0}, {"latency": 8.0}) is not None


@pytest.mark.parametrize("speed", [1 / 3, 0.45, 1.2, 3.0])
def test_a_clock_of_another_speed_is_found(speed: float) -> None:
    of_worker = {phase: speed * seconds for phase, seconds in PHASES.items()}
    assert clock_span(measured(1.0, 4.8 * speed, 2.9 * speed), PHASES, of_worker) is not None


def test_more_calls_than_time_are_found() -> None:
    assert clock_span(measured(1.0, 7.0, 3.0), PHASES, PHASES) is not None
    assert clock_span(measured(1.0, 7.0, 3.0, kept=9), PHASES, PHASES) is not None


def test_long_calls_that_fill_a_small_share_of_the_time_are_found_unless_checks_fill_it() -> None:
    found = measured(20.0, 1.4, 0.9)
    assert clock_span(found, PHASES, PHASES) is not None
    assert clock_span(replace(found, window_checks=WindowChecks(9, 9, 1, 1.0)), PHASES, PHASES) is None


def test_blocks_that_were_ended_early_count_by_the_least_time_of_their_calls() -> None:
    """30 blocks of 1000 calls, and one that ended after 40 calls of 25 ms, when the host became busy."""
    samples = Samples([50_000] * 30 + [25_000_000])
    throughput = Clock(samples, calls_per_sample=1000, calls=30_040)
    found = replace(measured(0.05, 4.8, 0.1), throughput=throughput)
    assert clock_span(found, PHASES, PHASES) is None
    assert clock_span(replace(found, throughput=replace(throughput, calls=31_000)), PHASES, PHASES) is not None


def test_an_event_read_late_is_no_contradiction() -> None:
    for seconds in (0.3, 0.8):
        late = {"latency": seconds}
        assert clock_span(measured(0.02, 0.3, 0.1), late, {"latency": 0.5}) is None


def test_without_samples_or_phases_nothing_is_said() -> None:
    assert clock_span(Measurement("crashed"), PHASES, PHASES) is None
    assert clock_span(measured(1.0, 4.8, 2.9), {}, {}) is None
