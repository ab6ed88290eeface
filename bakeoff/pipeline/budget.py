"""Solves a budget: which mixes of a pipeline meet the limits by the records of its programs, the fastest first."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice, product
from math import prod
from types import MappingProxyType
from typing import Final

from bakeoff.models.component import Quantisation
from bakeoff.models.errors import BakeoffError
from bakeoff.pipeline.forecast import forecasts, process_bytes, unknown
from bakeoff.pipeline.parts import usable
from bakeoff.pipeline.plan import PipelinePlan, no_records, sweep_of
from bakeoff.record.budget import check_forecast
from bakeoff.record.deadline import first_ms
from bakeoff.record.forecast import combined
from bakeoff.record.objective import Objective
from bakeoff.record.pipeline import Budget, Forecast, Started

MOST_MIXES: Final = 200_000
_MOST_SHOWN: Final = 8
_MOST_ANCHORED: Final = 4
"""Mixes whose units are timed first; all their programs are in one process."""


def solve(
    slots: Sequence[Sequence[Forecast]],
    budget: Budget,
    process: int = 0,
    spread: float = 0.0,
    started: Mapping[str, Started] = MappingProxyType({}),
) -> tuple[Budget, tuple[Forecast, ...]]:
    """Return the budget with its candidates, and if there are none, the fastest mixes, which miss a limit.

    Each slot has a forecast of each of its choices; the process itself takes `process` bytes; `started` has what cold
    starts of mixes measured, by their slots. A figure that no record
    states meets no limit, but for a p99, which only a run tells. Raises BakeoffError if more than 200,000 mixes would
    have to be compared.
    """
    count = prod(map(len, slots))
    if count > MOST_MIXES:
        text = f"{count:,} mixes are more than the {MOST_MIXES:,} that are compared; allow fewer with --classes"
        raise BakeoffError(text, "bad-option")

    def promised(parts: Sequence[Forecast]) -> Forecast:
        mix = combined(parts, process, spread)
        return replace(mix, first_ms=first_ms(started.get(mix.slots)))

    ordered = sorted(product(*slots), key=lambda parts: sum(part.ms for part in parts))
    fitting = (mix for parts in ordered if _may_meet(mix := promised(parts), budget))
    candidates = tuple(islice(fitting, _MOST_SHOWN))
    misses = [] if candidates else [*map(promised, ordered[:_MOST_SHOWN])]
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

    def solved(budget: Budget) -> tuple[Budget, tuple[Forecast, ...]]:
        choices = [[*own.values()] for own in slots.values()]
        return solve(choices, budget, process_bytes(made), made.spread, made.started)

    others = tuple(limit for limit in objective.limits if limit.figure != "first")
    if others != objective.limits:
        fastest = solved(replace(budget, objective=replace(objective, limits=others)))[0].candidates
        unstarted = next((mix.slots for mix in fastest if mix.slots not in made.started), None)
        if unstarted is not None:
            text = f"first: no cold start of {unstarted} by this machine and code; run: {_cold_run(made, unstarted)}"
            if not made.started:
                raise BakeoffError(text, "no-record")
            notes.append(text)
    return *solved(budget), notes


def _cold_run(made: PipelinePlan, slots: str) -> str:
    """Return the command that measures cold starts of a mix."""
    request = made.request
    given = {"--device": request.device, "--threads": request.threads, "--seed": request.weight_seed}
    more = "".join(f" {option} {value}" for option, value in given.items() if value)
    more += "".join(f" --checkpoint {shlex.quote(text)}" for text in request.checkpoints)
    return f"bakeoff deadline {made.loop.typed} --cold --mix {shlex.quote(slots)}{more}"


def contenders(budget: Budget) -> tuple[Forecast, ...]:
    """Return the candidates to time again: those that the records do not tell from the first, at least two."""
    first, *others = budget.candidates
    end = first.interval[1] if first.interval is not None else first.ms
    close = [each for each in others if each.interval is not None and each.interval[0] <= end]
    return first, *(close or others[:1])[: _MOST_ANCHORED - 1]
