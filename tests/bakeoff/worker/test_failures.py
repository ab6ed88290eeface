"""What is said of an exception, and which exceptions of libraries mean that memory was short."""

import pytest
import torch

from bakeoff.models.lookup import user_error
from bakeoff.worker.failures import first_line, is_out_of_memory


@pytest.mark.parametrize(
    "text",
    [
        "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory",  # torch, CPU
        "Failed to allocate memory for requested buffer of size 4294967296",  # ONNX Runtime's arena
        "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Exception during initialization: std::bad_alloc",  # issue 6670
        "Exception from src/core/src/runtime/aligned_buffer.cpp: Failed to allocate 7663872811008 bytes of memory",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "CUDA out of memory. Tried to allocate 20.00 MiB",
    ],
)
def test_texts_of_libraries(text: str) -> None:
    assert is_out_of_memory(RuntimeError(text))
    chained = ValueError("the build failed")
    chained.__cause__ = RuntimeError(text)
    assert is_out_of_memory(chained)


def test_a_call_that_needs_gradients_is_told_that_there_are_none() -> None:
    with torch.no_grad(), pytest.raises(RuntimeError) as raised:
        torch.ones(2, requires_grad=True).sum().backward()
    assert str(user_error("the model", raised.value)).endswith("compute yours within torch.enable_grad()")
    assert "enable_grad" not in str(user_error("the model", RuntimeError("no")))


def test_chains_that_lead_back_end() -> None:
    own, first, second = ValueError("it"), RuntimeError("one"), RuntimeError("two")
    own.__cause__ = own
    first.__cause__, second.__context__ = second, first
    second.__cause__ = first
    for error in (own, first, second):
        assert not is_out_of_memory(error)
    assert first_line(own) == "ValueError: it"
    assert first_line(first) == "RuntimeError: one (caused by RuntimeError: two)"


# The first is torch/jit/_trace.py's.
