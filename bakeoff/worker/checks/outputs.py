"""Checks of a call's outputs: cheap checks between timed calls, and a check of two calls in a row on one input set."""

import hashlib
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from bakeoff.models.component import TensorSpec
from bakeoff.worker.kept_weights import bytes_of

OutputCheck = Callable[[int, object], None]
"""Function that checks the outputs of a call; it takes the index of the input set and the outputs."""

LATE_S = 0.02
"""Seconds to wait for an engine that still writes into outputs after the call has returned them."""
_SLACK = 1e-3
"""Relative error of a norm that is summed in fp32 over millions of elements."""
_ELEMENTS = 1024
_GROSS = 0.5
"""Smallest relative L2 error of the sampled elements that is reported; two unrelated outputs differ by about 1.4."""


class OutputWatch:
    """Compares each output with its reference by two figures: the norm of the whole, and about a thousand elements.

    An output within relative L2 of `limit` has a norm within `limit` of the reference's (triangle inequality), so no
    correct output is reported; NaN and infinity always change the norm. The sampled elements distinguish the outputs of
    two input sets whose norms agree. An error may be concentrated in these elements, so only a large one is reported.
    """

    def __init__(
        self, specs: Sequence[TensorSpec], references: Iterable[Mapping[str, Tensor]], limits: Mapping[str, float]
    ) -> None:
        """Compute the figures of the references: one mapping for each input set, read one at a time and not kept.

        `limits` are the relative L2 errors allowed, by output name.
        """
        self._specs = specs
        self._expected: list[dict[str, tuple[float, Tensor]]] = []
        self._infinite: set[str] = set()
        for reference in references:
            self._infinite |= {name for name, tensor in reference.items() if torch.isinf(tensor).any()}
            finite = {name: _finite(tensor.double()) for name, tensor in reference.items()}
            self._expected.append({name: (float(one.norm()), _sampled(one)) for name, one in finite.items()})
        self._limits = limits
        self._calls = 0
        self.problem: str | None = None
        """Description of the first wrong output; None if there was none."""

    def check(self, index: int, outputs: object) -> None:
        """Check the outputs of a call on input set `index`; their number and types are left to the parity check."""
        self._calls += 1
        tensors = list(_tensors(outputs))
        if self.problem is not None or len(tensors) != len(self._specs):
            return
        named = zip(self._specs, tensors, strict=True)
        floating = [
            (spec, _finite(tensor) if spec.name in self._infinite else tensor)
            for spec, tensor in named
            if spec.floating and tensor.is_floating_point()
        ]
        norms = torch.stack([_norm(tensor) for _, tensor in floating]).tolist() if floating else []
        for (spec, tensor), norm in zip(floating, norms, strict=True):
            wanted, elements = self._expected[index][spec.name]
            limit = self._limits[spec.name]
            wrong = not math.isfinite(norm) or abs(norm - wanted) > (limit + _SLACK) * max(wanted, 1e-30)
            if not wrong and tensor.shape == spec.shape:
                error = _sampled(tensor).double().cpu() - elements
                wrong = float(error.norm()) > max(_GROSS, 30 * limit) * float(elements.norm())
            if wrong:
                self.problem = (
                    f"{spec.name}: wrong in checked call {self._calls} while timing (inputs {index}); its norm is "
                    f"{norm:.4g}, the reference's {wanted:.4g}"
                )
                return


def _finite(tensor: Tensor) -> Tensor:
    """Return the tensor with infinities replaced by 0; the parity check compares infinities."""
    return tensor.masked_fill(torch.isinf(tensor), 0.0)


def _norm(tensor: Tensor) -> Tensor:
    wide = torch.float64 if tensor.dtype == torch.float64 else torch.float32
    return torch.linalg.vector_norm(tensor.detach(), dtype=wide).double()


def _sampled(tensor: Tensor) -> Tensor:
    """Return about a thousand evenly spaced elements of the flattened tensor."""
    flat = tensor.detach().flatten()
    return flat[:: max(1, flat.numel() // _ELEMENTS)]


def _tensors(outputs: object) -> Iterable[Tensor]:
    return (output for output in outputs if type(output) is Tensor) if isinstance(outputs, tuple | list) else ()


def call_twice(
    call: Callable[[], object], synchronise: Callable[[], None], kept: Sequence[Tensor]
) -> tuple[object, bool, object]:
    """Call twice on one input set; return the first outputs, whether they changed later, and the second outputs.

    The first outputs must not change after the call has returned, and overwriting them must not affect the second call.
    `kept` are tensors that must not be overwritten. Both outputs are copies.
    """
    outputs = call()
    synchronise()
    first = copied(outputs)
    time.sleep(LATE_S)
    changed = not _equal(outputs, first)
    overwrite(outputs, kept)
    again = call()
    synchronise()
    return first, changed, copied(again)


def _equal(outputs: object, copy: object) -> bool:
    """Return whether all tensors equal their copies, with NaN equal to NaN; True for anything but sequences."""
    if not isinstance(outputs, tuple | list) or not isinstance(copy, tuple):
        return True
    return all(
        torch.equal(new.nan_to_num(), old.nan_to_num())
        for new, old in zip(outputs, copy, strict=True)
        if isinstance(new, Tensor) and isinstance(old, Tensor)
    )


def same(outputs: Sequence[object], others: Sequence[object]) -> bool:
    """Return whether all outputs of two calls are equal bit for bit; False if one is not a tensor or contains NaN."""
    return all(
        isinstance(mine, Tensor) and isinstance(theirs, Tensor) and torch.equal(mine, theirs)
        for mine, theirs in zip(outputs, others, strict=True)
    )


def digest(output: Tensor) -> str:
    """Return a hash of dtype, shape and bytes, equal for outputs that are equal bit for bit, whatever their strides."""
    content = hashlib.sha256(f"{output.dtype} {tuple(output.shape)} ".encode())
    content.update(bytes_of(output.cpu().resolve_conj().resolve_neg().contiguous()))
    return content.hexdigest()[:16]


def copied(outputs: Any) -> Any:
    """Return the outputs of a call with plain tensors cloned; anything else is left for the parity check to report."""
    if not isinstance(outputs, tuple | list):
        return outputs
    return tuple(output.clone() if type(output) is Tensor else output for output in outputs)


def overwrite(outputs: object, kept: Sequence[Tensor] = ()) -> None:
    """Fill output tensors with NaN, as a caller may, so that an engine that returns them again returns NaN.

    Integers and booleans are replaced by their bitwise complement; complex tensors are left alone. So are tensors that
    share memory with `kept` (an output that is an input), and tensors whose elements share memory with each other.
    """
    with torch.inference_mode():  # outputs made in inference mode can only be changed in it
        excluded = {tensor.untyped_storage().data_ptr() for tensor in kept}
        for tensor in _tensors(outputs):
            overlaps = any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True))
            if overlaps or tensor.untyped_storage().data_ptr() in excluded:
                continue
            if tensor.is_floating_point():
                tensor.fill_(math.nan)
            elif not tensor.is_complex():
                tensor.bitwise_not_()
