"""Loops with one mistake each, which the comparison with a reference loop must find; `wrong_loops:NAME`.

Each value exists and fits where it is used, so that a description refuses none of them.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from toy_loops import Toy

from bakeoff.models.pipelines.matrix.loop import Matrix
from bakeoff.models.pipelines.owl.loop import Owl
from bakeoff.models.pipelines.pipeline import Pipeline
from bakeoff.worker.pipeline.runner import LoopRunner, Run

FIRST_NAN, LATE = 9, 7
"""Units."""


class Wrapped(Run):
    """What a unit is run by, for a mistake to be made in one of these."""

    def __init__(self, run: Run, memory: dict[str, Any]) -> None:
        super().__init__()
        self._run, self._memory, self.device = run, memory, run.device

    def phase(self, name: str, **about: Any) -> AbstractContextManager[None]:
        return self._run.phase(name, **about)

    def slide(self, window: Tensor, new: Tensor, axis: int) -> Tensor:
        return self._run.slide(window, new, axis)

    def called(self, slot: str, program: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return self._run.called(slot, program, args, kwargs)


class NotShifted(Wrapped):
    """The first window of a unit is not shifted: no frame enters it after the opening."""

    slid = 0

    def slide(self, window: Tensor, new: Tensor, axis: int) -> Tensor:
        self.slid += 1
        return window if self.slid == 1 else super().slide(window, new, axis)


class ShiftedByAToken(Wrapped):
    """The first window of a unit gets the last token of a frame instead of the frame."""

    slid = 0

    def slide(self, window: Tensor, new: Tensor, axis: int) -> Tensor:
        self.slid += 1
        return super().slide(window, new.narrow(axis, -1, 1) if self.slid == 1 else new, axis)


class NotShiftedLate(NotShifted):
    """As above, from unit LATE on."""

    def slide(self, window: Tensor, new: Tensor, axis: int) -> Tensor:
        return super().slide(window, new, axis) if _is_late(self._run) else self._run.slide(window, new, axis)


class ShiftedByATokenLate(ShiftedByAToken):
    """As above, from unit LATE on."""

    def slide(self, window: Tensor, new: Tensor, axis: int) -> Tensor:
        return super().slide(window, new, axis) if _is_late(self._run) else self._run.slide(window, new, axis)


def _is_late(run: Run) -> bool:
    return isinstance(run, LoopRunner) and run.next_unit >= LATE


class Late(Wrapped):
    """An input of some programs is what it was in their calls before; zeros in the first ones."""

    def __init__(self, run: Run, memory: dict[str, Any], programs: str, name: str) -> None:
        super().__init__(run, memory)
        self._programs, self._name = programs, name

    def called(self, slot: str, program: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        called = f"{slot}.{program}"
        if called.startswith(self._programs):
            value = kwargs[self._name]
            kwargs = {**kwargs, self._name: self._memory.get(called, torch.zeros_like(value))}
            self._memory[called] = value
        return super().called(slot, program, args, kwargs)


def _wrong(right: type[Pipeline], wrapped: type[Wrapped] | partial[Wrapped]) -> type[Pipeline]:
    def step(self: Any, state: Any, given: Any, run: Run) -> Any:
        return right.step(self, state, given, wrapped(run, vars(self)))

    return type(right.__name__, (right,), {"step": step})


def late(programs: str, name: str) -> "partial[Wrapped]":
    return partial(Late, programs=programs, name=name)


TOY_NOT_SHIFTED = _wrong(Toy, NotShifted)
TOY_SHIFTED_BY_A_TOKEN = _wrong(Toy, ShiftedByAToken)
TOY_NOT_SHIFTED_LATE = _wrong(Toy, NotShiftedLate)
TOY_SHIFTED_BY_A_TOKEN_LATE = _wrong(Toy, ShiftedByATokenLate)
TOY_STALE_LATENT = _wrong(Toy, late("world.", "x"))
TOY_DECODES_THE_FRAME_BEFORE = _wrong(Toy, late("stream.", "z"))
OWL_NOT_SHIFTED = _wrong(Owl, NotShifted)
OWL_SHIFTED_BY_A_TOKEN = _wrong(Owl, ShiftedByAToken)
OWL_STALE_LATENT = _wrong(Owl, late("wm.append", "x"))
"""The latents of the frame before go into the cache."""
OWL_DECODES_THE_FRAME_BEFORE = _wrong(Owl, late("image.", "z"))
MATRIX_STALE_LATENT = _wrong(Matrix, late("wm.context", "x"))
MATRIX_DECODES_THE_BLOCK_BEFORE = _wrong(Matrix, late("decoder.", "z"))


class TOY_NAN(Toy):  # noqa: N801 - as the names above
    """Noise that is not finite from one unit on."""

    def given(self, unit: int, draw: Any) -> dict[str, Tensor]:
        found = super().given(unit, draw)
        return found if unit < FIRST_NAN else {"noise": torch.full_like(found["noise"], torch.nan)}


class TOY_NAN_LATE(Toy):  # noqa: N801
    """Noise that is not finite in unit LATE alone."""

    def given(self, unit: int, draw: Any) -> dict[str, Tensor]:
        found = super().given(unit, draw)
        return found if unit != LATE else {"noise": torch.full_like(found["noise"], torch.nan)}
