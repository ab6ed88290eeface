"""Compares mixes with the limits of a budget, by what records promise and by what a run measured."""

from collections.abc import Mapping, Sequence
from math import inf
from types import MappingProxyType
from typing import Final

from bakeoff.models.words import counted
from bakeoff.record.account import account, steady
from bakeoff.record.deadline import first_ms
from bakeoff.record.finalists import LimitCheck, Word, worst
from bakeoff.record.forecast import forecast_of, least
from bakeoff.record.frames import before_after, figures, nearest_rank
from bakeoff.record.objective import Figure, Objective
from bakeoff.record.pipeline import Budget, Forecast, PipelineRecord
from bakeoff.record.schema import Parity
from bakeoff.record.statistics import FEWEST_FOR_P99
from bakeoff.record.store import StoredPipeline

EXACT_DB: Final = 999.0
"""Stands for the SQNR of outputs that equal the reference."""


def sqnr_db(parity: Parity | None) -> float | None:
    """Return the least SQNR of an output, `EXACT_DB` if all equal the reference; None if it is unknown."""
    if parity is None or not parity.outputs or any(output.rel_l2 is None for output in parity.outputs):
        return None
    return parity.sqnr_db if parity.sqnr_db is not None else EXACT_DB


def check_forecast(forecast: Forecast, budget: Budget) -> tuple[LimitCheck, ...]:
    """Check what is promised of a mix against each limit of its budget; a p99 is known from a run alone."""
    values: Mapping[Figure, float | None] = {
        "mean": forecast.ms,
        "fps": budget.frames * 1000 / forecast.ms if forecast.ms else None,
        "memory": forecast.memory_bytes,
        "sqnr": forecast.sqnr_db,
        "first": forecast.first_ms[0] if forecast.first_ms is not None else None,
    }
    intervals: dict[Figure, tuple[float, float]] = {}
    if forecast.interval is not None and (low := forecast.interval[0]):
        high = forecast.interval[1]
        intervals = {"mean": (low, high), "fps": (budget.frames * 1000 / high, budget.frames * 1000 / low)}
    if forecast.first_ms is not None:
        _, first_low, first_high = forecast.first_ms
        intervals["first"] = (first_low or 0.0, inf if first_high is None else first_high)
    return _checks(budget.objective, values, {"p99": "only a run tells", **_NO_START}, intervals)


_NO_START: Final = {"first": "no cold start of it was measured, or no start had a good frame"}


def measured(record: PipelineRecord) -> Mapping[Figure, float | None]:
    """Return the figures of a run that a budget may limit; None for those that it does not tell."""
    units, memory, rates, unit = record.measurement.units, record.measurement.memory, figures(record), account(record)
    walls = [units.wall_ns[place] / 1e6 for place in steady(units)] if units is not None else []
    return {
        "mean": unit.unit_ms if unit is not None else None,
        "fps": rates.frames_per_s if rates is not None else None,
        "p99": nearest_rank(walls, 0.99) if len(walls) >= FEWEST_FOR_P99 else None,
        "memory": memory.peak_bytes if memory is not None else None,
        "sqnr": least([sqnr_db(program.parity) for program in record.measurement.programs]),
        "first": (first_ms(record.started) or (None,))[0],
    }


def check_run(record: PipelineRecord, objective: Objective) -> tuple[LimitCheck, ...]:
    """Check what was measured of a mix against each limit."""
    units = record.measurement.units
    count = counted(len(steady(units)) if units is not None else 0, "steady unit")
    why = {
        "p99": f"{count} of the {FEWEST_FOR_P99} that it takes",
        "sqnr": "not every program was checked",
        **_NO_START,
    }
    return _checks(objective, measured(record), why)


def _checks(
    objective: Objective,
    values: Mapping[Figure, float | None],
    why: Mapping[str, str],
    intervals: Mapping[Figure, tuple[float, float]] = MappingProxyType({}),
) -> tuple[LimitCheck, ...]:
    """Check the value of each limit's figure, or its whole interval; `why` has reasons for those that are unknown."""
    checks = []
    for limit in objective.limits:
        value = values.get(limit.figure)
        if value is None:
            checks.append(LimitCheck(limit, "unknown", why=why.get(limit.figure, "no record states it")))
        else:
            low, high = intervals.get(limit.figure, (None, None))
            ends = [limit.allows(value if end is None else end) for end in (low, high)]
            word: Word = "met" if all(ends) else "unclear" if any(ends) else "not met"
            checks.append(LimitCheck(limit, word, float(value), low, high))
    return tuple(checks)


def holds(record: PipelineRecord, objective: Objective) -> bool:
    """Return whether a mix can be shipped: it is ok and breaks no limit. A figure that was not measured breaks none."""
    return record.status == "ok" and worst(check_run(record, objective)) != "not met"


def promised_ms(entry: StoredPipeline) -> float:
    """Return the promised time of a run's mix in ms, infinite if there is none."""
    promised = forecast_of(entry.record)
    return promised.ms if promised is not None else inf


def shipped(stored: Sequence[StoredPipeline]) -> StoredPipeline | None:
    """Return the mix to ship of the runs of one budget; None if none that ran holds.

    It is the one of those that hold that was promised to be the fastest, unless another that took turns with it is
    shown to be faster.
    """
    held = [entry for entry in stored if (asked := entry.record.budget) and holds(entry.record, asked.objective)]
    held.sort(key=promised_ms)
    for first in held[:1]:
        for other in held[1:]:
            compared = before_after(first.record, other.record)
            if compared is not None and compared.word == "faster":
                return other
        return first
    return None
