"""Turns modelopt's quantise operator into ONNX's pair of QuantizeLinear and DequantizeLinear in fp8 (e4m3).

TensorRT documents that it fuses the pair with the layer behind it. A tensor's one scale is amax / 448, the largest
number of e4m3, as in torch_tensorrt (2.13: dynamo/conversion/impl/quantize.py).
"""

from typing import Any

from bakeoff.backends.onnxruntime.export import Translations
from bakeoff.backends.tensorrt_rtx.options import TARGETS

OPERATOR = "tensorrt.quantize_op"
TAKEN_BY = tuple(target for target in TARGETS if target != "sm86")
"""Targets with fp8, which begins at compute capability 8.9."""
_LARGEST = 448.0


def translations() -> Translations:
    """Return how torch.onnx translates modelopt's operator, which modelopt has registered."""
    import torch
    from onnx import TensorProto, helper
    from onnxscript import opset20

    onnx: Any = opset20  # its type variables do not admit what its own operators return
    zero = helper.make_tensor("zero", TensorProto.FLOAT8E4M3FN, [], b"\0", raw=True)

    def quantize_op(x: Any, amax: Any, num_bits: int, exponent_bits: int, unsigned: bool, narrow_range: bool) -> Any:
        if (num_bits, exponent_bits, unsigned, narrow_range) != (8, 4, False, False):
            raise NotImplementedError(f"a number of {num_bits} bits with {exponent_bits} of the exponent is no e4m3")
        scale = onnx.CastLike(onnx.Div(onnx.Cast(amax, to=TensorProto.FLOAT), _LARGEST), x)
        return onnx.DequantizeLinear(onnx.QuantizeLinear(x, scale, onnx.Constant(value=zero)), scale)

    return {torch.ops.tensorrt.quantize_op.default: quantize_op}
