"""A session's inputs and outputs as torch tensors: bound in place, and run on CUDA after torch's own stream."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnxruntime
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Bound:
    """A session's binding to memory, and the tensors that own it."""

    binding: "onnxruntime.IOBinding"
    inputs: "tuple[Tensor, ...]"
    results: "tuple[Tensor, ...]"


def bind_tensors(
    session: "onnxruntime.InferenceSession",
    names: "Sequence[str]",
    tensors: "Sequence[Tensor]",
    outputs: "Sequence[tuple[str, tuple[int, ...], Any]]",
) -> Bound:
    """Inputs where they lie and outputs in new memory beside them; nothing is copied that is contiguous."""
    import torch

    binding = session.io_binding()
    device = tensors[0].device
    kept = tuple(tensor.contiguous() for tensor in tensors)
    results = tuple(torch.empty(shape, dtype=dtype, device=device) for _, shape, dtype in outputs)
    place = (device.type, device.index or 0)
    for name, tensor in zip(names, kept, strict=True):
        binding.bind_input(name, *place, _onnx_type(tensor), tensor.shape, tensor.data_ptr())
    for (name, _, _), tensor in zip(outputs, results, strict=True):
        binding.bind_output(name, *place, _onnx_type(tensor), tensor.shape, tensor.data_ptr())
    return Bound(binding, kept, results)


def runner(session: "onnxruntime.InferenceSession", device: str) -> "Callable[..., None]":
    """Runs a binding; on CUDA once torch's current stream has done what it holds, inputs among it.

    The GPU providers run on a stream of their own, which waits for no other before a run (onnxruntime#26609, #32673);
    after it they wait for it themselves.
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
    """The element type of the ONNX standard (onnx.proto, TensorProto.DataType); numpy has no bfloat16 to name it by."""
    import onnx
    import torch

    return {
        torch.float32: onnx.TensorProto.FLOAT,
        torch.float16: onnx.TensorProto.FLOAT16,
        torch.bfloat16: onnx.TensorProto.BFLOAT16,
    }[tensor.dtype]
