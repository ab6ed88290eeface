"""Options of the tensorrt-rtx backend, the architectures it compiles for, and its packages."""

from dataclasses import dataclass
from typing import Final, Literal, get_args

from bakeoff.backends.install import extra_command

Target = Literal["sm86", "sm89", "sm120", "sm121"]
TARGETS: tuple[Target, ...] = get_args(Target)
"""Values of the provider option nv_target_sm: RTX 30, RTX 40, RTX 50 and GB10 (tensorrt_rtx_provider_options.h)."""
HERE: Final = "here"
PLUGIN = "onnxruntime_ep_nv_tensorrt_rtx"
DISTRIBUTION = "onnxruntime-ep-nv-tensorrt-rtx-cu13"
INSTALL = f"run {extra_command('rtx')}"
LEAST_RUNTIME = "1.27"
"""First ONNX Runtime whose ModelCompiler the provider's own tests use (NVIDIA/TensorRT-RTX-EP-ABI, python-samples)."""

LEAST_DRIVER = "580"
"""Oldest driver for CUDA 13, for which the package is built (CUDA Compatibility, "Minor Version Compatibility"); the
provider itself asks for 555.85, and for 570.00 on sm120."""


@dataclass(frozen=True, slots=True)
class Options:
    target: Literal["here", "sm86", "sm89", "sm120", "sm121"] = "here"
    """Architecture to build for, of a GPU that need not be here; `here`: this GPU, on which the engine is then run."""
    cuda_graph: bool = False
    """Capture each bound set of inputs at its first call and then replay it."""


def capability_of(target: str) -> str:
    """Return the compute capability of a target: sm89 is 8.9, sm120 is 12.0."""
    number = target.removeprefix("sm")
    return f"{number[:-1]}.{number[-1]}"
