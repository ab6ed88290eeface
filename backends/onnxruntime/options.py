"""Options of the onnxruntime backend, and the execution provider that they name."""

from dataclasses import dataclass
from typing import Literal

from bakeoff.backends.exported import INSTALL as _INSTALL

PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider", "tensorrt": "TensorrtExecutionProvider"}
INSTALL = f"{_INSTALL}; for CUDA, onnxruntime-gpu in place of onnxruntime"


@dataclass(frozen=True, slots=True)
class Options:
    provider: Literal["device", "cpu", "cuda", "tensorrt"] = "device"
    """`device`: the provider of the variant's device."""
    level: Literal["all", "extended", "basic", "none"] = "all"
    """Graph optimisations of the session."""
    int8: bool = False
    cuda_graph: bool = False
    """Each bound set of inputs is captured at its first call and replayed; the CUDA provider's."""


def provider_of(options: Options, device: str) -> str:
    return PROVIDERS[device if options.provider == "device" else options.provider]
