"""Denormal numbers are found in weights and activations, and named where a row of such a model fails parity."""

from pathlib import Path

import pytest
import torch
from describing import described, source_of
from torch import Tensor, nn

from bakeoff.models import resolve_component
from bakeoff.worker.brought.precision import denormals_findings, denormals_text

FACTORY = """
import torch
from torch import nn

class Faint(nn.Module):
    def __init__(self):
        super().__init__()
        self.faint, self.head = nn.Linear(8, 8, bias=False), nn.Linear(8, 4)
        self.faint.weight.data.mul_(SCALE)

    def forward(self, x):
        return self.head(self.faint(x) / SCALE)

def model():
    return Faint().eval(), {"x": torch.randn(2, 8)}
"""


def text_of(module: nn.Module, *inputs: Tensor) -> str:
    return denormals_text(module, lambda: module(*inputs))


def faint(dtype: torch.dtype = torch.float32, share: float = 1.0) -> nn.Module:
    module = nn.Sequential(nn.Linear(10, 10, bias=False), nn.Linear(10, 10)).to(dtype)
    values = module[0].weight.data.view(-1)
    values[: round(100 * share)] = 1e-40
    return module


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_weights_and_what_layers_return(dtype: torch.dtype) -> None:
    text = text_of(faint(dtype), torch.ones(3, 10, dtype=dtype))
    assert "100% of 0.weight" in text
    assert "100% of what 0 returns" in text
    assert "1.weight" not in text


def test_the_share_is_of_the_values_of_each_tensor() -> None:
    assert "12% of 0.weight" in text_of(faint(share=0.12), torch.randn(3, 10))


def test_a_few_are_not_worth_a_word() -> None:
    module = nn.Sequential(nn.Linear(100, 100), nn.Softmax(-1))
    module[0].weight.data.view(-1)[:50] = 1e-40
    assert text_of(module, torch.randn(1, 100)) == ""


def test_zeros_and_dtypes_without_such_numbers_are_none() -> None:
    module = nn.Linear(4, 4)
    module.weight.data.zero_()
    module.register_buffer("index", torch.ones(4, dtype=torch.int64))
    module.register_buffer("mask", torch.ones(4, dtype=torch.bool))
    assert text_of(module, torch.randn(1, 4)) == ""
    assert text_of(nn.Linear(4, 4).half(), torch.randn(1, 4).half() * 1e-7) == ""


def test_complex_weights_count_too() -> None:
    module = nn.Identity()
    module.register_buffer("turn", torch.full((4,), complex(1, 1e-40)))
    assert "50% of turn" in text_of(module, torch.ones(1))


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_what_only_the_whole_model_makes_is_found() -> None:
    class Fades(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 1e-39

    assert "of what the model returns" in text_of(Fades(), torch.randn(8))
    scripted = torch.jit.script(Fades())
    assert "of what the model returns" in text_of(scripted, torch.randn(8))


@pytest.mark.parametrize("scale", [1e-39, 1e-3])
def test_a_row_that_fails_names_them(scale: float, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(FACTORY.replace("SCALE", repr(scale)), encoding="utf-8")
    folder, faint = tmp_path / "described", scale == 1e-39
    found = described(source_of(file), folder)
    assert [("denormal" in note and "faint.weight" in note) for note in found.notes] == [True] * faint
    assert ("faint.weight" in found.denormals) is faint
    component = resolve_component(str(folder))
    assert [one.code for one in denormals_findings(component, "parity_failed")] == ["denormals"] * faint
    assert list(denormals_findings(component, "ok")) == []
    assert list(denormals_findings(resolve_component("toy"), "parity_failed")) == []
