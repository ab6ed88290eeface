"""Bounded series keep what a reader asks of them, whatever their length."""

import random
from statistics import mean

import pytest

from bakeoff.monitor.series import Histogram, Series
from bakeoff.record.monitor import SeriesRecord


def test_a_million_samples_keep_a_spike_and_the_mean() -> None:
    series = Series(2_000)
    values = [100 + place % 7 for place in range(1_000_000)]
    values[123_456] = 9_000
    for place, value in enumerate(values):
        series.add(place, value)
    record = SeriesRecord("", "", "", series.points())
    assert (record.count, record.least, record.greatest) == (1_000_000, 100, 9_000)
    assert record.mean == pytest.approx(sum(values) / len(values), rel=1e-12)
    assert len(record.points) <= 2_000
    (spike,) = [point for point in series.points() if point.greatest == 9_000]
    assert spike.t_ns <= 123_456 < spike.t_ns + spike.count


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 7, 8, 9, 100, 1023, 1025])
@pytest.mark.parametrize("most", [2, 3, 8])
def test_series_of_any_length(count: int, most: int) -> None:
    chance = random.Random(count)
    values = [chance.uniform(-5, 5) for _ in range(count)]
    series = Series(most)
    for place, value in enumerate(values):
        series.add(10 * place, value)
    points = series.points()
    assert len(points) <= most
    record = SeriesRecord("", "", "", points)
    assert record.count == count
    assert (record.least, record.greatest) == (min(values, default=None), max(values, default=None))
    assert record.mean == (pytest.approx(mean(values)) if values else None)
    first = 0
    for point in points:
        held = values[first : first + point.count]
        assert point.t_ns == 10 * first
        assert (point.least, point.greatest) == (min(held), max(held))
        assert point.mean == pytest.approx(mean(held))
        first += point.count


def test_a_series_needs_two_points() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        Series(1)


def test_percentiles_are_right_to_a_thousandth() -> None:
    chance = random.Random(5)
    values = sorted(round(chance.lognormvariate(16, 1)) for _ in range(20_000))
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    for share in (0.01, 0.5, 0.9, 0.99, 0.999, 1.0):
        exact = values[max(0, -(-round(share * len(values) * 1_000_000) // 1_000_000) - 1)]
        assert histogram.percentile(share) == pytest.approx(exact, rel=0.0011)


def test_an_empty_distribution_has_no_percentile() -> None:
    assert Histogram().percentile(0.5) is None
    one = Histogram()
    one.add(0)
    assert one.percentile(0.5) == pytest.approx(1.0, rel=0.002)
