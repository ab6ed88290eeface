"""Binds torch tensors as a session's inputs and outputs, and queues runs of the session on a CUDA stream."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnxruntime
    import torch
    from torch import Tensor


def bind_tensors(
    session: "onnxruntime.InferenceSession",
    names: "Sequence[str]",
    tensors: "Sequence[Tensor]",
    output_names: "Sequence[str]",
    results: "Sequence[Tensor]",
) -> "onnxruntime.IOBinding":
    """Bind the memory of contiguous inputs and of the outputs in place; the caller keeps both."""
    binding = session.io_binding()
    device = tensors[0].device
    location = (device.type, device.index or 0)
    for name, tensor in zip(names, tensors, strict=True):
        binding.bind_input(name, *location, _onnx_type(tensor), tensor.shape, tensor.data_ptr())
    for name, tensor in zip(output_names, results, strict=True):
        binding.bind_output(name, *location, _onnx_type(tensor), tensor.shape, tensor.data_ptr())
    return binding


def new_results(outputs: "Sequence[tuple[str, tuple[int, ...], Any]]", device: "torch.device") -> "tuple[Tensor, ...]":
    """Allocate memory for outputs, given as name, shape and torch dtype."""
    import torch

    return tuple(torch.empty(shape, dtype=dtype, device=device) for _, shape, dtype in outputs)


def runner(session: "onnxruntime.InferenceSession", stream: "torch.cuda.Stream | None") -> "Callable[..., None]":
    """Return the function that runs a binding; with a stream, it queues the run and returns before the run has
    finished.

    `stream` is the session's `user_compute_stream`; None for the CPU. It is not torch's current stream, because that
    may be the default stream, whose address 0 means "none" to ONNX Runtime and which cannot be captured. So the run
    waits on the device for the work that torch has queued, and torch's later work waits for the run. The run itself
    must be told not to wait for the device (`run_settings`).
    """
    run: Callable[..., None] = session.run_with_iobinding
    if stream is None:
        return run
    import torch

    def run_between(*binding: Any) -> None:
        current = torch.cuda.current_stream()
        stream.wait_stream(current)
        run(*binding)
        current.wait_stream(stream)

    return run_between


def run_settings(stream: "torch.cuda.Stream | None", graph: int | None = None) -> "onnxruntime.RunOptions | None":
    """Return the settings of a binding's runs: no wait for the device, and a captured graph; None for the defaults.

    `graph` is the number of the captured graph, which replays the addresses that it was captured with; None: nothing is
    captured. Without the wait, ONNX Runtime's work is only queued, as torch's is (onnxruntime 1.31 uses the same
    setting for a given stream: transformers/io_binding_helper.py, GpuBinding.infer). Older versions wait nevertheless
    when they replay a graph (onnxruntime#28686).
    """
    if stream is None and graph is None:
        return None
    import onnxruntime

    settings = onnxruntime.RunOptions()
    if stream is not None:
        settings.add_run_config_entry("disable_synchronize_execution_providers", "1")
    if graph is not None:
        settings.add_run_config_entry("gpu_graph_id", str(graph))
    return settings


def _onnx_type(tensor: "Tensor") -> int:
    """Return the tensor's element type in ONNX (onnx.proto, TensorProto.DataType); numpy has no bfloat16 to pass
    instead."""
    import onnx
    import torch

    return {
        torch.float32: onnx.TensorProto.FLOAT,
        torch.float16: onnx.TensorProto.FLOAT16,
        torch.bfloat16: onnx.TensorProto.BFLOAT16,
        torch.int64: onnx.TensorProto.INT64,
        torch.int32: onnx.TensorProto.INT32,
        torch.int16: onnx.TensorProto.INT16,
        torch.int8: onnx.TensorProto.INT8,
        torch.uint8: onnx.TensorProto.UINT8,
        torch.bool: onnx.TensorProto.BOOL,
    }[tensor.dtype]
