"""Runs a loop free, without setting it back to the reference's state."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from bakeoff.models.component import TensorSpec
from bakeoff.models.pipelines.pipeline import OPENING, Loop
from bakeoff.models.words import counted
from bakeoff.record.pipeline import Curve
from bakeoff.worker.pipeline.parity import (
    STATE,
    Begin,
    LoopFiles,
    StateBefore,
    compared,
    first_units,
)
from bakeoff.worker.pipeline.runner import LoopRunner
from bakeoff.worker.reference.error import Difference, not_comparable, worst

EQUIVALENTS = 5
"""Number of runs beside eager itself that are as right as eager: their curves show how far rounding alone drifts."""
_NUDGED = (0, 1)
"""Units whose state an equivalent changes by a rounding: a session may open with zeros."""


@dataclass(frozen=True, slots=True)
class Equivalent:
    """A run of eager that differs from eager in nothing but rounding."""

    name: str
    threads: int
    attention: AbstractContextManager[object]
    nudge: int | None = None
    """Seed of the changes of the first states; None for none."""


def equivalents(device: str, threads: int) -> Iterator[Equivalent]:
    """Yield eager, and with other threads on a CPU, torch's plain attention, and states that rounding changed."""
    yield Equivalent("eager", threads, nullcontext())
    numbers = [number for number in (1, threads + 1) if number != threads] if device == "cpu" else []
    for number in numbers:
        yield Equivalent(counted(number, "thread"), number, nullcontext())
    yield Equivalent("math attention", threads, sdpa_kernel(SDPBackend.MATH))
    for seed in range(1, EQUIVALENTS - len(numbers)):
        yield Equivalent(f"start nudged {seed}", threads, nullcontext(), seed)


def nudged(runner: LoopRunner, seed: int) -> StateBefore:
    """Return a function that changes each value of the runner's first states up or down by a rounding of its dtype."""
    generator = torch.Generator().manual_seed(seed)

    def change(value: Tensor) -> Tensor:
        if not value.is_floating_point():
            return value
        signs = torch.randint(0, 2, value.shape, generator=generator).to(value.device) * 2 - 1
        return value + value * (signs * torch.finfo(value.dtype).eps).to(value.dtype)

    def state_before(unit: int) -> Mapping[str, Tensor] | None:
        return {name: change(value) for name, value in runner.state().items()} if unit in _NUDGED else None

    return state_before


def free_curves(
    run: str,
    runner: LoopRunner,
    loop: Loop,
    files: LoopFiles,
    state_before: StateBefore | None = None,
    begin: Begin | None = None,
) -> tuple[Curve, ...]:
    """Run the reference's units without its states; return a curve for each output, and one for the state.

    `state_before` and `begin` are those of `first_units`. Raises whatever a program raises.
    """
    found: dict[str, list[Difference]] = {}
    changes: dict[str, list[float | None]] = {}
    before: dict[str, tuple[Tensor, Tensor]] = {}
    for unit, values in first_units(runner, files.about().units, state_before, begin):
        if unit == OPENING:
            continue
        reference = files.unit(unit)
        entries = {name: compared(values.get(name), wanted) for name, wanted in reference.items()}
        state = [entry for name, entry in entries.items() if name.startswith(STATE)]
        for name in loop.outputs:
            found.setdefault(name, []).append(entries.get(name) or not_comparable("missing"))
            if name in reference and name in values and values[name].is_floating_point():
                pair = values[name].double(), reference[name].to(values[name].device).double()
                if name in before and all(a.shape == b.shape for a, b in zip(pair, before[name], strict=True)):
                    change, wanted = (a - b for a, b in zip(pair, before[name], strict=True))
                    error = compared(change, wanted).rel_l2
                    changes.setdefault(name, []).append(error if math.isfinite(error) else None)
                before[name] = pair
        if state:
            found.setdefault("state", []).append(max(state, key=lambda entry: entry.rel_l2))
    specs = [TensorSpec(name, (), signal=loop.signals.get(name, "")) for name in found]
    return tuple(_curve(run, spec, found[spec.name], changes.get(spec.name, ())) for spec in specs)


def _curve(run: str, spec: TensorSpec, differences: Sequence[Difference], changes: Sequence[float | None]) -> Curve:
    judged = [worst(spec, [entry], math.inf) for entry in differences]
    decibels = (one.sqnr_db if one.signal_db is None else one.signal_db for one in judged)
    return Curve(run, spec.name, tuple(one.rel_l2 for one in judged), tuple(decibels), tuple(changes))
