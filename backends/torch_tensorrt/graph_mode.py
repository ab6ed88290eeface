"""Calls engines in their own CUDA-graph mode, which torch_tensorrt keeps once for the whole process.

Its runtime reads that global at every call of every engine, and a call without graphs drops the graph that the engine
had captured (core/runtime/execute_engine.cpp, 246, and TRTEngine.h, set_runtime_states, in 2.13.0; 219 in 2.11.0).
Calls of both modes at once, from several threads, are not supported.
"""

from collections.abc import Callable
from typing import Any


def in_own_mode(library: Any, cudagraphs: bool, run: Callable[..., Any]) -> Callable[..., Any]:
    """`run` with the mode set around each call; other code of the process finds it as it left it.

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
