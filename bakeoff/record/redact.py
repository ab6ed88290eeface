"""Remove folders of this machine, and with them the user's name, from messages and environment variables of records."""

import contextlib
import os
import re
import sys
from collections.abc import Mapping

from bakeoff.machine import paths

_RECORDED = re.compile(
    r"^(OMP_|GOMP_|KMP_|MKL_|TORCH|PYTORCH_|CUDA_|NVIDIA_TF32|CUBLAS_|CUDNN_|TRITON_|MALLOC_|GLIBC_TUNABLES|LD_PRELOAD)"
)
"""Variables that affect measurements."""
_PATHS = ("_DIR", "_PATH", "_HOME", "_PRELOAD")
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


def recorded_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of a worker's environment that affect measurements, by name."""
    return {
        name: without_folders(value)
        for name, value in sorted(environment.items())
        if _RECORDED.match(name) and not name.endswith(_PATHS)
    }
