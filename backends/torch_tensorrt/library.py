"""Loads torch_tensorrt, and states what a host needs for it.

`import torch_tensorrt` needs a GPU and TensorRT's libraries. Without them it prints to stdout and raises a plain
Exception (torch_tensorrt/__init__.py), so only workers import it.
"""

import contextlib
import sys
from importlib.metadata import version
from typing import Any

from bakeoff.backends.backend import Requirement, Unavailable
from bakeoff.backends.install import tensorrt_command

INSTALL = f"run in a checkout of bakeoff, on a host with an NVIDIA GPU: {tensorrt_command()}"
REQUIRES = (Requirement("torch_tensorrt", INSTALL), Requirement("tensorrt", INSTALL))


def load_library() -> Any:
    """Import torch_tensorrt. Raises Unavailable with the library's own reason if it does not load."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            import torch_tensorrt
    except Exception as error:  # torch_tensorrt raises plain Exception
        found = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise Unavailable(f"torch_tensorrt {version('torch_tensorrt')} does not load: {found}; {INSTALL}") from error
    return torch_tensorrt
