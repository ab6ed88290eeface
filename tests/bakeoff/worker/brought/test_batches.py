"""A brought model at multiples of the given batch."""

from pathlib import Path

import pytest
from describing import described, source_of

from bakeoff.models.errors import BakeoffError

SOURCE = """
import bakeoff
import torch
from torch import nn

class Product(nn.Module):
    def __init__(self, rows, columns):
        super().__init__()
        self.rows, self.columns = rows, columns

    def forward(self, x, table):
        return x[:self.rows] @ table[:self.columns]

def takes_any():
    return Product(None, 3), {"x": torch.randn(2, 3), "table": torch.randn(3, 5)}

def takes_two():
    return Product(2, None), {"x": torch.randn(2, 3), "table": torch.randn(3, 5)}

def without_axes():
    return bakeoff.Model(nn.Identity(), torch.tensor(1.0), more=[torch.tensor(2.0)])
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / f"batches_{tmp_path.name}.py"
    path.write_text(SOURCE)
    return path


def test_only_inputs_of_the_batch_become_longer_and_outputs_are_as_they_came(file: Path) -> None:
    (one,) = described(source_of(file, "takes_any"), file.parent / "about", batches=(4,)).sets
    (found,) = one.batches
    assert [spec.shape for spec in found.inputs] == [(8, 3), (3, 5)]
    assert [spec.shape for spec in found.outputs] == [(8, 5)]
    assert found.work.flops == 2 * 8 * 3 * 5


@pytest.mark.parametrize(
    ("name", "said"),
    [("takes_two", "no output is 4 times as large"), ("without_axes", "input, has no axes")],
)
def test_a_model_of_a_fixed_batch_is_refused(name: str, said: str, file: Path) -> None:
    with pytest.raises(BakeoffError, match=f"^--batch 4: call fails where axis 0 .*{said}") as refused:
        described(source_of(file, name), file.parent / "about", batches=(4,))
    assert refused.value.code == "bad-option"
