"""Golden files of tests/golden: reference tensors and published keys."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

GOLDEN = Path(__file__).parents[1] / "golden"
Tensors = dict[str, Tensor]


def read_golden(name: str) -> tuple[dict[str, Any], Tensors, Tensors, Tensors]:
    """The description of a golden file, its weights, inputs and outputs."""
    about = json.loads((GOLDEN / f"{name}.json").read_text())
    groups: dict[str, Tensors] = {"weights": {}, "inputs": {}, "outputs": {}}
    for key, tensor in load_file(GOLDEN / f"{name}.safetensors").items():
        group, _, inner = key.partition(".")
        groups[group][inner] = tensor
    return about, groups["weights"], groups["inputs"], groups["outputs"]


def assert_golden(found: Tensors, about: dict[str, Any], outputs: Tensors) -> None:
    """Check that every output of the golden file, including inner ones, was computed and is within its tolerance."""
    assert found.keys() == outputs.keys() == about["tensors"]["outputs"].keys()
    tolerance = about["suggested_tolerance_fp32"]
    for name, expected in outputs.items():
        torch.testing.assert_close(found[name], expected, **tolerance, msg=lambda text, name=name: f"{name}: {text}")
