"""Loads torch_tensorrt, and states what a host needs for it.

`import torch_tensorrt` needs a GPU and TensorRT's libraries. Without them it prints to stdout and raises a plain
Exception (torch_tensorrt/__init__.py), so only workers import it.
"""

import contextlib
import sys
from collections.abc import Callable
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


def in_own_mode(library: Any, cudagraphs: bool, run: Callable[..., Any]) -> Callable[..., Any]:
    """`run` with its own CUDA-graph mode around each call; other code of the process finds the mode as it left it.

    torch_tensorrt keeps the mode once for the whole process. Its runtime reads it at every call of every engine, and a
    call without graphs drops the graph that the engine had captured (core/runtime/execute_engine.cpp, 246, and
    TRTEngine.h, set_runtime_states, in 2.13.0; 219 in 2.11.0). Calls of both modes at once, from several threads, are
    not supported.

    With `cudagraphs` the first call runs twice: without a graph, then captured. TensorRT asks for an execution before a
    capture, since the first one may allocate memory (NVIDIA/TensorRT#2603).
    """
    runtime, ran = library.runtime, not cudagraphs

    def call_in(mode: bool, *given: Any) -> Any:
        before = runtime.get_cudagraphs_mode()
        if before == mode:
            return run(*given)
        runtime.set_cudagraphs_mode(mode)
        try:
            return run(*given)
        finally:
            runtime.set_cudagraphs_mode(before)

    def call(*given: Any) -> Any:
        nonlocal ran
        if not ran:
            call_in(False, *given)
            ran = True
        return call_in(cudagraphs, *given)

    return call
