"""Options of the onnxruntime backend, the execution providers that they select, and why a provider cannot be loaded.

ONNX Runtime only logs a missing library ("Failed to load library … cannot open shared object file") and opens the
session with the next provider. The provider's file cannot be loaded here as a test: it needs a symbol of ONNX Runtime's
bridge, and ONNX Runtime would then load it a second time. So ldd(1) lists the libraries that the loader does not find.
"""

import ctypes
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bakeoff.backends.graphs import INSTALL as _INSTALL
from bakeoff.backends.install import onnxruntime_gpu_command

PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider", "tensorrt": "TensorrtExecutionProvider"}
INSTALL = f"{_INSTALL}; for CUDA: {onnxruntime_gpu_command()}"
_FILES = {
    PROVIDERS["cuda"]: "libonnxruntime_providers_cuda.so",
    PROVIDERS["tensorrt"]: "libonnxruntime_providers_tensorrt.so",
}


@dataclass(frozen=True, slots=True)
class Options:
    provider: Literal["device", "cpu", "cuda", "tensorrt"] = "device"
    """`device`: the provider for the variant's device."""
    level: Literal["all", "extended", "basic", "none"] = "all"
    """Level of the session's graph optimisations."""
    int8: bool = False
    cuda_graph: bool = False
    """Capture each bound set of inputs at its first call and then replay it; only with the CUDA provider."""


def provider_of(options: Options, device: str) -> str:
    return PROVIDERS[device if options.provider == "device" else options.provider]


def session_providers(options: Options, device: str) -> tuple[str, ...]:
    """Return the providers of a session, in order. ONNX Runtime adds the CPU provider itself.

    Nodes that the TensorRT provider does not support are left to the CUDA provider, as in ONNX Runtime's documentation.
    """
    requested = provider_of(options, device)
    return (requested, PROVIDERS["cuda"]) if requested == PROVIDERS["tensorrt"] else (requested,)


def missing_library(provider: str, folder: Path, prefix: str = "") -> str | None:
    """Return the loader's reason why a library of the provider cannot be loaded; None if all can be loaded.

    `folder` is onnxruntime's `capi` folder. Only libraries whose names begin with `prefix` are tried. The text begins
    with the name of the missing library, which may be one that another library needs.
    """
    path = folder / _FILES[provider]
    if not path.is_file():
        return f"{path.name}: not in the installed onnxruntime"
    listed = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
    for name in re.findall(rf"^\s*({re.escape(prefix)}\S+) => not found", listed, re.MULTILINE):
        try:
            ctypes.CDLL(name)  # one that torch has loaded from a folder of its own is found
        except OSError as error:
            return str(error)
    return None
