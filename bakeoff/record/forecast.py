"""Promises the mean time of a pipeline's unit, and compares the promise with what a run measured.

Means leave out the fastest and the slowest twentieth: of 200 units of a millisecond, three that a virtual machine
stopped for 30 ms would decide the mean of all. A unit takes the calls of its programs, each the mean of the program's
own record, and the time between programs.
"""

from collections.abc import Mapping, Sequence
from math import exp, log, sqrt
from statistics import fmean
from typing import Final

from bakeoff.record.account import Account, AccountLine, account_of, middle
from bakeoff.record.pipeline import Forecast, PipelineRecord
from bakeoff.record.schema import Record
from bakeoff.record.statistics import trimmed
from bakeoff.record.store import StoredPipeline

BETWEEN: Final = "between programs"
DOCUMENTED_SPREAD: Final = 0.13
"""How far 33 of 35 published runs were, at most, from calls times means and their time between (docs/decide.md)."""
_FEWEST: Final = 8
"""Promises that it takes to know a machine's own spread."""


def calls_ms(
    records: Mapping[str, Record], calls: Mapping[str, int], means: bool = True, in_loop: bool = True
) -> float:
    """Return the milliseconds a unit of a slot's calls, by the record of each of its programs.

    With `in_loop`, records that have times of calls in a loop promise these.
    """
    return sum(calls.get(name, 0) * _call_ms(record, means, in_loop) for name, record in records.items())


def _call_ms(record: Record, means: bool, in_loop: bool) -> float:
    if in_loop and record.measurement.in_loop_ns:
        return fmean(trimmed(record.measurement.in_loop_ns)) / 1e6
    clock = record.latency
    return 0.0 if clock is None else clock.mean_ms if means else clock.median_ms


def combined(parts: Sequence[Forecast], process_bytes: int = 0, spread: float = 0.0) -> Forecast:
    """Return what is promised of a mix whose slots are filled as in `parts`."""
    memory = total([part.memory_bytes for part in parts])
    times: dict[str, float] = {}
    for part in parts:
        for name, ms in part.parts_ms.items():
            times[name] = times.get(name, 0.0) + ms
    return Forecast(
        slots=",".join(part.slots for part in parts),
        ms=(ms := sum(part.ms for part in parts)),
        memory_bytes=None if memory is None else round(memory) + process_bytes,
        sqnr_db=least([part.sqnr_db for part in parts]),
        interval=around(ms, spread),
        parts_ms=times,
    )


def around(ms: float, spread: float) -> tuple[float, float]:
    """Return the interval of a promise."""
    return ms / (1 + spread), ms * (1 + spread)


def shown_spread(runs: Sequence[StoredPipeline], anchored: bool = False) -> float:
    """Return how far from its promise the mean of a run lies, by 95 % of these runs of one machine; the documented
    spread where few were promised. Promises by records and those that are `anchored` have each their own."""
    errors = [
        log(unit.unit_ms / promised.ms)
        for record in (entry.record for entry in runs)
        if record.status == "ok" and (unit := typical(record)) is not None
        for promised in (record.forecast, _candidate(record))
        if promised is not None and promised.interval is not None and promised.anchored == anchored
    ]
    return exp(2 * sqrt(fmean(error * error for error in errors))) - 1 if len(errors) >= _FEWEST else DOCUMENTED_SPREAD


def _candidate(record: PipelineRecord) -> Forecast | None:
    """Return what the records promised of a budget's mix."""
    candidates = record.budget.candidates if record.budget is not None else ()
    return next((each for each in candidates if each.slots == record.mix.scheduled_variants), None)


def typical(record: PipelineRecord) -> Account | None:
    """Return the account of the units that a promise is of."""
    units = record.measurement.units
    return account_of(units, record.phase_calls, middle(units)) if units is not None else None


def forecast_of(record: PipelineRecord) -> Forecast | None:
    """Return what was promised of a run's mix: as it ran, or in older records by its budget; None if nothing was."""
    return record.forecast if record.forecast is not None else _candidate(record)


def forecast_error(record: PipelineRecord) -> float | None:
    """Return the mean time of a steady unit over the promised one, minus 1: above 0 if the promise is too optimistic.

    None without a promise or without steady units.
    """
    promised, unit = forecast_of(record), typical(record)
    return unit.unit_ms / promised.ms - 1 if promised is not None and promised.ms and unit is not None else None


def explained(record: PipelineRecord) -> tuple[str, float, float] | None:
    """Return the slot, or `between programs`, with the largest part of the difference between promise and run, its
    part and the whole difference in ms a unit; None if nothing was promised by slot, or no part has the same sign."""
    promised = forecast_of(record)
    parts, unit = dict(promised.parts_ms) if promised is not None else {}, typical(record)
    if not parts or unit is None:
        return None
    for name, ms in parts_ms(unit.lines).items():
        parts[name] = parts.get(name, 0.0) - ms
    off_ms = -sum(parts.values())
    largest = max(parts, key=lambda name: -parts[name] * off_ms)
    return (largest, -parts[largest], off_ms) if -parts[largest] * off_ms > 0 else None


def parts_ms(lines: Sequence[AccountLine]) -> dict[str, float]:
    """Return the milliseconds a unit of each slot's calls, and `between programs`."""
    parts: dict[str, float] = {}
    for line in lines:
        parts[line.slot or BETWEEN] = parts.get(line.slot or BETWEEN, 0.0) + line.ms
    return parts


def total(values: Sequence[float | None]) -> float | None:
    """Return the sum; None without values, or if one is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def least(values: Sequence[float | None]) -> float | None:
    """Return the smallest value; None without values, or if one is unknown."""
    known = [value for value in values if value is not None]
    return min(known) if known and len(known) == len(values) else None
