"""Solves a budget: which mixes of a pipeline meet the limits by the records of its programs, the fastest first."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice, product
from math import prod
from typing import Final

from bakeoff.models.component import Quantisation
from bakeoff.models.errors import BakeoffError
from bakeoff.pipeline.forecast import forecasts, process_bytes, unknown
from bakeoff.pipeline.parts import usable
from bakeoff.pipeline.plan import PipelinePlan, no_records, sweep_of
from bakeoff.record.budget import check_forecast
from bakeoff.record.forecast import combined
from bakeoff.record.objective import Objective
from bakeoff.record.pipeline import Budget, Forecast

MOST_MIXES: Final = 200_000
_MOST_SHOWN: Final = 8
_MOST_ANCHORED: Final = 4
"""Mixes whose units are timed first; all their programs are in one process."""


def solve(
    slots: Sequence[Sequence[Forecast]], budget: Budget, process: int = 0, spread: float = 0.0
) -> tuple[Budget, tuple[Forecast, ...]]:
    """Return the budget with its candidates, and if there are none, the fastest mixes, which miss a limit.

    Each slot has a forecast of each of its choices; the process itself takes `process` bytes. A figure that no record
    states meets no limit, but for a p99, which only a run tells. Raises BakeoffError if more than 200,000 mixes would
    have to be compared.
    """
    count = prod(map(len, slots))
    if count > MOST_MIXES:
        text = f"{count:,} mixes are more than the {MOST_MIXES:,} that are compared; allow fewer with --classes"
        raise BakeoffError(text, "bad-option")
    ordered = sorted(product(*slots), key=lambda parts: sum(part.ms for part in parts))
    fitting = (mix for parts in ordered if _may_meet(mix := combined(parts, process, spread), budget))
    candidates = tuple(islice(fitting, _MOST_SHOWN))
    misses = [] if candidates else [combined(parts, process, spread) for parts in ordered[:_MOST_SHOWN]]
    return replace(budget, mixes=count, candidates=candidates), tuple(misses)


def _may_meet(mix: Forecast, budget: Budget) -> bool:
    checks = check_forecast(mix, budget)
    return all(check.word in ("met", "unclear") or check.limit.figure == "p99" for check in checks)


def by_records(
    made: PipelinePlan, objective: Objective, classes: tuple[Quantisation, ...] | None, exportable: bool = False
) -> tuple[Budget, tuple[Forecast, ...], list[str]]:
    """Return what `solve` does for the records of this machine and code, and notes on what they lack.

    With `exportable`, choices without an artifact format do not count. Raises BakeoffError with the sweeps to run if a
    slot has no choice.
    """
    slots = {slot.name: forecasts(made, slot.name, classes, exportable) for slot in made.loop.slots}
    missing: dict[str, tuple[str, ...]] = {
        slot: () for slot, choices in slots.items() if not choices or unknown(made, slot)
    }
    if missing:
        of = " of a backend with an artifact format" if exportable else ""
        raise BakeoffError(no_records(made, missing, of), "no-record")
    used = {
        part.id
        for slot, choices in slots.items()
        for own in made.parts_of(slot).values()
        for choice, part in own.items()
        if choice in choices and usable(part.record)
    }
    notes = ["only backends with an artifact format are allowed, for the export"] if exportable else []
    for slot in made.loop.slots:
        names = [name for name, own in made.parts_of(slot.name).items() if not own]
        if names:
            text = f"{slot.name}: no records of {', '.join(names)}, so its SQNR is unknown"
            notes.append(f"{text}; run: bakeoff {sweep_of(made, slot, names)}")
    budget = Budget(objective, classes, made.loop.steady.frames, 0, (), tuple(sorted(used)))
    return *solve([[*choices.values()] for choices in slots.values()], budget, process_bytes(made), made.spread), notes


def contenders(budget: Budget) -> tuple[Forecast, ...]:
    """Return the candidates to time again: those that the records do not tell from the first, at least two."""
    first, *others = budget.candidates
    end = first.interval[1] if first.interval is not None else first.ms
    close = [each for each in others if each.interval is not None and each.interval[0] <= end]
    return first, *(close or others[:1])[: _MOST_ANCHORED - 1]
