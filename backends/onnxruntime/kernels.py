"""Names the operators that a provider of ONNX Runtime has no kernel for, before a session opens or when it fails to."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bakeoff.backends.backend import Unsupported
from bakeoff.backends.onnxruntime.options import PROVIDERS

_READ_FROM = (1, 31)
"""Version of onnxruntime-gpu that WITHOUT_BF16 was read from; later versions may have more kernels."""
# fmt: off
WITHOUT_BF16 = frozenset((
    "ArgMax", "ArgMin", "BatchNormalization", "Ceil", "Clip", "ConvTranspose", "CumSum", "DepthToSpace",
    "DequantizeLinear", "Einsum", "Elu", "Equal", "Floor", "GRU", "GlobalAveragePool", "GlobalMaxPool", "Greater",
    "GreaterOrEqual", "InstanceNormalization", "LRN", "LSTM", "LeakyRelu", "Less", "LessOrEqual", "Log",
    "LogSoftmax", "MaxPool", "NonZero", "OneHot", "PRelu", "Pad", "QuantizeLinear", "RNN", "Reciprocal", "ReduceL1",
    "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSumSquare",
    "Resize", "Round", "Selu", "Shrink", "SpaceToDepth", "ThresholdedRelu", "TopK",
))
# fmt: on
"""Operators of ai.onnx that have a CUDA kernel for float16 but none for bfloat16 in opset 22.

Read from onnxruntime-gpu 1.31.1 itself (`onnxruntime_pybind11_state.get_all_opkernel_def()`; the function needs every
provider's libraries, and ends the process with a segmentation fault where one is missing, so it is not called here).
"""
_NO_KERNEL = (
    # core/framework/session_state.cc
    re.compile(r"Could not find an implementation for (?P<operator>\w+)\(\d+\)"),
    # core/optimizer/transformer_memcpy.cc; which of both is raised depends on the graph's optimisation
    re.compile(r"Provider type for (?P<operator>\w+) node with name '[^']*' is not set"),
)
_BAD_TYPE = re.compile(r"Type 'tensor\((?P<type>\w+)\)' of input parameter \([^)]*\) of operator \((?P<operator>\w+)\)")
"""onnx's own schema check. Where the type is the variant's, the operator allows fewer types in its opset; of
any other type, the graph was exported wrongly: its own sentence says how."""
_TYPES = {"fp16": "float16", "bf16": "bfloat16"}
"""Of dtypes that an opset may lack; every opset has fp32."""
_NO_CAPTURE = re.compile(r"cannot use the graph capture feature as requested by the user\s+as (?P<cause>[^\n]*)")
"""core/session/inference_session.cc"""


def check_bf16_kernels(path: Path, provider: str, version: str) -> None:
    """Raise Unsupported with the operators of the model at `path` that compute in bf16 without a kernel for it.

    `version` is the installed onnxruntime's. Checks nothing for another provider than CUDA's, for a later version than
    the list was read from, or for a model without its tensors' types.
    """
    if provider != PROVIDERS["cuda"] or tuple(int(part) for part in version.split(".")[:2]) > _READ_FROM:
        return
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    types = element_types(model)
    half = onnx.TensorProto.BFLOAT16
    found = {
        node.op_type
        for node in model.graph.node
        if node.op_type in WITHOUT_BF16
        and node.domain in ("", "ai.onnx")
        and any(types.get(name) == half for name in (*node.input, *node.output))
    }
    if found:
        raise Unsupported(_text(provider, "bf16", ", ".join(sorted(found))))


def element_types(model: Any) -> Mapping[str, int]:
    """Element type (TensorProto.DataType) of each tensor of the model's main graph, by name."""
    graph = model.graph
    values = (*graph.input, *graph.value_info, *graph.output)
    stored = {tensor.name: tensor.data_type for tensor in graph.initializer}
    return {value.name: value.type.tensor_type.elem_type for value in values} | stored


def refusal(error: Exception, provider: str, dtype: str) -> Unsupported | None:
    """The reason in words if ONNX Runtime refused a model for a kernel that the provider lacks; None otherwise."""
    for pattern in _NO_KERNEL:
        match = pattern.search(str(error))
        if match is not None:
            return Unsupported(_text(provider, dtype, match["operator"]))
    match = _BAD_TYPE.search(str(error))
    if match is not None and match["type"] == _TYPES.get(dtype):
        return Unsupported(_text(provider, dtype, match["operator"]))
    match = _NO_CAPTURE.search(str(error))
    if match is not None:
        return Unsupported(f"ONNX Runtime cannot capture this model: {match['cause'].strip()}; use cuda_graph=false")
    return None


def _text(provider: str, dtype: str, operators: str) -> str:
    advice = "use fp16" if dtype == "bf16" and provider != PROVIDERS["cpu"] else "use another backend, such as inductor"
    kernel = f"{dtype} kernel" if dtype in _TYPES else "kernel"  # in fp32 it is mostly one of integers that is missing
    return f"ONNX Runtime's {provider} has no {kernel} for {operators}; {advice}"
