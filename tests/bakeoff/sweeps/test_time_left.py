"""The seconds that are left of a sweep, from estimates and from what rows took."""

import pytest

from bakeoff.plan.costs import RowEstimate, TimeLeft

A, B, C, NEVER = KEYS = [(name, 1, 1, 1) for name in ("a", "b", "c", "never")]
LEFT = TimeLeft(
    {key: RowEstimate(seconds, "") for key, seconds in zip(KEYS, (30.0, 60.0, 90.0, 0.0), strict=True)}, 100.0
)


def test_before_the_first_row_the_estimate_holds() -> None:
    assert LEFT.seconds((), (), (), 0.0) == 280.0


def test_what_is_left_is_scaled_by_what_rows_took() -> None:
    assert LEFT.seconds((A, B), (A, B), (A, B), 90.0) == 90.0 + 100.0, "as estimated"
    half = LEFT.seconds((A, B), (A, B), (A, B), 45.0)
    assert half == pytest.approx(90.0 * (45 + 60) / (90 + 60) + 100.0), "the finals are not scaled"
    assert LEFT.seconds((A, B), (A, B), (A, B), 180.0) > 190.0


def test_the_first_row_alone_says_little() -> None:
    assert LEFT.seconds((A,), (A,), (A,), 0.0) > 100.0 + 150.0 / 2
    assert LEFT.seconds((A,), (A,), (A,), 60.0) < 100.0 + 150.0 * 2


def test_rows_that_cannot_run_take_no_time() -> None:
    assert LEFT.seconds((A, B, C), (A, B, C), (A, B, C), 500.0) == 100.0
    assert TimeLeft({NEVER: RowEstimate(0.0, "")}, 0.0).seconds((), (), (), 1.0) == 0.0


def test_after_the_rows_warm_builds_and_finals_are_left() -> None:
    assert LEFT.seconds(KEYS, KEYS, KEYS, 1000.0) == 100.0
    second = TimeLeft({A: RowEstimate(30.0, "", 7.0), B: RowEstimate(60.0, "", 8.0)}, 100.0)
    assert second.seconds((A, B), (A,), (A, B), 90.0) == pytest.approx(108.0)
