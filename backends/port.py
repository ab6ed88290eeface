"""An engine bound once to buffers of its own, whose inputs are written between calls: how a loop feeds an engine."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from bakeoff.models.errors import BakeoffError

if TYPE_CHECKING:
    from torch import Tensor


class Port:
    """Inputs and outputs of a bound engine, by name. Not thread-safe.

    Write the next values into `inputs` with `copy_`, then `call`. The engine reads these buffers, so that nothing is
    copied but what the caller copies: feeding costs one pass over the bytes that change, and an input that stays the
    same costs nothing.
    """

    __slots__ = ("_call", "_names", "_outputs", "inputs")

    def __init__(self, inputs: "Mapping[str, Tensor]", call: "Callable[[], tuple[Tensor, ...]]", names: Sequence[str]):
        """`call` reads `inputs` and gives one output for each of `names`, in order."""
        self.inputs = inputs
        """The buffers that the engine reads. Never replace one: the engine would not see it."""
        self._call = call
        self._names = tuple(names)
        self._outputs: tuple[Tensor, ...] | None = None

    def call(self) -> None:
        """Compute the outputs of what is in `inputs` now. On CUDA it returns before they are computed."""
        self._outputs = self._call()

    @property
    def outputs(self) -> "dict[str, Tensor]":
        """Outputs of the last call, valid until the next one, which may write into the same memory.

        An output that the module passes through may be an input's buffer, and is valid until that is written.
        Raises BakeoffError before the first call, and where the engine gives another number of outputs.
        """
        if self._outputs is None:
            raise BakeoffError("The port was not called yet. Call it before reading its outputs.", code="wrong-output")
        if len(self._outputs) != len(self._names):
            raise BakeoffError(
                f"The engine gives {len(self._outputs)} outputs, {len(self._names)} were named: "
                f"{', '.join(self._names)}. Name every output of the workload, in order.",
                code="wrong-output",
            )
        return dict(zip(self._names, self._outputs, strict=True))


def buffers_like(inputs: "Mapping[str, Tensor]", contiguous: bool = False) -> "dict[str, Tensor]":
    """Copies of the inputs in memory of their own, with the same strides unless `contiguous`.

    They may be written in any mode, even where the inputs were made under `torch.inference_mode`.
    """
    import torch

    layout = torch.contiguous_format if contiguous else torch.preserve_format
    with torch.inference_mode(False), torch.no_grad():
        return {name: tensor.clone(memory_format=layout) for name, tensor in inputs.items()}
