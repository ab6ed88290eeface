"""What the programs of a loop share and pass on, found from its operations: windows, and outputs that are carried."""

from collections.abc import Mapping

import torch
from torch import Tensor

from bakeoff.models.errors import BakeoffError
from bakeoff.models.pipelines.pipeline import Call, Loop, Shift, made_by

Key = tuple[str, str]
"""Slot and program."""


def shared_windows(loop: Loop, inputs: Mapping[Key, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """A buffer of zeros for each sliding window, like the input that reads it; `inputs` are each program's by name.

    Raises BakeoffError for a window that no program reads.
    """
    windows = {op.window for op in loop.all_operations() if isinstance(op, Shift)}
    found: dict[str, Tensor] = {}
    for op in loop.all_operations():
        if isinstance(op, Call):
            for name, value in op.inputs.items():
                if value in windows and value not in found:
                    found[value] = torch.zeros_like(inputs[op.slot, op.program][name])
    unread = sorted(windows - found.keys())
    if unread:
        raise BakeoffError(f"no program reads the window {unread[0]}", code="bad-config")
    return found


def carried_outputs(loop: Loop, key: Key) -> dict[str, str]:
    """Outputs of a program to its own inputs that they become in the next steady unit.

    Only of a program that is called once a unit, and only values that nothing else makes: others are fed.
    """
    calls = [op for op in loop.steady if isinstance(op, Call) and (op.slot, op.program) == key]
    if len(calls) != 1:
        return {}
    (call,) = calls
    others = {name for op in loop.steady if op is not call for name in made_by(op)}
    by_value = {value: name for name, value in call.inputs.items()}
    return {
        output: by_value[value] for output, value in call.outputs.items() if value in by_value and value not in others
    }
