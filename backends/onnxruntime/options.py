"""Options of the onnxruntime backend, and the execution provider that they select."""

from dataclasses import dataclass
from typing import Literal

from bakeoff.backends.graphs import INSTALL as _INSTALL
from bakeoff.backends.install import onnxruntime_gpu_command

PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider", "tensorrt": "TensorrtExecutionProvider"}
INSTALL = f"{_INSTALL}; for CUDA: {onnxruntime_gpu_command()}"


@dataclass(frozen=True, slots=True)
class Options:
    provider: Literal["device", "cpu", "cuda", "tensorrt"] = "device"
    """`device`: the provider of the variant's device."""
    level: Literal["all", "extended", "basic", "none"] = "all"
    """Graph optimisations of the session."""
    int8: bool = False
    cuda_graph: bool = False
    """Capture each bound set of inputs at its first call and then replay it; only with the CUDA provider."""


def provider_of(options: Options, device: str) -> str:
    return PROVIDERS[device if options.provider == "device" else options.provider]


def session_providers(options: Options, device: str) -> tuple[str, ...]:
    """The providers of a session, in order. ONNX Runtime adds the CPU provider itself.

    The TensorRT provider leaves what it does not support to the CUDA provider, as in ONNX Runtime's documentation.
    """
    requested = provider_of(options, device)
    return (requested, PROVIDERS["cuda"]) if requested == PROVIDERS["tensorrt"] else (requested,)
