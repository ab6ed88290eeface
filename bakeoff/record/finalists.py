"""Which rows a final decides between, and so which may be recommended."""

from collections.abc import Sequence
from math import isfinite

from bakeoff.record.limit_checks import call_ms, check_limits, worst
from bakeoff.record.objective import LATENCY, Objective
from bakeoff.record.schema import Record
from bakeoff.record.store import Stored


def finalists(rows: Sequence[Stored], objective: Objective = LATENCY) -> list[Stored]:
    """The two best rows by the objective's goal that meet its limits, the best first; fewer where there are not two.

    `rows` are comparable with each other, one for each variant.
    """
    fitting = [entry for entry in candidates(rows, objective) if worst(check_limits(entry.record, objective)) == "met"]
    return fitting[:2]


def candidates(rows: Sequence[Stored], objective: Objective = LATENCY) -> list[Stored]:
    """The rows that could be shipped if there were no limits, the best by the objective's goal first."""
    fitting = [
        entry for entry in rows if is_candidate(entry.record) and isfinite(call_ms(entry.record, objective.goal))
    ]
    return sorted(fitting, key=lambda entry: call_ms(entry.record, objective.goal))


def is_candidate(record: Record) -> bool:
    """Whether the row can be shipped: it is ok, has samples, and its error is that of real weights or of no rounding.

    The error of a quantised row on random weights says nothing about its error on trained ones.
    """
    return record.status == "ok" and record.latency is not None and not has_unknown_error(record)


def has_unknown_error(record: Record) -> bool:
    """Whether a quantised row was checked on random weights alone."""
    return bool(record.quantisation) and not record.checkpoint


def objective_of(rows: Sequence[Stored]) -> Objective:
    """What a table is for: the objective of its newest row, since rows of several sweeps may stand in one table."""
    newest = max(rows, key=lambda entry: (entry.record.created, entry.id), default=None)
    return LATENCY if newest is None else newest.record.objective
