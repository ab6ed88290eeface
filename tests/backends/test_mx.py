"""torchao's MXFP8 and NVFP4: refused before Blackwell, what they leave out, and the precision that budgets rest on."""

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="layers are torch's")
pytest.importorskip("torchao", reason="the formats are torchao's")

import torch
from toys import LIBRARY_WARNINGS

from bakeoff.backends.backend import BuildContext, Unsupported, by_options
from bakeoff.backends.mx import BACKEND, Kind, Options
from bakeoff.models.component import LEAST_SQNR_DB

pytestmark = LIBRARY_WARNINGS


def context(folder: Path) -> BuildContext:
    return BuildContext("mx", "cuda", "bf16", 1, folder, folder, lambda _seed: {})


def fake_gpu(monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int]) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")


@pytest.mark.parametrize("kind", ["mxfp8", "nvfp4"])
def test_hopper_is_refused_and_keeps_its_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind) -> None:
    fake_gpu(monkeypatch, (9, 0))
    module = torch.nn.Sequential(torch.nn.Linear(64, 64)).bfloat16()
    weight = module[0].weight
    with pytest.raises(Unsupported, match=rf"{kind} needs compute capability 10.0, and NVIDIA H200 has 9.0; use fp8"):
        BACKEND.prepare(module, {}, Options(kind, least=0), context(tmp_path))
    assert module[0].weight is weight


def test_mxfp8_takes_layers_of_whole_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torchao stores the weights on any device; only the product needs Blackwell."""
    fake_gpu(monkeypatch, (10, 0))
    module = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.Linear(48, 128)).bfloat16().requires_grad_(False)
    made = BACKEND.prepare(module, {}, Options("mxfp8", least=0), context(tmp_path))
    assert made.quantised == {"0": "mxfp8 dynamic"}
    assert made.skipped == {"1": "48 to 128 features are not multiples of 32 and 1"}
    assert type(made.module[0].weight).__name__ == "MXTensor"
    assert type(made.module[1].weight) is torch.nn.Parameter


def test_each_kind_is_a_class_with_a_budget_below_what_the_format_can_hold() -> None:
    """SQNR of normal values in each format, as the comment beside the budgets states it."""
    from torchao.prototype.mx_formats.mx_tensor import MXTensor
    from torchao.prototype.mx_formats.nvfp4_tensor import NVFP4Tensor, per_tensor_amax_to_scale

    values = torch.randn(1024, 1024, generator=torch.Generator().manual_seed(0))
    stored = {
        "fp8": (values * 100).to(torch.float8_e4m3fn).float() / 100,
        "mxfp8": MXTensor.to_mx(values, torch.float8_e4m3fn, 32).dequantize(torch.float32),
        "nvfp4": NVFP4Tensor.to_nvfp4(
            values.bfloat16(), per_tensor_scale=per_tensor_amax_to_scale(values.abs().max())
        ).dequantize(torch.float32),
    }
    sqnr = {kind: float(20 * torch.log10(values.norm() / (got - values).norm())) for kind, got in stored.items()}
    assert sqnr == pytest.approx({"fp8": 31.5, "mxfp8": 30.6, "nvfp4": 20.5}, abs=0.3)
    assert all(LEAST_SQNR_DB[kind] < held for kind, held in sqnr.items())
    assert [by_options(BACKEND.quantises, Options(kind)) for kind in ("mxfp8", "nvfp4")] == ["mxfp8", "nvfp4"]
