"""Inputs of a live module to a folder and back."""

from collections import namedtuple
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bakeoff.models.brought.live_read import read_live
from bakeoff.models.brought.live_write import write_live
from bakeoff.models.brought.model import Model

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
