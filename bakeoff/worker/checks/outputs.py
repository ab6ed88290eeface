"""Looks at what calls give between calls, while no clock runs: a wrong fortieth call is as wrong as a wrong first."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from bakeoff.models.component import TensorSpec

OutputCheck = Callable[[int, object], None]
"""(index of the set of inputs, what the call gave)."""

_SLACK = 1e-3
"""Of a norm that is summed in fp32 over millions of elements."""
_ELEMENTS = 1024
_GROSS = 0.5
"""Relative L2 of the elements; two unrelated outputs differ by about 1.4."""


class OutputWatch:
    """Compares a fingerprint of each output with the judge's: the norm of all of it, and some of its elements.

    An output within relative L2 of `limit` has a norm within `limit` of the reference's (triangle inequality), so no
    right output is taken for wrong; NaN and infinity cannot hide in a norm. The elements tell one set's output from
    another's, whose norm may be alike; an error may be concentrated in them, so only a gross one counts.
    """

    def __init__(
        self, specs: Sequence[TensorSpec], references: Iterable[Mapping[str, Tensor]], limits: Mapping[str, float]
    ) -> None:
        """`references` are read one at a time and not kept."""
        self._specs = specs
        self._known = [
            {name: (float(tensor.double().norm()), _some(tensor).double()) for name, tensor in reference.items()}
            for reference in references
        ]
        self._limits = limits
        self._seen = 0
        self.problem = ""
        """The first wrong output seen."""

    def check(self, index: int, outputs: object) -> None:
        self._seen += 1
        tensors = [tensor for tensor in _tensors(outputs) if tensor.is_floating_point()]
        if self.problem or len(tensors) != len(self._specs):
            return  # the full comparison says what is wrong with the form
        norms = torch.stack([_norm(tensor) for tensor in tensors]).tolist()
        for spec, norm, tensor in zip(self._specs, norms, tensors, strict=True):
            wanted, elements = self._known[index][spec.name]
            limit = self._limits[spec.name]
            wrong = not math.isfinite(norm) or abs(norm - wanted) > (limit + _SLACK) * max(wanted, 1e-30)
            if not wrong and tensor.shape == spec.shape:
                error = _some(tensor).double().cpu() - elements
                wrong = float(error.norm()) > max(_GROSS, 30 * limit) * float(elements.norm())
            if wrong:
                self.problem = (
                    f"{spec.name} was wrong in call {self._seen} of those looked at while timing (inputs {index}): its "
                    f"norm is {norm:.4g}, the judge's {wanted:.4g}"
                )
                return


def _norm(tensor: Tensor) -> Tensor:
    wide = torch.float64 if tensor.dtype == torch.float64 else torch.float32
    return torch.linalg.vector_norm(tensor.detach(), dtype=wide).double()


def _some(tensor: Tensor) -> Tensor:
    """Some elements, evenly spread: about a thousand."""
    flat = tensor.detach().flatten()
    return flat[:: max(1, flat.numel() // _ELEMENTS)]


def _tensors(outputs: object) -> Iterable[Tensor]:
    return (output for output in outputs if type(output) is Tensor) if isinstance(outputs, tuple | list) else ()


def copied(outputs: Any) -> Any:
    """What a call gave, its plain tensors copied; anything else is left to the comparison as it is."""
    if not isinstance(outputs, tuple | list):
        return outputs
    return tuple(output.clone() if type(output) is Tensor else output for output in outputs)


def overwrite(outputs: object, kept: Sequence[Tensor] = ()) -> None:
    """Overwrite what a call gave with NaN, as its caller may: an engine that hands it out again is found out.

    Tensors that share memory with `kept` (an output that is an input) or with themselves are left alone.
    """
    with torch.inference_mode():  # some engines give inference tensors, which are changed here only
        ours = {tensor.untyped_storage().data_ptr() for tensor in kept}
        for tensor in _tensors(outputs):
            overlaps = any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True))
            if tensor.is_floating_point() and not overlaps and tensor.untyped_storage().data_ptr() not in ours:
                tensor.fill_(math.nan)
