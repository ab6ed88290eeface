"""What a record keeps of environment variables and messages: no folders of this machine, no name of its user."""

import contextlib
import os
import re
import sys
from collections.abc import Mapping

from bakeoff.machine import paths

_RECORDED = re.compile(
    r"^(OMP_|GOMP_|KMP_|MKL_|TORCH|PYTORCH_|CUDA_|NVIDIA_TF32|CUBLAS_|CUDNN_|TRITON_|MALLOC_|GLIBC_TUNABLES|LD_PRELOAD)"
)
"""Variables that change what is measured."""
_PATHS = ("_DIR", "_PATH", "_HOME", "_PRELOAD")
"""Endings of variables that hold a path: it says nothing about a number and something about a person."""


def without_folders(text: str) -> str:
    """`text` with the folders of this machine and its user replaced by `...`: records are shown to others."""
    own = {str(paths.cache_folder()), str(paths.checkout() or ""), sys.prefix, os.path.expanduser("~")}
    with contextlib.suppress(FileNotFoundError):  # the working folder may have been deleted
        own.add(os.getcwd())
    for folder in sorted(own, key=len, reverse=True):
        if len(folder) > 1 and os.path.isabs(folder):
            text = text.replace(folder, "...")
    return text


def recorded_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Of a worker's environment the variables that change what is measured, by name."""
    return {
        name: without_folders(value)
        for name, value in sorted(environment.items())
        if _RECORDED.match(name) and not name.endswith(_PATHS)
    }
