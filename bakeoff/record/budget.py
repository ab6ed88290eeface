"""Compares the run of a mix with its budget: the figures that were measured, the limits, the error of the forecast."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

from bakeoff.models.words import counted
from bakeoff.record.account import account, steady
from bakeoff.record.finalists import LimitCheck, worst
from bakeoff.record.frames import before_after, figures, nearest_rank
from bakeoff.record.objective import Figure, Goal, Limit, Objective
from bakeoff.record.pipeline import Budget, Forecast, PipelineRecord
from bakeoff.record.prediction import BETWEEN, total
from bakeoff.record.schema import BuildCost, Parity
from bakeoff.record.statistics import FEWEST_FOR_P99
from bakeoff.record.store import StoredPipeline

EXACT_DB: Final = 999.0
"""Stands for the SQNR of outputs that equal the reference."""


@dataclass(frozen=True, slots=True)
class Binding:
    """A limit that keeps every mix from meeting all, and the mix that comes nearest to it."""

    limit: Limit
    value: float
    """That mix's figure, in the unit of `Limit.bound`."""
    mix: Forecast
    others_kept: bool
    """Whether the mix meets all other limits. Otherwise no mix does, and none meets this limit even by itself."""


@dataclass(frozen=True, slots=True)
class Solution:
    """Answer to a request; `budget.candidates` is empty if no mix meets the limits."""

    budget: Budget
    binding: tuple[Binding, ...] = ()


def sqnr_db(parity: Parity | None) -> float | None:
    """Return the least SQNR of an output, `EXACT_DB` if all equal the reference; None if it is unknown."""
    if parity is None or not parity.outputs or any(output.rel_l2 is None for output in parity.outputs):
        return None
    return parity.sqnr_db if parity.sqnr_db is not None else EXACT_DB


def build_s(build: BuildCost | None) -> float | None:
    """Return the seconds of a build, or its CPU seconds if others ran beside it; None if both are unknown."""
    if build is None:
        return None
    return build.build_s if build.build_s is not None else build.cpu_s


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
    """Check what records promise of a mix against each limit of its budget."""
    values: Mapping[Figure, float | None] = {
        "fps": budget.frames * 1000 / forecast.ms if forecast.ms else None,
        "p99": forecast.p99_ms,
        "memory": forecast.memory_bytes,
        "sqnr": forecast.sqnr_db,
        "build": forecast.build_s,
    }
    known = {figure: (value, "no record states it") for figure, value in values.items()}
    checks = _checks(budget.objective, known)
    return tuple(
        _with_interval(check, forecast, budget.frames) if check.limit.figure == "fps" else check for check in checks
    )


def _with_interval(check: LimitCheck, forecast: Forecast, frames: int) -> LimitCheck:
    """Return the check of a frame rate with its interval, and `unclear` if that holds the limit."""
    if check.value is None or not forecast.low_ms:
        return check
    low, high = frames * 1000 / forecast.high_ms, frames * 1000 / forecast.low_ms
    sure = check.limit.allows(low) == check.limit.allows(high)
    return replace(check, word=check.word if sure else "unclear", low=low, high=high)


def check_run(record: PipelineRecord, objective: Objective) -> tuple[LimitCheck, ...]:
    """Check what was measured of a mix against each limit."""
    return _checks(objective, _measured(record))


def _measured(record: PipelineRecord) -> Mapping[Figure, tuple[float | None, str]]:
    """Return each figure of a run, or None and the reason. A build counts if no program of it was found in a cache."""
    units, memory, found = record.measurement.units, record.measurement.memory, figures(record)
    walls = [units.wall_ns[unit] / 1e6 for unit in steady(units)] if units is not None else []
    programs = record.measurement.programs
    ratios = [sqnr_db(program.parity) for program in programs]
    fresh = all(program.build is not None and program.build.cache in ("none", "cold") for program in programs)
    builds = [build_s(program.build) for program in programs if fresh]
    few = f"{counted(len(walls), 'steady unit')} of the {FEWEST_FOR_P99} that it takes"
    return {
        "fps": (found.frames_per_s if found is not None else None, "no steady unit delivers frames"),
        "p99": (nearest_rank(walls, 0.99) if len(walls) >= FEWEST_FOR_P99 else None, few),
        "memory": (memory.peak_bytes if memory is not None else None, "it was not metered"),
        "sqnr": (least(ratios), "not every program was checked"),
        "build": (total(builds), "a program was built before"),
    }


def least(values: Sequence[float | None]) -> float | None:
    """Return the smallest value; None without values, or if one is unknown."""
    known = [value for value in values if value is not None]
    return min(known) if known and len(known) == len(values) else None


def _checks(objective: Objective, values: Mapping[Figure, tuple[float | None, str]]) -> tuple[LimitCheck, ...]:
    made = []
    for limit in objective.limits:
        value, why = values[limit.figure]
        if value is None:
            made.append(LimitCheck(limit, "unknown", why=why))
        else:
            made.append(LimitCheck(limit, "met" if limit.allows(value) else "not met", float(value)))
    return tuple(made)


def holds(record: PipelineRecord, objective: Objective) -> bool:
    """Return whether a mix can be shipped: it is ok and breaks no limit. A figure that was not measured breaks none."""
    return record.status == "ok" and worst(check_run(record, objective)) != "not met"


def surpasses(other: PipelineRecord, first: PipelineRecord, goal: Goal) -> bool:
    """Return whether a mix is shown to be better by the goal than another one of the same run.

    The energy of mixes that take turns cannot be told apart.
    """
    if goal == "p99" or goal == "memory":
        values = [_measured(record)[goal][0] for record in (other, first)]
        return least(values) == values[0] != values[1]
    found = before_after(first, other) if goal == "mean" else None
    return found is not None and found.word == "faster"


def shipped(stored: Sequence[StoredPipeline]) -> StoredPipeline | None:
    """Return the mix to ship of the runs of one budget, given in their order; None if none that ran holds.

    Of the mixes that hold in one round, it is the first, unless the second is shown to be better.
    """
    for _, entries in groupby(stored, key=lambda entry: entry.record.run):
        held = [entry for entry in entries if (asked := entry.record.budget) and holds(entry.record, asked.objective)]
        for first in held[:1]:
            goal = first.record.budget.objective.goal if first.record.budget is not None else "mean"
            return next((other for other in held[1:] if surpasses(other.record, first.record, goal)), first)
    return None


@dataclass(frozen=True, slots=True)
class ProgramShare:
    """Time of one program in a steady unit, promised and measured, in mean milliseconds."""

    name: str
    """As `slot.program`; `between programs` for the rest of the unit."""
    promised_ms: float | None
    """Calls times the median of the program's record; None without a record."""
    measured_ms: float


def program_shares(record: PipelineRecord) -> tuple[ProgramShare, ...]:
    """Return each program's share of a steady unit, and the rest; empty if the run has no steady unit."""
    units, measured = record.measurement.units, account(record)
    if units is None or measured is None:
        return ()
    chosen = steady(units)
    parts = {program.name: program.part_median_ns for program in record.measurement.programs if program.part}
    made = []
    for program in units.programs:
        name = f"{program.slot}.{program.program}"
        calls = record.calls.get(name, 0)
        promised = calls * parts[name] / 1e6 if name in parts else None
        if calls:
            made.append(ProgramShare(name, promised, sum(program.ns[unit] for unit in chosen) / len(chosen) / 1e6))
    between = record.budget.between_ms if record.budget is not None else None
    rest = measured.unit_ms - sum(each.measured_ms for each in made)
    return (*made, ProgramShare(BETWEEN, between, rest))
