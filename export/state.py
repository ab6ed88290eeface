"""Carries state between calls: outputs of one call become inputs of later calls, as the stream's carries define."""

from collections.abc import Iterable, Mapping, MutableMapping
from typing import TYPE_CHECKING

from bakeoff.models.component import Carry

if TYPE_CHECKING:
    from torch import Tensor

State = MutableMapping[tuple[str, str], "Tensor"]
"""(program, input) to the tensor for the program's next call."""


def carry(state: State, carries: Iterable[Carry], program: str, outputs: Mapping[str, "Tensor"]) -> None:
    """Update `state` with the outputs of a call of `program`. Raises KeyError for a window that was never set."""
    import torch

    made: dict[tuple[int, int], Tensor] = {}
    for one in carries:
        if one.workload != program:
            continue
        target, output = (one.to, one.input), outputs[one.output]
        if one.axis is None:
            state[target] = output
            continue
        window = state[target]
        key = (id(window), id(output))  # two programs that share a window share the new window too
        if key not in made:
            kept = window.narrow(one.axis, output.shape[one.axis], window.shape[one.axis] - output.shape[one.axis])
            made[key] = torch.cat((kept, output), one.axis)
        state[target] = made[key]
