"""Compares mixes with the limits of a budget, by what records promise and by what a run measured."""

from collections.abc import Mapping, Sequence
from typing import Final

from bakeoff.models.words import counted
from bakeoff.record.account import account, steady
from bakeoff.record.finalists import LimitCheck, worst
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
    promised, mean_ms = forecast_of(record), measured(record)["mean"]
    return mean_ms / promised.ms - 1 if promised is not None and mean_ms is not None else None


def check_forecast(forecast: Forecast, budget: Budget) -> tuple[LimitCheck, ...]:
    """Check what records promise of a mix against each limit of its budget; a p99 is known from a run alone."""
    values: Mapping[Figure, float | None] = {
        "mean": forecast.ms,
        "fps": budget.frames * 1000 / forecast.ms if forecast.ms else None,
        "memory": forecast.memory_bytes,
        "sqnr": forecast.sqnr_db,
    }
    return _checks(budget.objective, values, {"p99": "only a run tells"})


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
    }


def check_run(record: PipelineRecord, objective: Objective) -> tuple[LimitCheck, ...]:
    """Check what was measured of a mix against each limit."""
    units = record.measurement.units
    count = counted(len(steady(units)) if units is not None else 0, "steady unit")
    why = {"p99": f"{count} of the {FEWEST_FOR_P99} that it takes", "sqnr": "not every program was checked"}
    return _checks(objective, measured(record), why)


def _checks(
    objective: Objective, values: Mapping[Figure, float | None], why: Mapping[str, str]
) -> tuple[LimitCheck, ...]:
    """Check the value of each limit's figure; `why` has reasons for those that are unknown."""
    checks = []
    for limit in objective.limits:
        value = values.get(limit.figure)
        if value is None:
            checks.append(LimitCheck(limit, "unknown", why=why.get(limit.figure, "no record states it")))
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
