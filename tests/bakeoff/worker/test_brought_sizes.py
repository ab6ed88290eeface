"""Which sizes a brought model's sets have: as they are asked for by name."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from bakeoff.models.brought.model import Call
from bakeoff.models.component import TensorSpec, Work, Workload
from bakeoff.models.errors import BakeoffError
from bakeoff.models.sizes import Dimension, parse_sizes
from bakeoff.worker.brought.network import GivenInputs
from bakeoff.worker.brought.sizes import sizes_of

PARAMETERS = ("x", "mask")


def call(rows: int, columns: int = 4) -> Call:
    return (torch.zeros(rows, columns), torch.ones(rows)), {}


def test_sets_without_the_input_are_left_out() -> None:
    sets = {"all": [call(4)], "bare": [((), {"ids": torch.zeros(4)})]}
    asked, dimensions = sizes_of(sets, PARAMETERS, parse_sizes(["x.0,mask.0=2,8"]))
    assert list(asked) == ["all"]
    assert dimensions == {"all": (Dimension((("x", 0), ("mask", 0)), (2, 8)),)}
    with pytest.raises(BakeoffError, match="there is no input 'y'; there are x, mask, ids"):
        sizes_of(sets, PARAMETERS, parse_sizes(["y.0=2,8"]))


def shapes(calls: Sequence[Call]) -> list[tuple[int, ...]]:
    return [tuple(args[0].shape) for args, _ in calls]


def test_of_sets_that_differ_along_the_named_axes_the_first_one_in_the_range_is_taken() -> None:
    sets = {
        "long": [call(16)],
        "usual": [call(4), call(4)],
        "short": [call(2)],
        "wide": [call(4, 5)],
        "twin": [call(4)],
    }
    asked, _ = sizes_of(sets, PARAMETERS, parse_sizes(["x.0,mask.0=2,4,8"]))
    assert {name: shapes(calls) for name, calls in asked.items()} == {
        "usual": [(4, 4), (4, 4)],
        "wide": [(4, 5)],
        "twin": [(4, 4)],
    }


def inputs_of(rows: int, held: bool, given: Tensor) -> GivenInputs:
    spec = TensorSpec("x", (rows,), "given", dtype="int64", held=held)
    described: Any = SimpleNamespace(name="call", calls=1)
    return GivenInputs(described, Workload("call", "", (spec,), (), Work(0, 0, 0)), {"call/0/x": given})


def test_another_size_draws_from_the_given_values() -> None:
    found = inputs_of(4, False, torch.tensor([7, 9])).checked(0, 0)["x"]
    assert found.shape == (4,)
    assert set(found.tolist()) <= {7, 9}


def test_held_values_of_another_size_are_the_given_ones_again() -> None:
    assert inputs_of(4, True, torch.arange(2)).checked(0, 0)["x"].tolist() == [0, 1, 0, 1]
