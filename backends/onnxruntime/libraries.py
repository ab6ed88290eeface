"""Finds the shared library that keeps a GPU provider from loading.

ONNX Runtime only logs it ("Failed to load library … cannot open shared object file") and opens the session with the
next provider. The provider's file cannot be loaded here to ask: it needs a symbol of ONNX Runtime's bridge, and
ONNX Runtime would then load it a second time. So the libraries that it names are loaded one by one, as the loader does.
"""

import ctypes
import struct
from pathlib import Path

from bakeoff.backends.onnxruntime.options import PROVIDERS

_FILES = {
    PROVIDERS["cuda"]: "libonnxruntime_providers_cuda.so",
    PROVIDERS["tensorrt"]: "libonnxruntime_providers_tensorrt.so",
}
_LOADED, _DYNAMIC = 1, 2
"""Types of ELF program headers: PT_LOAD, PT_DYNAMIC (elf.h)."""
_NEEDED, _STRINGS = 1, 5
"""Tags of ELF dynamic entries: DT_NEEDED, DT_STRTAB (elf.h)."""


def missing_library(provider: str, folder: Path, prefix: str = "") -> str | None:
    """Why a library of the provider in onnxruntime's `capi` folder cannot be loaded, as the loader says it.

    Only those whose names begin with `prefix` are tried. None if all can be loaded. The text begins with the name of
    the library, which need not be one that the provider names itself: a library it needs may need another.
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
    """Names of the libraries that a 64-bit ELF file (Linux's format of shared libraries) is linked against, in order.

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
