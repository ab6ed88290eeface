"""Binds torch tensors as a session's inputs and outputs, and runs the session after torch's current CUDA stream."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnxruntime
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Bound:
    """A session's binding, and the tensors whose memory is bound."""

    binding: "onnxruntime.IOBinding"
    inputs: "tuple[Tensor, ...]"
    results: "tuple[Tensor, ...]"


def bind_tensors(
    session: "onnxruntime.InferenceSession",
    names: "Sequence[str]",
    tensors: "Sequence[Tensor]",
    outputs: "Sequence[tuple[str, tuple[int, ...], Any]]",
) -> Bound:
    """Bind the inputs in place and the outputs to new memory on the same device; only non-contiguous inputs are copied.

    `outputs` are name, shape and torch dtype of each output.
    """
    import torch

    binding = session.io_binding()
    device = tensors[0].device
    kept = tuple(tensor.contiguous() for tensor in tensors)
    results = tuple(torch.empty(shape, dtype=dtype, device=device) for _, shape, dtype in outputs)
    location = (device.type, device.index or 0)
    for name, tensor in zip(names, kept, strict=True):
        binding.bind_input(name, *location, _onnx_type(tensor), tensor.shape, tensor.data_ptr())
    for (name, _, _), tensor in zip(outputs, results, strict=True):
        binding.bind_output(name, *location, _onnx_type(tensor), tensor.shape, tensor.data_ptr())
    return Bound(binding, kept, results)


def runner(session: "onnxruntime.InferenceSession", device: str) -> "Callable[..., None]":
    """Return the function that runs a binding; on CUDA it first waits for torch's current stream.

    The GPU providers run on their own stream. It does not wait for other streams before a run, so inputs that torch
    still computes would be read too early (onnxruntime#26609, #32673). After a run the providers synchronise it.
    """
    run: Callable[..., None] = session.run_with_iobinding
    if device != "cuda":
        return run
    import torch

    def run_after(*binding: Any) -> None:
        torch.cuda.current_stream().synchronize()
        run(*binding)

    return run_after


def _onnx_type(tensor: "Tensor") -> int:
    """The tensor's element type in ONNX (onnx.proto, TensorProto.DataType); numpy has no bfloat16 to pass instead."""
    import onnx
    import torch

    return {
        torch.float32: onnx.TensorProto.FLOAT,
        torch.float16: onnx.TensorProto.FLOAT16,
        torch.bfloat16: onnx.TensorProto.BFLOAT16,
    }[tensor.dtype]
