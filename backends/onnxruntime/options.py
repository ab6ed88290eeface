"""Options of the onnxruntime backend, the execution providers that they select, and why a provider cannot be loaded.

ONNX Runtime only logs a missing library ("Failed to load library … cannot open shared object file") and opens the
session with the next provider. The provider's file cannot be loaded here as a test: it needs a symbol of ONNX Runtime's
bridge, and ONNX Runtime would then load it a second time. So the libraries that it needs are loaded one by one, as the
loader does.
"""

import ctypes
import struct
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
_LOADED, _DYNAMIC = 1, 2
"""Types of ELF program headers: PT_LOAD, PT_DYNAMIC (elf.h)."""
_NEEDED, _STRINGS = 1, 5
"""Tags of ELF dynamic entries: DT_NEEDED, DT_STRTAB (elf.h)."""


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
    for name in filter(lambda name: name.startswith(prefix), needed_libraries(path)):
        try:
            ctypes.CDLL(name)
        except OSError as error:
            return str(error)
    return None


def needed_libraries(path: Path) -> tuple[str, ...]:
    """Return the names of the libraries that a 64-bit ELF file (Linux's shared libraries) is linked against, in order.

    Raises OSError if the file cannot be read, ValueError if it is not such a file.
    """
    with path.open("rb") as file:
        header = file.read(64)
        if header[:6] != b"\x7fELF\x02\x01":
            raise ValueError(f"{path} is not a 64-bit ELF file")
        (offset,) = struct.unpack_from("<Q", header, 32)
        size, count = struct.unpack_from("<HH", header, 54)
        file.seek(offset)
        table = file.read(size * count)
        # type, flags, offset in the file, address, physical address, size in the file (Elf64_Phdr)
        parts = [struct.unpack_from("<IIQQQQ", table, index * size) for index in range(count)]
        _, _, start, _, _, length = next(part for part in parts if part[0] == _DYNAMIC)
        file.seek(start)
        entries = list(struct.iter_unpack("<qQ", file.read(length)))
        address = next(value for tag, value in entries if tag == _STRINGS)
        strings = next(
            part[2] + address - part[3] for part in parts if part[0] == _LOADED and 0 <= address - part[3] < part[5]
        )
        names = []
        for tag, value in entries:
            if tag == _NEEDED:
                file.seek(strings + value)
                names.append(file.read(256).partition(b"\0")[0].decode())
    return tuple(names)
