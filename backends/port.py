"""A port: an engine bound to buffers that the caller overwrites between calls, for loops that feed an engine."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from bakeoff.models.errors import BakeoffError

if TYPE_CHECKING:
    from torch import Tensor


class Port:
    """Inputs and outputs of a bound engine, by name. Not thread-safe.

    Write the next values into `inputs` with `copy_`, then `call`. The engine reads these buffers directly, so the only
    copy is the caller's own, and an input that does not change costs nothing.
    """

    __slots__ = ("_call", "_names", "_outputs", "inputs")

    def __init__(self, inputs: "Mapping[str, Tensor]", call: "Callable[[], tuple[Tensor, ...]]", names: Sequence[str]):
        """`call` reads `inputs` and returns one output for each of `names`, in order."""
        self.inputs = inputs
        """The buffers that the engine reads. Write into them; the engine does not see a tensor that replaces one."""
        self._call = call
        self._names = tuple(names)
        self._outputs: tuple[Tensor, ...] | None = None

    def call(self) -> None:
        """Compute the outputs for the current values of `inputs`. On CUDA it returns before they are computed."""
        self._outputs = self._call()

    @property
    def outputs(self) -> "dict[str, Tensor]":
        """Outputs of the last call, valid until the next call, which may write into the same memory.

        If the module returns an input unchanged, that output may be the input's buffer, and is valid until the buffer
        is overwritten. Raises BakeoffError before the first call, and if the engine returns another number of outputs.
        """
        if self._outputs is None:
            raise BakeoffError("The port was not called yet. Call it before reading its outputs.", code="wrong-output")
        if len(self._outputs) != len(self._names):
            raise BakeoffError(
                f"The engine returns {len(self._outputs)} outputs, but {len(self._names)} names were given: "
                f"{', '.join(self._names)}. Name every output of the workload, in order.",
                code="wrong-output",
            )
        return dict(zip(self._names, self._outputs, strict=True))


def buffers_like(inputs: "Mapping[str, Tensor]", contiguous: bool = False) -> "dict[str, Tensor]":
    """Copy the inputs into new memory, with the same strides unless `contiguous`.

    The copies can be written in any mode, even if the inputs were made under `torch.inference_mode`.
    """
    import torch

    layout = torch.contiguous_format if contiguous else torch.preserve_format
    with torch.inference_mode(False), torch.no_grad():
        return {name: tensor.clone(memory_format=layout) for name, tensor in inputs.items()}
