"""Figures by hand, and the median's interval against the binomial distribution itself."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from records import clock, measurement, record
from scipy.stats import binom

from bakeoff.record.schema import Clock, Samples
from bakeoff.record.statistics import half_width, interval_ranks, modes, summarise_ns
from bakeoff.report.groups import shown_faster


def test_figures_by_hand() -> None:
    found = summarise_ns([4_000_000, 1_000_000, 2_000_000, 3_000_000, 10_000_000])
    assert found.count == 5
    assert found.mean_ms == 4.0
    assert found.median_ms == 3.0
    assert (found.min_ms, found.max_ms) == (1.0, 10.0)
    assert found.std_ms == pytest.approx(math.sqrt((9 + 4 + 1 + 0 + 36) / 4))  # of a sample: n - 1
    assert found.p90_ms == pytest.approx(4 + 0.6 * 6)  # rank 0.9 * 4 = 3.6 between 4 and 10
    assert (found.low_ms, found.high_ms) == (1.0, 10.0)  # five samples hold no 95 % interval: the whole range


def test_a_p99_takes_a_hundred_samples() -> None:
    assert summarise_ns([number * 1_000_000 for number in range(99)]).p99_ms is None
    assert summarise_ns([number * 1_000_000 for number in range(100)]).p99_ms == pytest.approx(0.99 * 99)


def test_even_count_and_interval_by_hand() -> None:
    """Of 20 samples the 6th and the 15th: P(6 <= Bin(20, 1/2) <= 14) = 0.9586."""
    found = summarise_ns(clock([10 + 0.1 * index for index in range(20)]).samples_ns)
    assert found.median_ms == pytest.approx(10.95)
    assert found.std_ms == pytest.approx(0.1 * math.sqrt(35))
    assert [found.low_ms, found.high_ms] == pytest.approx([10.5, 11.4])


def test_one_sample() -> None:
    found = summarise_ns([7_000_000])
    assert {found.mean_ms, found.median_ms, found.low_ms, found.high_ms, found.p90_ms} == {7.0}
    assert found.std_ms == 0.0


def test_no_samples() -> None:
    with pytest.raises(ValueError, match="no samples"):
        summarise_ns(())
    assert Clock(Samples()).figures is None


def test_order_and_warm_up_do_not_matter() -> None:
    samples = [float(value) for value in np.random.default_rng(0).gamma(9, size=101)]
    first = clock(samples).figures
    assert clock(sorted(samples)).figures == first
    assert replace(clock(samples), warmup_ns=Samples([1, 2, 3])).figures == first


def test_interval_ranks_hold_the_median_and_are_the_narrowest() -> None:
    """Symmetric ranks low..n-1-low hold it with 1 - 2 P(Bin(n, 1/2) <= low)."""
    counts = np.arange(5, 2001)
    ranks = np.array([interval_ranks(int(count)) for count in counts])
    lows = ranks[:, 0]
    assert (lows + ranks[:, 1] == counts - 1).all()
    assert (lows <= ranks[:, 1]).all()
    coverage = 1 - 2 * np.asarray(binom.cdf(lows, counts, 0.5))
    assert (coverage[counts >= 6] >= 0.95).all()
    assert interval_ranks(5) == (0, 4)
    narrower = 1 - 2 * np.asarray(binom.cdf(lows + 1, counts, 0.5))
    assert (narrower < 0.95).all()


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_interval_of_few_samples_is_their_range(count: int) -> None:
    assert interval_ranks(count) == (0, count - 1)


def test_interval_holds_the_true_median_of_skewed_samples() -> None:
    """An exponential's median is ln 2; of 400 draws of 31 samples 95 % or more hold it, less three deviations."""
    draws = np.random.default_rng(1).exponential(size=(400, 31))
    held = 0
    for draw in draws:
        found = summarise_ns([int(value * 1e9) for value in draw])
        held += found.low_ms <= math.log(2) * 1e3 <= found.high_ms
    assert held >= 400 * 0.95 - 3 * math.sqrt(400 * 0.95 * 0.05)


def test_latency_of_rows_without_one() -> None:
    assert record(status="crashed", reason="SIGSEGV in phase build").latency is None
    assert record(made=replace(measurement([1.0]), latency=Clock(Samples()))).latency is None
    assert record(samples_ms=[1.0, 3.0]).latency == summarise_ns([1_000_000, 3_000_000])


@pytest.mark.parametrize(
    ("frames", "calls", "fps"),
    [(1, 1, 100.0), (12, 1, 1200.0), (1, 21, 100 / 21), (1, 11, 100 / 11), (3, 2, 150.0), (1, None, None)],
)
def test_video_fps(frames: int, calls: int | None, fps: float | None) -> None:
    """Frames a call gives, times calls a second by the median, over the calls that one frame needs."""
    made = record(samples_ms=[9.0, 10.0, 14.0], frames_per_call=frames, calls_per_frame=calls)
    assert made.video_fps == (None if fps is None else pytest.approx(fps))


def test_shown_faster_needs_intervals_apart() -> None:
    slow, fast = (
        record(samples_ms=[10 + 0.1 * i for i in range(20)]),
        record(samples_ms=[5 + 0.1 * i for i in range(20)]),
    )
    assert shown_faster(fast, slow) is True
    assert shown_faster(slow, fast) is False
    near = record(samples_ms=[10.5 + 0.1 * i for i in range(20)])  # [11.0, 11.9] against [10.5, 11.4]
    assert shown_faster(near, slow) is None
    assert shown_faster(slow, near) is None
    touching = record(samples_ms=[10.9 + 0.1 * i for i in range(20)])  # begins where the other's interval ends
    assert shown_faster(slow, touching) is None
    assert shown_faster(slow, record(status="crashed")) is None
    assert shown_faster(record(status="crashed"), slow) is None


SERIES = 300
"""Simulated series of each kind and length."""


def lognormal(random: np.random.Generator, count: int, sd: float) -> np.ndarray:
    return np.exp(random.normal(0, sd, count))


def with_outliers(random: np.random.Generator, count: int, sd: float) -> np.ndarray:
    late = random.random(count) < 0.05
    return lognormal(random, count, sd) * np.where(late, 1 + random.exponential(0.5, count), 1)


def with_like_outliers(random: np.random.Generator, count: int, sd: float) -> np.ndarray:
    return lognormal(random, count, sd) * np.where(random.random(count) < 0.05, 1.5, 1)


def drifting(random: np.random.Generator, count: int, sd: float) -> np.ndarray:
    return lognormal(random, count, sd) * np.linspace(1, 1.4, count)


def settling(random: np.random.Generator, count: int, sd: float) -> np.ndarray:
    return lognormal(random, count, sd) * (1 + 0.4 * np.exp(-np.linspace(0, 4, count)))


def in_waves(random: np.random.Generator, count: int, sd: float) -> np.ndarray:
    return lognormal(random, count, sd) * (1 + 0.2 * np.sin(np.linspace(0, 6, count)))


def share_with_modes(make: Callable[[np.random.Generator], np.ndarray]) -> float:
    found = [modes((make(np.random.default_rng(seed)) * 1e7).astype(int).tolist()) for seed in range(SERIES)]
    return sum(entry is not None for entry in found) / SERIES


@pytest.mark.parametrize("count", [20, 60, 300, 2000])
@pytest.mark.parametrize("sd", [0.02, 0.05, 0.12])
@pytest.mark.parametrize("kind", [lognormal, with_outliers, with_like_outliers, drifting, settling, in_waves])
def test_one_mode_is_not_taken_for_two(
    kind: Callable[[np.random.Generator, int, float], np.ndarray], sd: float, count: int
) -> None:
    assert share_with_modes(lambda random: kind(random, count, sd)) <= 0.01


@pytest.mark.parametrize(
    ("count", "apart", "share", "sd"),
    [
        (40, 0.10, 0.5, 0.005),
        (100, 0.10, 0.4, 0.01),
        (100, 0.30, 0.25, 0.02),
        (400, 0.10, 0.2, 0.01),
        (400, 0.85, 0.15, 0.05),
        (2000, 0.10, 0.5, 0.015),
    ],
)
def test_two_narrow_humps_are_found(count: int, apart: float, share: float, sd: float) -> None:
    def humps(random: np.random.Generator) -> np.ndarray:
        return lognormal(random, count, sd) * np.where(random.random(count) < share, 1 + apart, 1)

    assert share_with_modes(humps) >= 0.97


def test_modes_by_hand() -> None:
    fast, slow = [10_000_000 + 1000 * index for index in range(21)], [11_000_000 + 1000 * index for index in range(9)]
    found = modes([*slow, *fast])
    assert found is not None
    assert [mode.median_ms for mode in found] == pytest.approx([10.01, 11.004])
    assert [mode.share for mode in found] == pytest.approx([0.7, 0.3])
    assert modes([*slow[:2], *fast]) is None, "fewer than a tenth"
    assert modes([*fast, *(sample - 600_000 for sample in slow)]) is None, "less than 5 % apart"
    assert modes([*fast[:5], *slow[:5]]) is None, "too few samples to tell"
    found = modes([10, 10, 5000, 10, 10, 10, 4900, 10])
    assert found is not None
    assert [mode.share for mode in found] == [0.75, 0.25]
    assert modes([10, 10, 29, 10, 10, 10, 29, 10]) is None, "a few samples may lie that far apart on a busy host"
    assert modes([10, 10, 10, 10, 10, 10, 4900, 10]) is None, "one is an outlier"
    assert modes([]) is None
    assert modes([7] * 50) is None


def test_half_width_by_hand() -> None:
    """Of 20 samples the 6th and the 15th, as above."""
    samples = clock([10 + 0.1 * index for index in range(20)]).samples_ns
    assert half_width(samples) == pytest.approx(0.45 / 10.95)
