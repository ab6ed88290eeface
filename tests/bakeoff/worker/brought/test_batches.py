"""A brought model at multiples of the given batch."""

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="models are torch modules")

import torch
from torch import Tensor, nn

from bakeoff.models.component import TensorSpec, Workload
from bakeoff.models.errors import BakeoffError
from bakeoff.worker.brought.describe import find_batches
from bakeoff.worker.brought.network import GivenInputs

GIVEN = {"call/0/x": torch.randn(2, 3), "call/0/table": torch.randn(3, 5)}
INPUTS = (TensorSpec("x", (2, 3), "given"), TensorSpec("table", (3, 5), "given"))
OUTPUTS = (TensorSpec("output", (2, 5)),)


class Product(nn.Module):
    """Takes a longer table too."""

    def forward(self, x: Tensor, table: Tensor) -> tuple[Tensor]:
        return (x @ table[:3],)


class First(nn.Module):
    def forward(self, x: Tensor, table: Tensor) -> tuple[Tensor]:
        return (x[:2] @ table,)


def inputs_of(workload: Workload) -> GivenInputs:
    described: Any = SimpleNamespace(name="call", calls=1)
    return GivenInputs(described, workload, GIVEN)


def test_only_inputs_of_the_batch_become_longer_and_outputs_are_as_they_came() -> None:
    (found,) = find_batches("call", (4,), Product(), INPUTS, OUTPUTS, inputs_of)
    assert [spec.shape for spec in found.inputs] == [(8, 3), (3, 5)]
    assert [spec.shape for spec in found.outputs] == [(8, 5)]
    assert found.work.flops == 2 * 8 * 3 * 5


def test_a_model_of_a_fixed_batch_is_refused() -> None:
    with pytest.raises(BakeoffError) as refused:
        find_batches("call", (4,), First(), INPUTS, OUTPUTS, inputs_of)
    assert refused.value.code == "bad-option"
