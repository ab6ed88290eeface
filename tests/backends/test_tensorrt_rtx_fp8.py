"""fp8 for TensorRT for RTX: modelopt's operator as a pair of ONNX operators, and which GPUs take it."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("onnxscript", reason="torch.onnx writes models with it")
pytest.importorskip("onnxruntime", reason="it runs them")

import onnx
import onnxruntime
import torch
from torch import Tensor, nn
from toys import LIBRARY_WARNINGS

from bakeoff.backends.backend import BuildContext, Unsupported
from bakeoff.backends.onnxruntime.export import MODEL, export_program
from bakeoff.backends.tensorrt_rtx import compiler, fp8
from bakeoff.backends.tensorrt_rtx.backend import BACKEND
from bakeoff.backends.tensorrt_rtx.options import DISTRIBUTION, Options

pytestmark = LIBRARY_WARNINGS

SCHEMA = (
    "quantize_op(Tensor input, Tensor amax, int num_bits, int exponent_bits, bool unsigned, bool narrow_range)"
    " -> Tensor"
)
"""As modelopt 0.47 registers it (torch/quantization/src and its tensor_quantizer)."""


def rounded(x: Tensor, amax: Tensor, *_format: object) -> Tensor:
    scale = (amax / 448).to(x.dtype)
    return (x / scale).clamp(-448, 448).to(torch.float8_e4m3fn).to(x.dtype) * scale


@pytest.fixture(autouse=True)
def _operator() -> Iterator[None]:
    library = torch.library.Library("tensorrt", "FRAGMENT")
    library.define(SCHEMA)
    library.impl("quantize_op", rounded, "CompositeExplicitAutograd")
    torch.library.register_fake("tensorrt::quantize_op", lambda x, *_: torch.empty_like(x), lib=library)
    yield
    library._destroy()


class Linear(nn.Module):
    """A layer as modelopt leaves it: its input and its weight go through the operator."""

    weight: Tensor
    amax: Tensor

    def __init__(self, bits: int = 4) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.register_buffer("weight", torch.randn(64, 32, generator=generator))
        self.register_buffer("amax", torch.tensor(4.0))
        self.bits = bits

    def forward(self, x: Tensor) -> tuple[Tensor]:
        both = [
            torch.ops.tensorrt.quantize_op(each, self.amax, 8, self.bits, False, False) for each in (x, self.weight)
        ]
        return (nn.functional.linear(*both).relu(),)


INPUTS = {"x": torch.randn(16, 32, generator=torch.Generator().manual_seed(1))}


def context(folder: Path) -> BuildContext:
    return BuildContext("fp8", "cpu", "fp32", 1, folder, folder, lambda _seed: INPUTS)


def converted(module: nn.Module, folder: Path) -> Path:
    program = export_program(module, INPUTS, context(folder))
    program.convert(folder / "onnx", translations=fp8.translations())
    return folder / "onnx" / MODEL


def test_the_model_computes_what_the_operator_does(tmp_path: Path) -> None:
    path = converted(Linear(), tmp_path)
    counts = Counter(node.op_type for node in onnx.load(str(path)).graph.node)
    assert (counts["QuantizeLinear"], counts["DequantizeLinear"]) == (2, 2), "no pair was folded into a constant"
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"x": INPUTS["x"].numpy()})
    (expected,) = Linear()(*INPUTS.values())
    torch.testing.assert_close(torch.from_numpy(found), expected, rtol=1e-5, atol=1e-5)
    (plain,) = (INPUTS["x"] @ Linear().weight.T).relu()[None]
    assert (plain - expected).abs().max() > 0.1, "rounding to fp8 is seen"


def test_scales_are_constants_of_the_model(tmp_path: Path) -> None:
    """TensorRT refuses a pair whose scale is computed."""
    graph = onnx.load(str(converted(Linear(), tmp_path))).graph
    constants = {value.name for value in graph.initializer}
    constants |= {node.output[0] for node in graph.node if node.op_type == "Constant"}
    assert {node.input[1] for node in graph.node if "QuantizeLinear" in node.op_type} <= constants


def test_another_number_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(torch.onnx.OnnxExporterError, match="8 bits with 5 of the exponent is no e4m3"):
        converted(Linear(bits=5), tmp_path)


def test_a_gpu_without_fp8_is_refused_before_anything_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "version", {DISTRIBUTION: "0.5.0"}.__getitem__)
    with pytest.raises(Unsupported, match="sm86 has no fp8; build for sm89, sm120, sm121"):
        compiler.compiled(Linear(), INPUTS, "sm86", context(tmp_path))


GAP = BACKEND.unavailable(Options(target="sm89"), "cpu")


@pytest.mark.skipif(GAP is not None, reason=str(GAP))
@pytest.mark.parametrize("target", fp8.TAKEN_BY)
def test_engines_hold_fp8(target: str, tmp_path: Path) -> None:
    about = compiler.compiled(Linear(), INPUTS, target, context(tmp_path)).about
    assert (about["engines"], about["outside"]) == (1, {})
    assert "float8e4m3fn" in about["precisions"]
