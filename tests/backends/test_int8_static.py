"""Static int8 on a toy: pairs are counted, calibration draws its own inputs, a module without pairs is unsupported."""

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="graphs are torch's")
pytest.importorskip("torchao", reason="PT2E's quantizer is torchao's")

import torch
from torch import Tensor, nn
from torch.nn import functional
from toys import LIBRARY_WARNINGS, build_toy, relative

from bakeoff.backends.backend import BuildContext
from bakeoff.backends.int8_static import BACKEND, Options

pytestmark = LIBRARY_WARNINGS


@pytest.fixture(autouse=True)
def _work_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_counts_its_pairs(tmp_path: Path) -> None:
    made = build_toy("picture/int8-static[seeds=2]+eager/fp32", tmp_path)
    prepared = made.built.prepared
    assert prepared.quantised == {"conv2d": "conv2d int8 static", "conv2d_1": "conv2d int8 static"}
    assert prepared.skipped == {}
    assert prepared.facts == {"quantise_nodes": 2, "dequantise_nodes": 4, "calibration_sets": 2}
    assert made.built.fallback is None
    assert 1e-4 < made.error() < 0.15


class Reshaped(nn.Module):
    """A convolution and a product that are no modules, on weights that are reshaped first."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(8, 2, 2, 3, 3) / 6, requires_grad=False)
        self.map = nn.Parameter(torch.randn(8, 4, 2) / 3, requires_grad=False)

    def forward(self, u: Tensor) -> Tensor:
        convolved = functional.conv2d(u, self.kernel.flatten(1, 2), padding=1)
        return functional.linear(convolved.flatten(2).transpose(1, 2), self.map.flatten(1))


def test_functional_calls_are_quantised_too(tmp_path: Path) -> None:
    inputs = {"u": torch.randn(1, 4, 8, 8)}
    context = BuildContext("toy", "cpu", "fp32", 1, tmp_path, tmp_path, lambda _seed: inputs)
    module = Reshaped()
    prepared = BACKEND.prepare(module, inputs, Options(1), context)
    assert sorted(prepared.quantised.values()) == ["conv2d int8 static", "linear int8 static"]
    assert prepared.skipped == {}
    with torch.no_grad():
        assert 1e-4 < relative(prepared.module(inputs["u"]), module(inputs["u"])) < 0.15


def test_onnxruntime_takes_its_pairs(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="the engine is onnxruntime's")
    pytest.importorskip("onnxscript", reason="torch exports with onnxscript")
    made = build_toy("picture/int8-static[seeds=1]+onnxruntime/fp32", tmp_path)
    assert made.proof.operators_inside["QuantizeLinear"] == 2
    assert made.error() < 0.15
