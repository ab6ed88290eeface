"""Compares mixes with the limits of a budget, by what records promise and by what a run measured."""

from collections.abc import Mapping, Sequence
from typing import Final

from bakeoff.models.words import counted
from bakeoff.record.account import account, steady
from bakeoff.record.finalists import LimitCheck, worst
from bakeoff.record.frames import before_after, figures, nearest_rank
from bakeoff.record.objective import Figure, Objective
from bakeoff.record.pipeline import Budget, Forecast, PipelineRecord
from bakeoff.record.prediction import memory_sum
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


def least(values: Sequence[float | None]) -> float | None:
    """Return the smallest value; None without values, or if one is unknown."""
    known = [value for value in values if value is not None]
    return min(known) if known and len(known) == len(values) else None


def forecast_of(record: PipelineRecord) -> Forecast | None:
    """Return what the budget of a run promised of its mix; None for other runs."""
    known = record.budget.candidates if record.budget is not None else ()
    return next((each for each in known if each.slots == record.mix.variants), None)


def forecast_error(record: PipelineRecord) -> float | None:
    """Return the mean time of a steady unit over the promised one, minus 1: above 0 if the promise is too optimistic.

    None for a run of no budget, or without steady units.
    """
    promised, measured = forecast_of(record), account(record)
    return measured.unit_ms / promised.ms - 1 if promised is not None and measured is not None else None


def check_forecast(forecast: Forecast, budget: Budget) -> tuple[LimitCheck, ...]:
    """Check what records promise of a mix against each limit of its budget; a p99 is known from a run alone."""
    values: Mapping[Figure, float | None] = {
        "mean": forecast.ms,
        "fps": budget.frames * 1000 / forecast.ms if forecast.ms else None,
        "memory": forecast.memory_bytes,
        "sqnr": forecast.sqnr_db,
    }
    why = {"p99": "only a run tells"}
    return _checks(budget.objective, values, {**dict.fromkeys(values, "no record states it"), **why})


def check_run(record: PipelineRecord, objective: Objective) -> tuple[LimitCheck, ...]:
    """Check what was measured of a mix against each limit."""
    units, memory, rates, measured = record.measurement.units, memory_sum(record), figures(record), account(record)
    walls = [units.wall_ns[unit] / 1e6 for unit in steady(units)] if units is not None else []
    values: Mapping[Figure, float | None] = {
        "mean": measured.unit_ms if measured is not None else None,
        "fps": rates.frames_per_s if rates is not None else None,
        "p99": nearest_rank(walls, 0.99) if len(walls) >= FEWEST_FOR_P99 else None,
        "memory": memory.peak_bytes if memory is not None else None,
        "sqnr": least([sqnr_db(program.parity) for program in record.measurement.programs]),
    }
    why = {
        "fps": "no steady unit delivers frames",
        "p99": f"{counted(len(walls), 'steady unit')} of the {FEWEST_FOR_P99} that it takes",
        "memory": "it was not metered",
        "sqnr": "not every program was checked",
    }
    return _checks(objective, values, why)


def _checks(
    objective: Objective, values: Mapping[Figure, float | None], why: Mapping[str, str]
) -> tuple[LimitCheck, ...]:
    """Check the value of each limit's figure; `why` has the reason for those that are unknown."""
    checks = []
    for limit in objective.limits:
        value = values.get(limit.figure)
        if value is None:
            checks.append(LimitCheck(limit, "unknown", why=why.get(limit.figure, "it was not measured")))
        else:
            checks.append(LimitCheck(limit, "met" if limit.allows(value) else "not met", float(value)))
    return tuple(checks)


def holds(record: PipelineRecord, objective: Objective) -> bool:
    """Return whether a mix can be shipped: it is ok and breaks no limit. A figure that was not measured breaks none."""
    return record.status == "ok" and worst(check_run(record, objective)) != "not met"


def shipped(stored: Sequence[StoredPipeline]) -> StoredPipeline | None:
    """Return the mix to ship of the runs of one budget, given in their order; None if none that ran holds.

    It is the first mix that holds, unless another that took turns with it is shown to be faster.
    """
    held = [entry for entry in stored if (asked := entry.record.budget) and holds(entry.record, asked.objective)]
    for first in held[:1]:
        for other in held[1:]:
            compared = before_after(first.record, other.record)
            if compared is not None and compared.word == "faster":
                return other
        return first
    return None
