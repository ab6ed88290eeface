"""A drift is distinguished from noise, and is confirmed by further calls."""

import numpy as np
import pytest

from bakeoff.worker.checks.growth import LEAST_GROWTH, climb, confirmed_drift, is_steady


def noisy(seed: int, count: int, busy: float = 0.3) -> np.ndarray:
    """Samples of 1 ms with 2 % noise; a share `busy` of bursts of ten calls is slowed by other processes."""
    random = np.random.default_rng(seed)
    bursts = np.repeat(random.random(-(-count // 10)) < busy, 10)[:count]
    return 1e6 * (1 + 0.02 * random.standard_normal(count) + bursts * random.exponential(0.5, count))


@pytest.mark.parametrize("count", [20, 40, 200, 2000])
def test_noise_does_not_climb(count: int) -> None:
    climbs = [climb([int(value) for value in noisy(seed, count)]) for seed in range(400)]
    assert sum(value > LEAST_GROWTH for value in climbs) <= 2


@pytest.mark.parametrize("count", [20, 40, 200, 2000])
def test_a_climb_shows_on_a_quiet_host(count: int) -> None:
    for seed in range(20):
        climbing = noisy(seed, count, busy=0.0) + 1e6 * np.linspace(0, 0.4, count)
        assert climb([int(value) for value in climbing]) > LEAST_GROWTH


def test_a_climb_of_many_samples_shows_through_noise() -> None:
    for seed in range(20):
        climbing = noisy(seed, 2000) + 1e6 * np.linspace(0, 0.6, 2000)
        assert climb([int(value) for value in climbing]) > LEAST_GROWTH


def test_a_climb_by_hand() -> None:
    """Ten segments of ten, each a tenth of the first slower than the one before: 1.85 over 1.05."""
    samples = [1000 + 100 * (index // 10) for index in range(100)]
    assert climb(samples) == pytest.approx((1800 + 1900) / (1000 + 1100))


def test_a_step_is_no_climb_and_few_samples_say_nothing() -> None:
    assert climb([1000] * 50 + [1300] * 50) < LEAST_GROWTH
    assert climb(list(range(1000, 2000, 120))) == 1.0
    assert climb([]) == 1.0


def test_falling_figures_do_not_climb() -> None:
    assert climb(list(range(2000, 1000, -10))) == 1.0


def test_a_window_is_steady_where_nothing_says_that_it_should_go_on() -> None:
    noise = np.random.default_rng(0).normal(1e6, 5e3, 300)
    blocks, slower = [1_000_000] * 8, [1_030_000] * 8
    assert is_steady(noise, blocks, blocks, 0.01)
    assert not is_steady(noise, slower, blocks, 0.01), "warm-up differs"
    assert not is_steady(noise, blocks, [*blocks, *slower], 0.01), "blocks became slower"
    assert not is_steady(noise * np.linspace(1, 1.04, 300), blocks, blocks, 0.01), "calls became slower"
    assert not is_steady(noise * np.linspace(1, 1.018, 300), blocks, blocks, 0.01), "little by little"
    assert not is_steady(noise * np.tile([1, 1, 1, 1.2], 75), blocks, blocks, 0.01), "calls are of two kinds"


CLIMBING = [1_000_000 + 10_000 * (index // 10) for index in range(1000)]


def test_a_drift_is_confirmed_by_calls_that_are_still_slow() -> None:
    asked: list[int] = []

    def again(count: int) -> list[int]:
        asked.append(count)
        return [CLIMBING[-1]] * count

    assert confirmed_drift(CLIMBING, 1.0, again) == pytest.approx(climb(CLIMBING))
    assert asked == [round(1e9 / sorted(CLIMBING[:100])[25])], "about a second of calls"


def test_calls_that_are_fast_again_did_not_drift() -> None:
    assert confirmed_drift(CLIMBING, 1.0, lambda count: [CLIMBING[0]] * count) == 1.0


def test_a_slower_host_is_no_drift_and_a_steady_window_is_not_measured_again() -> None:
    asked: list[int] = []

    def again(count: int) -> list[int]:
        asked.append(count)
        return [CLIMBING[-1]] * count

    assert confirmed_drift(CLIMBING, 2.0, again) == 1.0, "the host slowed down as much"
    assert confirmed_drift([1000] * 200, 1.0, again) == 1.0, "no climb"
    assert asked == []
