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
from bakeoff.worker.brought.network import GivenInputs, _resized
from bakeoff.worker.brought.sizes import sizes_of

PARAMETERS = ("x", "mask")


def call(rows: int, columns: int = 4) -> Call:
    return (torch.zeros(rows, columns), torch.ones(rows)), {}


def test_sets_without_the_input_are_left_out() -> None:
    sets = {"all": [call(4)], "bare": [((), {"ids": torch.zeros(4)})]}
    asked = sizes_of(sets, PARAMETERS, parse_sizes(["x.0,mask.0=2,8"]))
    assert {name: (one.dimensions, one.others) for name, one in asked.items()} == {
        "all": ((Dimension((("x", 0), ("mask", 0)), (2, 8)),), [])
    }
    with pytest.raises(BakeoffError, match="there is no input 'y'; there are x, mask, ids"):
        sizes_of(sets, PARAMETERS, parse_sizes(["y.0=2,8"]))


def shapes(calls: Sequence[Call]) -> list[tuple[int, ...]]:
    return [tuple(args[0].shape) for args, _ in calls]


def test_sets_that_differ_along_the_named_axes_become_the_first_one_in_the_range() -> None:
    sets = {
        "long": [call(16)],
        "usual": [call(4), call(4)],
        "short": [call(2)],
        "wide": [call(4, 5)],
        "twin": [call(4)],
    }
    asked = sizes_of(sets, PARAMETERS, parse_sizes(["x.0,mask.0=2,4,8"]))
    assert {name: shapes(one.calls) for name, one in asked.items()} == {
        "usual": [(4, 4), (4, 4)],
        "wide": [(4, 5)],
        "twin": [(4, 4)],
    }
    assert [shapes(one.others) for one in asked.values()] == [[(2, 4), (16, 4)], [], []]


def test_sets_of_other_dtypes_or_constants_stay_apart() -> None:
    other: Call = (torch.zeros(8, 4, dtype=torch.float64), torch.ones(8)), {}
    asked = sizes_of({"a": [call(4)], "b": [other]}, PARAMETERS, parse_sizes(["x.0,mask.0=2,8"]))
    assert list(asked) == ["a", "b"]


def inputs_of(rows: int, held: bool, given: Tensor, *others: Tensor) -> GivenInputs:
    spec = TensorSpec("x", (rows,), "given", dtype="int64", held=held)
    described: Any = SimpleNamespace(name="call", calls=1, others=len(others))
    workload = Workload("call", "", (spec,), (), Work(0, 0, 0))
    recorded = {f"call/other/{index}/x": one for index, one in enumerate(others)}
    return GivenInputs(described, workload, {"call/0/x": given, **recorded})


def test_a_size_has_the_calls_that_were_recorded_with_it_and_draws_more_from_them() -> None:
    one = inputs_of(3, False, torch.arange(2), torch.tensor([7, 8, 9]), torch.arange(20, 25))
    assert len(one.recorded) == 1
    assert one.checked(0, 0)["x"].tolist() == [7, 8, 9]
    drawn = one.checked(0, 1)["x"]
    assert drawn.shape == (3,)
    assert set(drawn.tolist()) <= {7, 8, 9}


def test_a_size_that_nobody_recorded_draws_from_the_usual_one() -> None:
    one = inputs_of(4, False, torch.tensor([1, 2]), torch.tensor([7, 8, 9]))
    assert one.recorded == []
    assert set(one.checked(0, 0)["x"].tolist()) <= {1, 2}


def test_held_values_are_cut_from_a_longer_call_where_there_is_one() -> None:
    positions = inputs_of(4, True, torch.arange(2), torch.arange(9), torch.arange(6))
    assert positions.checked(0, 0)["x"].tolist() == [0, 1, 2, 3]
    assert inputs_of(4, True, torch.arange(2)).checked(0, 0)["x"].tolist() == [0, 1, 0, 1]


def test_held_values_are_cut_or_repeated() -> None:
    given = torch.arange(4)
    assert _resized(given, (2,)).tolist() == [0, 1]
    assert _resized(given, (6,)).tolist() == [0, 1, 2, 3, 0, 1]
