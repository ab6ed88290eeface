"""Runs the first units of a loop, each from a given state, and collects what they made (teacher forcing)."""

from collections.abc import Callable, Iterator, Mapping

from torch import Tensor

from bakeoff.models.pipelines.pipeline import Loop
from bakeoff.worker.pipeline.files import OPENED, STATE
from bakeoff.worker.pipeline.runner import LoopRunner

StateBefore = Callable[[int], Mapping[str, Tensor]]


def first_units(
    runner: LoopRunner, loop: Loop, units: int, state_before: StateBefore | None = None
) -> Iterator[tuple[int, dict[str, Tensor]]]:
    """Open session 0 and run its first units; yields each unit's number with its outputs by name and its new state as
    `state.NAME`, first the state that the opening made, as unit `OPENED`.

    Each unit starts from `state_before(unit)`, or without it from what the unit before made. The tensors are valid
    until the next one is asked for. The session after it has number 0 too, so that it is given the same values.
    """
    runner.session = OPENED
    runner.open()
    yield OPENED, _state(runner)
    for unit in range(units):
        if state_before is not None:
            runner.set_state(state_before(unit), unit)
        runner.unit()
        yield unit, {**runner.values(output.name for output in loop.outputs), **_state(runner)}
    runner.session = OPENED


def _state(runner: LoopRunner) -> dict[str, Tensor]:
    return {f"{STATE}{name}": value for name, value in runner.state().items()}
