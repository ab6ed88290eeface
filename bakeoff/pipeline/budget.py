"""Solves a budget: which mixes of a pipeline meet the limits by the records of its programs, the fastest first."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice, product
from math import prod
from statistics import median
from typing import Final

from bakeoff.backends import backend_names, resolve_backend
from bakeoff.machine.identity import this_machine
from bakeoff.mix import SlotChoice
from bakeoff.models.component import Quantisation
from bakeoff.models.errors import BakeoffError
from bakeoff.pipeline.parts import Part, failed_choices
from bakeoff.pipeline.plan import Programs, no_records, sweep_of
from bakeoff.plan.memory import kept_copies
from bakeoff.record.account import steady
from bakeoff.record.budget import check_forecast, least, sqnr_db
from bakeoff.record.objective import Objective
from bakeoff.record.pipeline import Budget, Forecast
from bakeoff.record.prediction import total
from bakeoff.record.schema import Record
from bakeoff.record.store import StoredPipeline, of_one_host

MOST_MIXES: Final = 200_000
_MOST_SHOWN: Final = 8


def solve(
    slots: Sequence[Sequence[Forecast]], budget: Budget, process_bytes: int = 0
) -> tuple[Budget, tuple[Forecast, ...]]:
    """Return the budget with its candidates, and if there are none, the fastest mixes, which miss a limit.

    Each slot has a forecast of each of its choices. A figure that no record states meets no limit, but for a p99, which
    only a run tells. Raises BakeoffError if more than 200,000 mixes would have to be compared.
    """
    count = prod(map(len, slots))
    if count > MOST_MIXES:
        text = f"{count:,} mixes are more than the {MOST_MIXES:,} that are compared; allow fewer with --classes"
        raise BakeoffError(text, "bad-option")
    mixes = sorted((_mix(choices, budget, process_bytes) for choices in product(*slots)), key=lambda mix: mix.ms)
    fitting = (mix for mix in mixes if _meets(mix, budget))
    candidates = tuple(islice(fitting, _MOST_SHOWN))
    return replace(budget, mixes=count, candidates=candidates), () if candidates else tuple(mixes[:_MOST_SHOWN])


def _mix(choices: Sequence[Forecast], budget: Budget, process_bytes: int) -> Forecast:
    memory = total([choice.memory_bytes for choice in choices])
    return Forecast(
        slots=",".join(choice.slots for choice in choices),
        ms=sum(choice.ms for choice in choices) + budget.between_ms,
        memory_bytes=None if memory is None else round(memory) + process_bytes,
        sqnr_db=least([choice.sqnr_db for choice in choices]),
    )


def _meets(mix: Forecast, budget: Budget) -> bool:
    return all(check.word == "met" or check.limit.figure == "p99" for check in check_forecast(mix, budget))


Parts = Mapping[str, Mapping[SlotChoice, Part]]
"""The newest record of each way of filling a slot, by program."""


def by_records(
    made: Programs,
    objective: Objective,
    classes: tuple[Quantisation, ...] | None,
    runs: Sequence[StoredPipeline],
    exportable: bool = False,
) -> tuple[Budget, tuple[Forecast, ...], list[str]]:
    """Return what `solve` does for the records of this machine and code, and notes on what they lack.

    `runs` are earlier runs of pipelines, the oldest first. With `exportable`, choices without an artifact format do not
    count. Raises BakeoffError with the sweeps to run if a slot has no choice.
    """
    parts = {
        slot.name: {name: made.known(slot.name, plan.rows[0].subject) for name, plan in made.of(slot.name).items()}
        for slot in made.loop.slots
    }
    process_bytes = _process_bytes(
        [part.record for own in parts.values() for known in own.values() for part in known.values()]
    )
    choices = {
        slot: [choice for choice in _choices(made, slot, own, classes) if not exportable or _has_format(choice)]
        for slot, own in parts.items()
    }
    missing: dict[str, tuple[str, ...]] = {slot: () for slot, own in choices.items() if not own}
    if missing:
        of = " of a backend with an artifact format" if exportable else ""
        raise BakeoffError(no_records(made, missing, of), "no-record")
    between_ms, between_from = _between(made, runs)
    records = {
        known[choice].id
        for slot, own in choices.items()
        for choice in own
        for known in parts[slot].values()
        if choice in known and known[choice].usable
    }
    budget = Budget(
        objective, classes, made.loop.steady.frames, 0, (), between_ms, between_from, tuple(sorted(records))
    )
    forecasts = [
        [_forecast(choice, made, slot, parts[slot], process_bytes) for choice in own] for slot, own in choices.items()
    ]
    notes = ["only backends with an artifact format are allowed, for the export"] if exportable else []
    for slot in made.loop.slots:
        names = [name for name, own in parts[slot.name].items() if not own]
        if names:
            text = f"{slot.name}: no records of {', '.join(names)}, so its SQNR is unknown"
            notes.append(f"{text}; run: bakeoff {sweep_of(made, slot, names)}")
    return *solve(forecasts, budget, process_bytes), notes


def _choices(made: Programs, slot: str, parts: Parts, classes: tuple[Quantisation, ...] | None) -> list[SlotChoice]:
    """Return the ways with a usable record of every program of a steady unit, and no failure of any."""
    called = [name for name in parts if made.loop.calls().get((slot, name), 0)] or list(parts)
    failed = failed_choices(parts.values())
    return sorted(
        (
            choice
            for choice, part in parts[called[0]].items()
            if choice not in failed
            and (classes is None or not part.record.quantisation or part.record.quantisation in classes)
            and all(choice in parts[name] and parts[name][choice].usable for name in called)
        ),
        key=str,
    )


def _has_format(choice: SlotChoice) -> bool:
    name = choice.backends[-1].name
    return name in backend_names() and resolve_backend(name).artifact is not None


def _forecast(choice: SlotChoice, made: Programs, slot: str, parts: Parts, process_bytes: int) -> Forecast:
    """Return what the records of a slot's programs promise of one way of filling it, beyond the process."""
    own = {name: known[choice] for name, known in parts.items() if choice in known and known[choice].usable}
    calls, records = made.loop.calls(), [part.record for part in own.values()]
    peaks = [part.peak_bytes for part in own.values() if part.peak_bytes]
    memories = [memory for record in records if (memory := record.measurement.memory) is not None]
    memory_bytes = None
    if peaks and memories:
        backends = [resolve_backend(use.name) for use in choice.backends]
        copies = kept_copies(backends, records[0].variant.device) * (len(parts) - 1)
        memory_bytes = max(peaks) - process_bytes + round(copies * max(memory.weights_bytes for memory in memories))
    return Forecast(
        slots=str(choice),
        ms=sum(calls.get((slot, name), 0) * part.median_ns for name, part in own.items()) / 1e6,
        memory_bytes=memory_bytes,
        sqnr_db=least([sqnr_db(record.measurement.parity) for record in records]) if len(own) == len(parts) else None,
    )


def _process_bytes(records: Sequence[Record]) -> int:
    """Return the least memory of a process that any record tells: before its calls, without its weights.

    On CUDA it is that of the context.
    """
    known = []
    for record in records:
        memory = record.measurement.memory
        if memory is not None and record.variant.device == "cuda":
            known += [memory.context_bytes] if memory.context_bytes else []
        elif memory is not None and memory.host_peak_bytes and memory.host_call_bytes is not None:
            known.append(memory.host_peak_bytes - memory.host_call_bytes - memory.weights_bytes)
    return max(0, min(known, default=0))


def _between(made: Programs, runs: Sequence[StoredPipeline]) -> tuple[float, str]:
    """Return the median milliseconds between programs in a steady unit of the newest run of this pipeline, and its id.

    Without one, 0 and "".
    """
    subject = next(iter(made.eager.values())).rows[0].subject
    for entry in reversed(of_one_host(runs, this_machine(subject.device))):
        record, units = entry.record, entry.record.measurement.units
        chosen = steady(units) if units is not None else []
        same = (record.subject_id, record.threads) == (made.subject_id, subject.threads)
        if same and record.status == "ok" and units is not None and chosen:
            own = [line.ns for line in units.lines if not line.slot]
            return median(sum(ns[unit] for ns in own) for unit in chosen) / 1e6, entry.id
    return 0.0, ""
