"""Which sizes a brought model's sets have: asked for by name, or as calls were recorded."""

import pytest
import torch

from bakeoff.models.errors import BakeoffError
from bakeoff.models.sizes import Dimension, parse_sizes
from bakeoff.worker.brought.load import Call
from bakeoff.worker.brought.network import _resized
from bakeoff.worker.brought.sizes import sizes_of

PARAMETERS = ("x", "mask")


def call(rows: int, columns: int = 4) -> Call:
    return (torch.zeros(rows, columns), torch.ones(rows)), {}


def test_sets_without_the_input_are_left_out() -> None:
    sets = {"all": [call(4)], "bare": [((), {"ids": torch.zeros(4)})]}
    kept, dimensions = sizes_of(sets, PARAMETERS, parse_sizes(["x.0,mask.0=2,8"]))
    assert list(kept) == ["all"]
    assert dimensions["all"] == (Dimension((("x", 0), ("mask", 0)), (2, 8)),)
    with pytest.raises(BakeoffError, match="there is no input 'y'; there are x, mask, ids"):
        sizes_of(sets, PARAMETERS, parse_sizes(["y.0=2,8"]))


def test_recorded_calls_that_differ_in_sizes_alone_are_one_set() -> None:
    sets = {"prefill": [call(4), call(4)], "long": [call(8), call(2)]}
    kept, dimensions = sizes_of(sets, PARAMETERS, "recorded")
    assert {name: len(calls) for name, calls in kept.items()} == {"prefill": 2}
    assert dimensions == {"prefill": (Dimension((("x", 0), ("mask", 0)), (2, 4, 8)),)}


def test_axes_that_move_on_their_own_are_dimensions_of_their_own() -> None:
    _, dimensions = sizes_of({"call": [call(4, 4), call(8, 4), call(4, 6)]}, PARAMETERS, "recorded")
    assert dimensions["call"] == (
        Dimension((("x", 0), ("mask", 0)), (4, 8)),
        Dimension((("x", 1),), (4, 6)),
    )


def test_recorded_calls_of_one_size_are_refused() -> None:
    with pytest.raises(BakeoffError, match="no recorded calls differ in sizes alone"):
        sizes_of({"call": [call(4), call(4)]}, PARAMETERS, "recorded")


def test_held_values_are_cut_or_repeated() -> None:
    given = torch.arange(4)
    assert _resized(given, (2,)).tolist() == [0, 1]
    assert _resized(given, (6,)).tolist() == [0, 1, 2, 3, 0, 1]
