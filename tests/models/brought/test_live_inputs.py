"""Inputs of a live module to a folder and back."""

from collections import namedtuple
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from bakeoff.models.brought import live_tensors
from bakeoff.models.brought.live_read import read_inputs
from bakeoff.models.brought.live_write import write_inputs
from bakeoff.models.errors import BakeoffError

Pair = namedtuple("Pair", "first second")


def test_sets_with_several_calls(tmp_path: Path) -> None:
    shared = torch.randn(2, 3)
    sets = {
        "prefill": [((shared, 3), {"cache": [(shared[0], None)], "flag": True})],
        "decode": [((torch.ones(1).half(),), {}), ((torch.zeros(1).half(),), {})],
    }
    write_inputs(sets, tmp_path)
    found = read_inputs(tmp_path)
    assert [(name, len(calls)) for name, calls in found.items()] == [("prefill", 1), ("decode", 2)]
    (first, number), kwargs = found["prefill"][0]
    assert torch.equal(first, shared)
    assert (number, kwargs["flag"], kwargs["cache"][0][1]) == (3, True, None)
    assert torch.equal(kwargs["cache"][0][0], shared[0])
    assert found["decode"][1][0][0].dtype == torch.half


def test_layout_and_dtype_are_kept(tmp_path: Path) -> None:
    image = torch.randn(1, 3, 4, 4).to(memory_format=torch.channels_last)
    phase = torch.randn(3, dtype=torch.complex64)
    write_inputs({"call": [((), {"image": image, "phase": phase, "weight": nn.Parameter(phase)})]}, tmp_path)
    ((_, found),) = read_inputs(tmp_path)["call"]
    assert all(live_tensors.same_bits(found[name], value) for name, value in (("image", image), ("phase", phase)))


def test_tensors_of_one_storage_share_it_again(tmp_path: Path) -> None:
    whole = torch.arange(12.0).reshape(3, 4)
    content, layouts = live_tensors.pack({"whole": whole, "row": whole[1], "turned": whole.t()})
    live_tensors.save(tmp_path / "tensors", content)
    found = live_tensors.load(tmp_path / "tensors", layouts)
    found["whole"][1, 2] = 99
    assert (found["row"][2], found["turned"][2, 1]) == (99, 99)


def test_tensors_are_named_by_set_and_call(tmp_path: Path) -> None:
    write_inputs({"a": [((torch.ones(1),), {"x": torch.ones(2)})]}, tmp_path)
    assert sorted(load_file(tmp_path / "inputs.safetensors")) == ["a/0/arg0", "a/0/x"]


def test_outputs_of_a_dataclass_and_named_tuples(tmp_path: Path) -> None:
    write_inputs({"call": [((Pair(torch.ones(1), 2),), {})]}, tmp_path)
    assert type(read_inputs(tmp_path)["call"][0][0][0]).__name__ == "Pair"


def test_what_cannot_travel_is_named(tmp_path: Path) -> None:
    with pytest.raises(BakeoffError) as caught:
        write_inputs({"call": [((), {"f": len}), ((), {"s": {1, 2}})]}, tmp_path / "live")
    assert caught.value.code == "cannot-travel"
    assert "f is a builtins.builtin_function_or_method" in str(caught.value)
    assert "s is a builtins.set" in str(caught.value)
    assert not (tmp_path / "live").exists()


def test_two_tensors_of_one_name(tmp_path: Path) -> None:
    given = {"x": {"a.b": torch.ones(1), "a": {"b": torch.zeros(1)}}}
    with pytest.raises(BakeoffError, match=r"x\.a\.b is the name of two tensors"):
        write_inputs({"call": [((), given)]}, tmp_path)
