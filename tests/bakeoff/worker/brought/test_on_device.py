"""Models that a CPU cannot describe, with operators of a CPU that take no more than those of such a model would."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="models are torch's")

import describing
import torch

from bakeoff.models.brought.about import About
from bakeoff.process.jobs import ReferenceJob
from bakeoff.worker.brought import precision
from bakeoff.worker.reference.files import ReferenceFiles
from bakeoff.worker.reference.make import make_reference
from bakeoff.worker.reference.precision import Precision

TRITON, FLASH_ATTENTION = (torch.float32, torch.bfloat16), (torch.bfloat16, torch.float16)
"""Dtypes that such kernels usually take."""


def kernel_for(name: str, *dtypes: torch.dtype) -> None:
    """Register an operator for the CPU that takes no other dtypes; once, as an installed library does."""

    @torch.library.custom_op(f"bakeoff_tests::{name}", mutates_args=(), device_types="cpu")
    def kernel(x: torch.Tensor) -> torch.Tensor:
        if x.dtype not in dtypes:
            raise RuntimeError(f"no kernel for {x.dtype}")
        return torch.tanh(x) * 2

    kernel.register_fake(torch.empty_like)


kernel_for("like_triton", *TRITON)
kernel_for("like_flash_attention", *FLASH_ATTENTION)
kernel_for("like_any", torch.float64, *TRITON)

TEXT = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(16, 32)
        self.last = nn.Linear(32, 8)

    def forward(self, x):
        return self.last(torch.ops.bakeoff_tests.{kernel}(self.first(x)))

def model():
    torch.manual_seed(0)
    return Net().eval().to({dtype}), torch.randn(4, 16, dtype={dtype})
"""


def described(folder: Path, kernel: str, dtype: torch.dtype = torch.float32, **asked: str) -> tuple[About, list[str]]:
    said: list[str] = []
    path = folder / f"{kernel}_model.py"
    path.write_text(TEXT.format(kernel=kernel, dtype=dtype))
    report = lambda _phase, detail="": said.append(detail)  # noqa: E731
    return describing.described(describing.source_of(path), folder / "about", report, **asked), said


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Devices that tensors were moved to; what goes to a GPU stays on the CPU."""
    seen: set[str] = set()
    move = torch.Tensor.to

    def to(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if "device" in kwargs:
            seen.add(str(kwargs["device"]))
            kwargs["device"] = "cpu"
        return move(tensor, *args, **kwargs)

    monkeypatch.setattr(torch.Tensor, "to", to)
    return seen


def test_all_calls_run_on_the_asked_device(
    monkeypatch: pytest.MonkeyPatch, pretended: set[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(precision, "reference_precisions", lambda *_: (Precision("fp64", "cuda"),))
    about, _ = described(tmp_path, "like_any", device="cuda")
    assert pretended == {"cuda"}
    assert about.fp64


@pytest.mark.parametrize(
    ("kernel", "dtype", "found"),
    [("like_triton", torch.float32, "fp32"), ("like_flash_attention", torch.bfloat16, "given")],
)
def test_kernels_of_few_dtypes_are_described_and_have_references(
    tmp_path: Path, kernel: str, dtype: torch.dtype, found: str
) -> None:
    about, _ = described(tmp_path, kernel, dtype)
    assert not about.fp64
    assert any(f"does not compute in fp64, so references are in {found}" in note for note in about.notes)
    subject = describing.subject(tmp_path / "about")
    make_reference(ReferenceJob(subject, ("bf16",), str(tmp_path / "reference")), lambda *_: None)
    assert ReferenceFiles(tmp_path / "reference", None).about().dtype == found


def test_what_is_too_large_for_fp64_is_never_cast_to_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As 3 billion parameters, which take 24 GB in fp64."""
    monkeypatch.setattr(precision, "reference_precisions", lambda *_: (Precision("fp32", "cpu"),))
    about, said = described(tmp_path, "like_any")
    assert "running the model in fp32" in said
    assert "running the model in fp64" not in said
    assert not about.fp64
    assert any("fp64 takes too much memory or time here" in note for note in about.notes)
