"""Remove folders of this machine, and with them the user's name, from messages and environment variables of records."""

import contextlib
import os
import re
import sys
from collections.abc import Mapping

from bakeoff.machine import paths

_RECORDED = re.compile(
    r"^(OMP_|GOMP_|KMP_|MKL_|DNNL_|ONEDNN_|OPENBLAS_|BLIS_|ATEN_|LRU_CACHE_CAPACITY|TORCH|PYTORCH_|CUDA_|NVIDIA_TF32"
    r"|CUBLAS|CUDNN_|TRITON_|ORT_|OV_|OPENVINO_|GLIBC_TUNABLES|MALLOC_|_RJEM_MALLOC_CONF|JE_MALLOC_CONF|TCMALLOC_|MIMALLOC_"
    r"|PYTHONMALLOC|LD_PRELOAD|LD_BIND_NOW)"
)
"""Variables that affect measurements: of threads, libraries, compilers, memory allocators and the dynamic linker."""
_LIBRARIES = ("LD_PRELOAD",)
"""Lists of libraries, separated by spaces or colons (ld.so(8)). Another malloc is the usual one; its name is stored."""
_PATHS = ("_DIR", "_PATH", "_HOME")
"""Endings of variables that contain a path. They are not stored: paths affect no number and may name a user."""


def without_folders(text: str) -> str:
    """`text` with the folders of this machine and its user replaced by `...`, because records are published."""
    own = {str(paths.cache_folder()), str(paths.checkout() or ""), sys.prefix, os.path.expanduser("~")}
    with contextlib.suppress(FileNotFoundError):  # the working folder may have been deleted
        own.add(os.getcwd())
    for folder in sorted(own, key=len, reverse=True):
        if len(folder) > 1 and os.path.isabs(folder):
            text = text.replace(folder, "...")
    return text


def _base_names(libraries: str) -> str:
    return ":".join(os.path.basename(path) for path in re.split("[ :]+", libraries) if path)


def recorded_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of a worker's environment that affect measurements, by name."""
    return {
        name: _base_names(value) if name in _LIBRARIES else without_folders(value)
        for name, value in sorted(environment.items())
        if _RECORDED.match(name) and not name.endswith(_PATHS)
    }
