"""What is said of an exception, and which exceptions of libraries mean that memory was short."""

import pytest

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


@pytest.mark.parametrize("text", ["no kernel", "could not allocate a port", "memory format is channels_last"])
def test_other_texts(text: str) -> None:
    assert not is_out_of_memory(RuntimeError(text))


# The first is torch/jit/_trace.py's.
SENTENCES = {
    "'x' is not in forward() method's arguments,\n   valid arguments name are [input]\nmore": (
        "'x' is not in forward() method's arguments, valid arguments name are [input]"
    ),
    "Error(s) in loading state_dict for Net:\n\tMissing key(s).": (
        "Error(s) in loading state_dict for Net: Missing key(s)."
    ),
    "\n  no kernel\nsecond line": "no kernel",
    "it is,\nbut:": "it is, but:",
    "": "no message",
}


@pytest.mark.parametrize("text", SENTENCES)
def test_a_reason_does_not_end_within_a_sentence(text: str) -> None:
    assert first_line(RuntimeError(text)) == f"RuntimeError: {SENTENCES[text]}"
