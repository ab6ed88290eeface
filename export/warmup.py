"""The warm-up plan of a mix, warmup.json: the calls after which its programs compile, allocate and capture nothing."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from torch import Tensor

WARMUP: Final = "warmup.json"
_MOST_VALUES = 64
"""Largest number of elements of an input whose values a call states, such as timesteps and lengths."""


@dataclass(frozen=True, slots=True)
class WarmCall:
    """A call of a program, which has sizes and plain values of its own. Inputs, or parts of them, that are not stated
    here have the values of the artifact's sample."""

    program: str
    """As `slot.program`."""
    unit: int
    """Unit of a session that made the call."""
    values: dict[str, tuple[bool | int | float, ...]]
    """Elements of each small input, flattened."""
    empty: dict[str, tuple[int, int, int]]
    """Part of a window or a cache that is zero: an axis, and the first entry along it and the one after the last."""


@dataclass(frozen=True, slots=True)
class WarmUp:
    """A warm-up plan: without any of its calls, something would be compiled, allocated or captured later."""

    calls: tuple[WarmCall, ...]
    """In the order in which they are made."""
    units: int
    """Units of the loop that ran after them, in which no counter moved."""
    counters: tuple[str, ...]
    """What was counted, beside what engines count themselves."""


def stated_call(program: str, unit: int, inputs: "Mapping[str, Tensor]") -> WarmCall:
    """Describe a call of a program that was made with these inputs."""
    values, empty = dict[str, tuple[bool | int | float, ...]](), dict[str, tuple[int, int, int]]()
    for name, tensor in inputs.items():
        if tensor.numel() <= _MOST_VALUES:
            elements = tuple(tensor.flatten().tolist())
            if all(map(math.isfinite, elements)):
                values[name] = elements
        elif (part := _empty_part(tensor)) is not None:
            empty[name] = part
    return WarmCall(program, unit, values, empty)


def _empty_part(tensor: "Tensor") -> tuple[int, int, int] | None:
    """Return the first axis along which neighbouring entries are zero, and these; None if there is none."""
    for axis in range(tensor.dim()):
        used = tensor.ne(0).transpose(0, axis).flatten(1).any(1).tolist() if tensor.dim() > 1 else tensor.ne(0).tolist()
        if not all(used):
            first, end = used.index(False), len(used) - used[::-1].index(False)
            if not any(used[first:end]):
                return axis, first, end
    return None


def inputs_of(call: WarmCall, sample: "Mapping[str, Tensor]") -> "dict[str, Tensor]":
    """Return the inputs of a call, made from those of its program's sample, which are not changed.

    Raises BadArtifact if the call does not fit them.
    """
    import torch

    from bakeoff.backends.format import BadArtifact

    inputs = {name: tensor.clone() for name, tensor in sample.items()}
    try:
        for name, elements in call.values.items():
            inputs[name].copy_(torch.tensor(elements).reshape(inputs[name].shape))
        for name, (axis, first, end) in call.empty.items():
            inputs[name].narrow(axis, first, end - first).zero_()
    except (KeyError, RuntimeError, IndexError) as error:
        text = f"{WARMUP} has a call of {call.program} that does not fit its inputs: {error}"
        raise BadArtifact(f"{text}; export the mix again") from error
    return inputs
