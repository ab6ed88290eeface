"""Reads from records what each way of filling a slot costs: the choices of a frame budget."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Final

import numpy as np

from bakeoff.backends import backend_names, resolve_backend
from bakeoff.machine.identity import this_machine
from bakeoff.mix import SlotChoice
from bakeoff.models.component import Quantisation
from bakeoff.models.errors import BakeoffError
from bakeoff.models.pipelines.pipeline import Key
from bakeoff.pipeline.budget import Base, Choice, solve
from bakeoff.pipeline.parts import Part, failed_choices
from bakeoff.pipeline.plan import PipelinePlan, no_records, sweep_of
from bakeoff.plan.memory import kept_copies
from bakeoff.record.account import steady
from bakeoff.record.budget import Solution, build_s, least, sqnr_db
from bakeoff.record.objective import Objective
from bakeoff.record.prediction import total
from bakeoff.record.schema import Memory, Record
from bakeoff.record.store import StoredPipeline, of_one_host

_DRAWS: Final = 2_000
"""Units that are drawn from the samples of the programs' calls."""


def solution(
    made: PipelinePlan,
    objective: Objective,
    classes: tuple[Quantisation, ...] | None,
    runs: Sequence[StoredPipeline],
    exportable: bool = False,
) -> tuple[Solution, list[str]]:
    """Return the answer to a request from the records of this machine and code, and notes on what records lack.

    `runs` are earlier runs of pipelines, the oldest first. With `exportable`, choices without an artifact format do not
    count. Raises BakeoffError with the sweeps to run if a slot has no choice.
    """
    known = {slot.name: _parts(made, slot.name) for slot in made.loop.slots}
    process_bytes = _process_bytes(
        [part.record for parts in known.values() for own in parts.values() for part in own.values()]
    )
    slots = {
        slot.name: _choices(made, slot.name, place, known[slot.name], classes, process_bytes)
        for place, slot in enumerate(made.loop.slots)
    }
    if exportable:
        slots = {name: [choice for choice in own if choice.exportable] for name, own in slots.items()}
    missing: dict[str, tuple[str, ...]] = {name: () for name, own in slots.items() if not own}
    if missing:
        of = " of a backend with an artifact format" if exportable else ""
        raise BakeoffError(no_records(made, missing, of), "no-record")
    between = _between(made, runs)
    base = Base(made.loop.steady.frames, between[0], between[1], process_bytes)
    notes = ["only backends with an artifact format are allowed, for the export"] if exportable else []
    return solve(slots, objective, base, classes), [*notes, *_lacking(made, known), *_unmetered(slots)]


Parts = Mapping[str, Mapping[SlotChoice, Part]]
"""The newest record of each way of filling a slot, by program."""


def _parts(made: PipelinePlan, slot: str) -> Parts:
    return {name: made.known(slot, plan.rows[0].subject) for name, plan in made.of(slot).items()}


def _choices(
    made: PipelinePlan,
    slot: str,
    place: int,
    known: Parts,
    classes: tuple[Quantisation, ...] | None,
    process_bytes: int,
) -> list[Choice]:
    """Return a choice for each way with a usable record of every program of a steady unit, and no failure of any."""
    calls = {name: made.loop.calls().get(Key(slot, name), 0) for name in known}
    called = [name for name, count in calls.items() if count] or list(known)
    failed = failed_choices(known.values())
    numbers = {
        name: np.random.default_rng([place, number]).random((calls[name], _DRAWS)) for number, name in enumerate(known)
    }
    found = []
    for way in known[called[0]]:
        quantisation = known[called[0]][way].record.quantisation
        allowed = classes is None or not quantisation or quantisation in classes
        parts = {name: own[way] for name, own in known.items() if way in own and own[way].usable}
        if allowed and way not in failed and parts.keys() >= set(called):
            found.append(_choice(way, parts, calls, numbers, len(known), process_bytes))
    return sorted(found, key=lambda choice: choice.text)


def _choice(
    way: SlotChoice,
    parts: Mapping[str, Part],
    calls: Mapping[str, int],
    numbers: Mapping[str, np.ndarray],
    programs: int,
    process_bytes: int,
) -> Choice:
    figures = {name: part.record.latency for name, part in parts.items()}
    times = [(calls[name], own) for name, own in figures.items() if own is not None]
    drawn = np.zeros(_DRAWS)
    for name, part in parts.items():
        clock = part.record.measurement.latency
        if clock is not None:
            ordered = np.sort(np.asarray(clock.samples_ns)) / 1e6
            drawn += ordered[(numbers[name] * len(ordered)).astype(int)].sum(axis=0)
    whole = len(parts) == programs
    records = [part.record for part in parts.values()]
    return Choice(
        text=str(way),
        ms=sum(count * own.median_ms for count, own in times),
        low_ms=sum(count * own.low_ms for count, own in times),
        high_ms=sum(count * own.high_ms for count, own in times),
        drawn_ms=drawn,
        memory_bytes=_memory_bytes(way, parts, programs, process_bytes),
        build_s=total([build_s(record.measurement.build) for record in records]) if whole else None,
        sqnr_db=least([sqnr_db(record.measurement.parity) for record in records]) if whole else None,
        joules=total([_joules(part.record, calls[name]) for name, part in parts.items() if calls[name]]),
        exportable=way.backends[-1].name in backend_names()
        and resolve_backend(way.backends[-1].name).artifact is not None,
        records=tuple(part.id for part in parts.values()),
    )


def _joules(record: Record, calls: int) -> float | None:
    """Return the GPU's energy of this many calls by its mean power in the timed window; None without a monitor."""
    seen, window = record.monitored, record.monitored_window_ns
    if seen is None or window is None or record.latency is None:
        return None
    power = [
        point
        for series in seen.series
        if series.name == "gpu.power"
        for point in series.points
        if window[0] <= point.t_ns < window[1]
    ]
    samples = sum(point.count for point in power)
    if not samples:
        return None
    return calls * record.latency.mean_ms / 1000 * sum(point.mean * point.count for point in power) / samples


def _process_bytes(records: Sequence[Record]) -> int:
    """Return the least memory of a process that any record tells: before its calls, without its weights.

    On CUDA it is that of the context.
    """
    found = []
    for record in records:
        memory = record.measurement.memory
        if memory is not None and record.variant.device == "cuda":
            found += [memory.context_bytes] if memory.context_bytes else []
        elif memory is not None and memory.host_peak_bytes and memory.host_call_bytes is not None:
            found.append(memory.host_peak_bytes - memory.host_call_bytes - memory.weights_bytes)
    return max(0, min(found, default=0))


def _memory_bytes(way: SlotChoice, parts: Mapping[str, Part], programs: int, process_bytes: int) -> int | None:
    """Return the largest peak of a program beyond the process, and the copies of weights that the others keep."""
    peaks = [part.peak_bytes for part in parts.values() if part.peak_bytes]
    memories: list[Memory] = [
        part.record.measurement.memory for part in parts.values() if part.record.measurement.memory
    ]
    if not peaks or not memories:
        return None
    device = next(iter(parts.values())).record.variant.device
    kept = kept_copies([resolve_backend(use.name) for use in way.backends], device) * (programs - 1)
    return round(max(peaks) - process_bytes + kept * max(memory.weights_bytes for memory in memories))


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


def _lacking(made: PipelinePlan, known: Mapping[str, Parts]) -> Iterator[str]:
    """Yield which programs that only open a session have no record, and the sweep that makes them."""
    for slot in made.loop.slots:
        names = [name for name, own in known[slot.name].items() if not own]
        if names:
            text = f"{slot.name}: no records of {', '.join(names)}, so its SQNR and build seconds are unknown"
            yield f"{text}; run: bakeoff {sweep_of(made, slot, names)}"


def _unmetered(slots: Mapping[str, Sequence[Choice]]) -> Iterator[str]:
    if any(choice.memory_bytes is None for choices in slots.values() for choice in choices):
        yield "the memory of some choices is unknown, because no meter saw it; they meet no limit of memory"
