"""A climb is told from noise, and a leak from memory that only moves."""

import numpy as np
import pytest

from bakeoff.worker.clocks.trend import LEAST_GROWTH, climb, leak

MIB = 1 << 20


def noisy(seed: int, count: int, busy: float = 0.3) -> np.ndarray:
    """A call of a millisecond on a host whose neighbours wake up now and then, for ten calls at a time."""
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


def test_a_leak_by_hand() -> None:
    sizes = [300 * MIB + index * 2 * MIB for index in range(20)]
    assert leak(sizes) == sizes[-1] - sizes[10] == 18 * MIB


@pytest.mark.parametrize(
    "sizes",
    [
        [300 * MIB] * 20,
        [300 * MIB + (40 * MIB if index > 4 else 0) for index in range(20)],  # an arena, early on
        [300 * MIB + (index % 2) * 50 * MIB for index in range(20)],
        [300 * MIB - index * MIB for index in range(20)],
        [300 * MIB + index * (MIB >> 4) for index in range(20)],  # what the samples themselves take, and more
        [0, 100 * MIB],
        [],
    ],
    ids=["still", "step", "saw", "falling", "slow", "few", "none"],
)
def test_what_is_no_leak(sizes: list[int]) -> None:
    assert leak(sizes) == 0
