"""Sizes as they are asked for, and the points that engines are checked at."""

import re

import pytest

from bakeoff.models.errors import BakeoffError
from bakeoff.models.sizes import (
    Dimension,
    parse_sizes,
    seen_points,
    shapes_at,
    unseen_points,
    with_usual,
)

BATCH = Dimension((("x", 0), ("mask", 0)), (1, 4, 8))


def test_sizes_of_one_axis_and_of_axes_that_move_together() -> None:
    assert parse_sizes(["x.0,mask.0=8,1,4", "cache.0.1.2=16,32"]) == (
        BATCH,
        Dimension((("cache.0.1", 2),), (16, 32)),
    )
    assert parse_sizes(["x.0,mask.0=1,4,8; y.1=2,3"]) == parse_sizes(["x.0,mask.0=1,4,8 y.1=2,3"])
    assert parse_sizes([]) == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "--sizes is empty"),
        ("x=1,2", "write NAME.AXIS=SIZE,SIZE"),
        ("x.0", "write NAME.AXIS=SIZE,SIZE"),
        ("x.0=1,two", "write NAME.AXIS=SIZE,SIZE"),
        ("x.0=0,2", "a size is at least 1"),
        ("x.0=4", "1 size; give 2 to 8"),
        ("x.0=1,2 x.0=3,4", "x.0 is given twice"),
        ("recorded", "write NAME.AXIS=SIZE,SIZE"),
    ],
)
def test_another_form_is_refused_in_one_sentence(text: str, problem: str) -> None:
    with pytest.raises(BakeoffError, match=re.escape(problem)) as refused:
        parse_sizes([text])
    assert refused.value.code == "bad-option"
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("shapes", "problem"),
    [
        ({"x": (4, 16)}, "there is no input 'mask'; there are x"),
        ({"x": (4, 16), "mask": ()}, "so no axis 0"),
        ({"x": (4, 16), "mask": (1,)}, "x.0 is 4 and mask.0 is 1 as given"),
        ({"x": (16, 16), "mask": (16,)}, "x.0 is 16 as given, outside of 1 to 8"),
    ],
)
def test_sizes_that_do_not_fit_the_given_inputs_are_refused(shapes: dict[str, tuple[int, ...]], problem: str) -> None:
    with pytest.raises(BakeoffError, match=re.escape(problem)):
        with_usual(BATCH, shapes)


def test_every_listed_size_is_checked_and_both_ends_together() -> None:
    assert seen_points([BATCH], (4,)) == [(1,), (8,)]
    length = Dimension((("x", 1),), (16, 64))
    assert seen_points([BATCH, length], (4, 16)) == [(1, 16), (4, 64), (8, 16), (8, 64)]
    assert shapes_at({"x": (4, 16), "mask": (4,)}, [BATCH, length], (8, 64)) == {"x": (8, 64), "mask": (8,)}


@pytest.mark.parametrize(
    ("values", "points"),
    [
        ((1, 4, 8), [6, 2]),
        ((64, 128, 256), [192, 96]),
        ((8, 16), [12]),
        ((1, 2, 3), []),
        ((2, 4, 10), [6, 7, 3]),
    ],
)
def test_an_unseen_size_lies_between_listed_ones_and_first_in_the_widest_gap(
    values: tuple[int, ...], points: list[int]
) -> None:
    assert unseen_points([(value,) for value in values]) == [(point,) for point in points]


def test_points_between_recorded_ones_keep_to_what_holds_for_both() -> None:
    """A mask that is one longer than a cache, in every recorded call."""
    assert unseen_points([(4, 5), (8, 9), (16, 17)]) == [(12, 13), (6, 7)]
    assert unseen_points([(4, 5), (5, 6), (6, 7)]) == []
    assert unseen_points([(4, 5)]) == unseen_points([]) == []
