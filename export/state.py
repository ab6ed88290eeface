"""Carrying state: what one call gave becomes what the next one takes, as a stream's contract says."""

from collections.abc import Iterable, Mapping, MutableMapping
from typing import TYPE_CHECKING

from bakeoff.models.component import Carry

if TYPE_CHECKING:
    from torch import Tensor

State = MutableMapping[tuple[str, str], "Tensor"]
"""(program, input) to the tensor that its next call takes."""


def carry(state: State, carries: Iterable[Carry], program: str, outputs: Mapping[str, "Tensor"]) -> None:
    """Take into `state` what a call of `program` gave. Raises KeyError for a window that was never filled."""
    import torch

    made: dict[tuple[int, int], Tensor] = {}
    for one in carries:
        if one.workload != program:
            continue
        place, given = (one.to, one.input), outputs[one.output]
        if one.axis is None:
            state[place] = given
            continue
        window = state[place]
        key = (id(window), id(given))  # two programs that read one window go on reading one
        if key not in made:
            kept = window.narrow(one.axis, given.shape[one.axis], window.shape[one.axis] - given.shape[one.axis])
            made[key] = torch.cat((kept, given), one.axis)
        state[place] = made[key]
