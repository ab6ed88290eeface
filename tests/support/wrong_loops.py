"""Loops with one mistake each, which the comparison with a reference loop must find. Every one passes the checks of a
Loop: each value exists and fits where it is used.

Pipelines, for a worker to resolve by `wrong_loops:NAME`: their loops compute something else than those of the table.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bakeoff.models.pipelines.matrix.spec import PIPELINE as MATRIX
from bakeoff.models.pipelines.owl.spec import PIPELINE as OWL
from bakeoff.models.pipelines.pipeline import Call, Glue, Loop, Operation, Pipeline, Shift
from bakeoff.models.pipelines.toy.spec import PIPELINE as TOY


def replaced(loop: Loop, chosen: Callable[[Operation], bool], **changes: Any) -> Loop:
    """The loop with these fields of the chosen operations of its units changed. At least one must be chosen."""

    def change(op: Operation) -> tuple[Operation, ...]:
        return (replace(op, **changes),) if chosen(op) else (op,)

    return _mapped(loop, change)


def not_shifted(loop: Loop, window: str) -> Loop:
    """A cache that is not shifted: no frame enters it after the opening."""
    return _mapped(loop, lambda op: () if isinstance(op, Shift) and op.window == window else (op,))


def shifted_by_a_token(loop: Loop, window: str) -> Loop:
    """A cache that gets the last token of a frame instead of the frame."""

    def change(op: Operation) -> tuple[Operation, ...]:
        if not isinstance(op, Shift) or op.window != window:
            return (op,)
        return Glue("last_entry", (op.new,), ("one_token",), (op.axis,)), replace(op, new="one_token")

    return _mapped(loop, change, glue=_wrong(loop))


def one_unit_late(loop: Loop, value: str, like: str, chosen: Callable[[Operation], bool]) -> Loop:
    """The chosen operations take `value` of the unit before; `like` is a given value of the same shape."""
    given = replace(next(one for one in loop.given if one.name == like), name=value, per="session", function="")
    keep = Glue("same", (value,), (f"{value}.before",))

    def change(op: Operation) -> tuple[Operation, ...]:
        if not chosen(op):
            return (op,)
        assert not isinstance(op, Shift)
        if isinstance(op, Call):
            inputs = {name: f"{value}.before" if one == value else one for name, one in op.inputs.items()}
            return (replace(op, inputs=inputs),)
        return (replace(op, inputs=tuple(f"{value}.before" if one == value else one for one in op.inputs)),)

    changed = _mapped(replace(loop, given=(*loop.given, given)), change, glue=_wrong(loop), first=(keep,))
    assert changed.steady != (keep, *loop.steady)
    return changed


def _mapped(
    loop: Loop,
    change: Callable[[Operation], tuple[Operation, ...]],
    glue: str = "",
    first: tuple[Operation, ...] = (),
) -> Loop:
    """A loop with other operations in its units, `first` before them."""

    def unit(operations: tuple[Operation, ...]) -> tuple[Operation, ...]:
        return (*first, *(new for op in operations for new in change(op)))

    changed = replace(
        loop, steady=unit(loop.steady), opening=tuple(unit(one) for one in loop.opening), glue=glue or loop.glue
    )
    assert changed.steady != loop.steady
    return changed


def _wrong(loop: Loop) -> str:
    """The glue module of the loop with the functions of the mistakes."""
    return f"wrong_glue.{loop.glue.split('.')[-2]}"


def _takes(function: str) -> Callable[[Operation], bool]:
    return lambda op: isinstance(op, Glue) and op.function == function


def _calls(phase: str) -> Callable[[Operation], bool]:
    return lambda op: isinstance(op, Call) and op.phase == phase


def _pipeline(right: Pipeline, mistake: Callable[[Loop], Loop]) -> Pipeline:
    return replace(right, loop=lambda preset, options: mistake(right.loop(preset, options)))


TOY_NOT_SHIFTED = _pipeline(TOY, lambda loop: not_shifted(loop, "cache_k"))
TOY_SHIFTED_BY_A_TOKEN = _pipeline(TOY, lambda loop: shifted_by_a_token(loop, "cache_k"))
TOY_DECODES_THE_FRAME_BEFORE = _pipeline(TOY, lambda loop: one_unit_late(loop, "x", "noise", _takes("latent")))
OWL_NOT_SHIFTED = _pipeline(OWL, lambda loop: not_shifted(loop, "cache_k.0"))
OWL_SHIFTED_BY_A_TOKEN = _pipeline(OWL, lambda loop: shifted_by_a_token(loop, "cache_k.0"))
OWL_STALE_LATENT = _pipeline(OWL, lambda loop: one_unit_late(loop, "x", "noise_x", _takes("renoise")))
"""The latents of the frame before go into the cache. For guidance `off` or `shared`, and `noise_prev` above 0."""
OWL_DECODES_THE_FRAME_BEFORE = _pipeline(OWL, lambda loop: one_unit_late(loop, "x", "noise_x", _takes("image_latent")))
MATRIX_STALE_LATENT = _pipeline(MATRIX, lambda loop: one_unit_late(loop, "x0", "noise", _calls("context")))
MATRIX_DECODES_THE_BLOCK_BEFORE = _pipeline(
    MATRIX,
    lambda loop: one_unit_late(loop, "x0", "noise", lambda op: _takes("hand_over")(op) or _takes("first_and_rest")(op)),
)
