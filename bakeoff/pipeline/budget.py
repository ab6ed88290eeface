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
from bakeoff.models.pipelines.pipeline import Key
from bakeoff.pipeline.parts import Part, failed_choices
from bakeoff.pipeline.plan import PipelinePlan, no_records, sweep_of
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


def by_records(
    made: PipelinePlan,
    objective: Objective,
    classes: tuple[Quantisation, ...] | None,
    runs: Sequence[StoredPipeline],
    exportable: bool = False,
) -> tuple[Budget, tuple[Forecast, ...], list[str]]:
    """Return what `solve` does for the records of this machine and code, and notes on what they lack.

    `runs` are earlier runs of pipelines, the oldest first. With `exportable`, choices without an artifact format do not
    count. Raises BakeoffError with the sweeps to run if a slot has no choice.
    """
    known = {
        slot.name: {name: made.known(slot.name, plan.rows[0].subject) for name, plan in made.of(slot.name).items()}
        for slot in made.loop.slots
    }
    slots = {slot: _choices(made, slot, programs, classes, exportable) for slot, programs in known.items()}
    missing: dict[str, tuple[str, ...]] = {slot: () for slot, choices in slots.items() if not choices}
    if missing:
        of = " of a backend with an artifact format" if exportable else ""
        raise BakeoffError(no_records(made, missing, of), "no-record")
    records = [part.record for programs in known.values() for own in programs.values() for part in own.values()]
    process_bytes = _process_bytes(records)
    forecasts = [
        [_forecast(str(choice), parts, made, slot, process_bytes) for choice, parts in choices.items()]
        for slot, choices in slots.items()
    ]
    used = {part.id for choices in slots.values() for parts in choices.values() for part in parts.values()}
    between = _between(made, runs)
    budget = Budget(objective, classes, made.loop.steady.frames, 0, (), *between, tuple(sorted(used)))
    notes = ["only backends with an artifact format are allowed, for the export"] if exportable else []
    for slot in made.loop.slots:
        names = [name for name, own in known[slot.name].items() if not own]
        if names:
            text = f"{slot.name}: no records of {', '.join(names)}, so its SQNR is unknown"
            notes.append(f"{text}; run: bakeoff {sweep_of(made, slot, names)}")
    return *solve(forecasts, budget, process_bytes), notes


def _choices(
    made: PipelinePlan,
    slot: str,
    programs: Mapping[str, Mapping[SlotChoice, Part]],
    classes: tuple[Quantisation, ...] | None,
    exportable: bool,
) -> dict[SlotChoice, dict[str, Part]]:
    """Return the choices with a usable record of every program of a steady unit, and no failure of any; for each, its
    usable records by program."""
    called = {name for name in programs if made.loop.calls().get(Key(slot, name), 0)} or {*programs}
    every = {choice for own in programs.values() for choice in own} - failed_choices(programs.values())
    found = {}
    for choice in sorted(every, key=str):
        parts = {name: own[choice] for name, own in programs.items() if choice in own and own[choice].usable}
        kinds = {part.record.quantisation for part in parts.values()} - {""}
        allowed = classes is None or kinds <= {*classes}
        backend = choice.backends[-1].name
        if exportable and (backend not in backend_names() or resolve_backend(backend).artifact is None):
            continue
        if allowed and parts.keys() >= called:
            found[choice] = parts
    return found


def _forecast(choice: str, parts: Mapping[str, Part], made: PipelinePlan, slot: str, process_bytes: int) -> Forecast:
    """Return what the records of a slot's programs promise of one way of filling it, beyond the process."""
    calls, records, programs = made.loop.calls(), [part.record for part in parts.values()], len(made.of(slot))
    peaks = [part.peak_bytes for part in parts.values() if part.peak_bytes]
    weights = [record.measurement.memory.weights_bytes for record in records if record.measurement.memory is not None]
    memory_bytes = None
    if peaks and weights:
        variant = records[0].variant
        copies = kept_copies([resolve_backend(use.name) for use in variant.backends], variant.device) * (programs - 1)
        memory_bytes = max(peaks) - process_bytes + round(copies * max(weights))
    return Forecast(
        slots=choice,
        ms=sum(calls.get(Key(slot, name), 0) * part.median_ns for name, part in parts.items()) / 1e6,
        memory_bytes=memory_bytes,
        sqnr_db=least([sqnr_db(record.measurement.parity) for record in records]) if len(parts) == programs else None,
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


def _between(made: PipelinePlan, runs: Sequence[StoredPipeline]) -> tuple[float, str]:
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
