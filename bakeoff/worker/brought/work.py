"""Counts the work of one call of a module by watching the operators that it dispatches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import conv_flop_count, sdpa_flop_count

from bakeoff.backends.torch_internals import flop_counter, watch_dispatch
from bakeoff.models.component import TensorSpec, Work
from bakeoff.models.weights import plain_tensors, why_unusable

_aten = torch.ops.aten
_GATHERS = {_aten.embedding, _aten.index, _aten.index_select, _aten.gather}
"""Operators that read as many elements of a parameter as they return."""
_UNCOUNTED = ("rnn", "lstm", "gru", "fft_", "linalg_")
"""Parts of names of ATen operators that compute much and that torch's counter has no formula for."""


@dataclass(frozen=True, slots=True)
class Counted:
    flops: int
    convolution_flops: int
    """Of convolutions whose kernel has more than one element."""
    weight_elements: int
    """Elements of parameters that are read at least once."""
    attends: bool
    """It calls torch's attention function."""
    notes: tuple[str, ...]

    def work(self, tensors: Sequence[TensorSpec]) -> Work:
        """The work of the call, whose inputs and outputs are `tensors`."""
        elements = sum(spec.elements for spec in tensors)
        return Work(self.flops, self.weight_elements, elements, self.convolution_flops)


def count(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], Counted]:
    """Call the module once; its outputs, and the work of the call.

    FLOPs are torch's own count (torch.utils.flop_counter): two for each multiply-add of matrix products, convolutions
    and attention.
    """
    wide: list[int] = []
    held = (part for parameter in module.parameters() for _, part in plain_tensors("", parameter))
    watch = _Watch({part.untyped_storage().data_ptr() for part in held})
    with flop_counter(formulas(wide)) as counter, watch_dispatch(watch.note):
        outputs = module(*inputs)
    return outputs, Counted(
        counter.get_total_flops(),
        sum(wide),
        sum(watch.read.values()),
        any("scaled_dot_product" in name for name in watch.operators),
        tuple(_notes(watch)),
    )


def formulas(wide: list[int]) -> dict[Any, Callable[..., int]]:
    """Formulas that torch's table lacks, and convolutions', which add those of wide kernels to `wide`."""

    def convolution(
        x: list[int],
        w: list[int],
        _bias: Any,
        _stride: Any,
        _padding: Any,
        _dilation: Any,
        transposed: bool,
        *_rest: Any,
        out_shape: list[int],
        **_named: Any,
    ) -> int:
        flops: int = conv_flop_count(x, w, out_shape, transposed=transposed)
        if prod(w[2:]) > 1:
            wide.append(flops)
        return flops

    def attention(q: list[int], k: list[int], v: list[int], *_rest: Any, **_named: Any) -> int:
        flops: int = sdpa_flop_count(q, k, v)
        return flops

    return {
        _aten.convolution: convolution,
        _aten._scaled_dot_product_flash_attention_for_cpu: attention,
    }


@dataclass(slots=True)
class _Watch:
    """Notes operators, and how many elements of each parameter they read."""

    parameters: set[int]
    """Addresses of their storages."""
    read: dict[int, int] = field(default_factory=dict)
    """Address of a parameter's storage to the most elements that one operator read."""
    operators: set[str] = field(default_factory=set)

    def note(self, operator: Any, arguments: list[Any], result: Any) -> None:
        self.operators.add(operator.name())
        if any(one.alias_info is not None for one in operator._schema.returns):
            return  # a view, or a write in place, reads nothing of a parameter
        # A forward pass may make sparse tensors, which have no storage of their own.
        dense = (one for one in arguments if isinstance(one, Tensor) and not why_unusable(one))
        for tensor in (part for one in dense for _, part in plain_tensors("", one)):
            address = tensor.untyped_storage().data_ptr()
            if address in self.parameters:
                elements = tensor.numel()
                if operator.overloadpacket in _GATHERS and isinstance(result, Tensor):
                    elements = min(elements, result.numel())
                self.read[address] = max(self.read.get(address, 0), elements)


def _notes(watch: _Watch) -> list[str]:
    own = sorted(name for name in watch.operators if not name.startswith(("aten::", "prim")))
    heavy = sorted(name for name in watch.operators if name.startswith("aten::") and any(p in name for p in _UNCOUNTED))
    found = [*own, *heavy]
    if not found:
        return []
    shown = ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")
    return [f"FLOPs leave out {shown}, for which torch has no formula: the floor of a call is lower than it could be"]
