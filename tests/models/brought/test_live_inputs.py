"""Inputs of a live module to a folder and back."""

import threading
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from bakeoff.models.brought.live_read import read_live
from bakeoff.models.brought.live_write import write_live
from bakeoff.models.brought.model import Model
from bakeoff.models.errors import BakeoffError
from bakeoff.models.signature import describe_call

Pair = namedtuple("Pair", "first second")


def travelled(sets: Any, folder: Path) -> Any:
    write_live(Model(nn.Identity()), sets, folder)
    return read_live(folder)[1]


def test_sets_with_several_calls(tmp_path: Path) -> None:
    sets = {
        "prefill": [((torch.ones(2, 3), 3), {"cache": [(torch.zeros(2), None)], "pair": Pair(torch.ones(1), True)})],
        "decode": [((torch.ones(1).half(),), {}), ((torch.zeros(1).half(),), {})],
    }
    found = travelled(sets, tmp_path / "live")
    assert repr(found) == repr(sets)
    assert type(found["prefill"][0][1]["pair"]) is Pair


def test_layout_and_dtype_are_kept(tmp_path: Path) -> None:
    image = torch.randn(1, 3, 4, 4).to(memory_format=torch.channels_last)
    phase = torch.randn(3, dtype=torch.complex64)
    ((_, found),) = travelled({"call": [((), {"image": image, "phase": phase})]}, tmp_path / "live")["call"]
    assert (found["image"].stride(), found["phase"].dtype) == (image.stride(), torch.complex64)
    assert torch.equal(found["image"], image)
    assert torch.equal(found["phase"], phase)


def test_tensors_of_one_storage_share_it_again(tmp_path: Path) -> None:
    whole = torch.arange(12.0).reshape(3, 4)
    sets = {"call": [((whole, whole[1], whole.t(), torch.from_numpy(whole.numpy())), {})]}
    ((found, _),) = travelled(sets, tmp_path / "live")["call"]
    found[0][1, 2] = 99
    assert (found[1][2], found[2][2, 1], found[3][1, 2]) == (99, 99, 99)


def test_what_cannot_travel_is_named(tmp_path: Path) -> None:
    said = r"process: two: the input arg0 is a _thread\.lock, two: the input f\.1 is a _thread\.lock"
    with pytest.raises(BakeoffError, match=said):
        travelled({"two": [((threading.Lock(),), {"f": [len, threading.Lock()]})]}, tmp_path / "live")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"f": len}, r"f is a builtins\.builtin_function_or_method"),
        ({"s": {1, 2}}, r"s is a builtins\.set"),
        ({"x": {"a.b": torch.ones(1), "a": {"b": torch.zeros(1)}}}, r"x\.a\.b is the name of two tensors"),
    ],
)
def test_what_no_engine_can_be_given_is_refused_where_it_is_described(given: dict[str, Any], said: str) -> None:
    with pytest.raises(BakeoffError, match=said) as caught:
        describe_call((), given)
    assert caught.value.code == "cannot-travel"
