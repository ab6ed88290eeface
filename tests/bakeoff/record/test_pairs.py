"""The ratio of paired times."""

import pytest

from bakeoff.record.verdict import pair_ratio


@pytest.mark.parametrize(
    ("factor", "word"),
    [(0.5, "faster"), (1.5, "slower"), (1.0, "no difference shown"), (1.01, "no difference shown")],
)
def test_the_second_is_held_against_the_first(factor: float, word: str) -> None:
    first = [100 + place for place in range(20)]
    found = pair_ratio(first, [factor * value for value in first])
    assert (found.word, found.pairs) == (word, 20)
    assert found.ratio == pytest.approx(1 / factor)
    assert found.interval == (pytest.approx(1 / factor), pytest.approx(1 / factor))


def test_an_interval_around_1_shows_no_difference() -> None:
    found = pair_ratio([100] * 12, [50, 200] * 6)
    assert found.interval == (0.5, 2.0)
    assert found.word == "no difference shown"


def test_few_pairs_give_no_verdict() -> None:
    found = pair_ratio([2.0] * 5, [1.0] * 5)
    assert (found.word, found.ratio, found.interval) == ("too few units", 2.0, None)
    with pytest.raises(ValueError, match="no pairs"):
        pair_ratio([], [])
