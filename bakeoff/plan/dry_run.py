"""Estimates for `--dry-run`: time from earlier records or guesses, memory from shapes and parameters.

With a time limit, the rows are in the order in which the sweep would run them, and those expected to fit are marked.
"""

from dataclasses import dataclass

from bakeoff.plan.costs import FINAL_S, Costs, finals_of
from bakeoff.plan.history import History, by_priority
from bakeoff.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class Line:
    """Estimate for one row of a plan. `seconds_from` is the id of the record that gave the time, or "guess"."""

    variant: str
    batch: int
    process: int
    precheck: str
    """Reason why the row cannot run; "" if it can."""
    seconds: float
    seconds_from: str
    memory_bytes: int
    fits: bool = True
    """Whether the row is expected to be timed within the time limit; True without one."""


@dataclass(frozen=True, slots=True)
class Estimate:
    lines: tuple[Line, ...]
    processes: int
    """Fresh processes of each variant."""
    seconds: float
    """Sum over all rows and finals, without references."""
    objective: str
    batches: tuple[int, ...]
    """Batch sizes, each of which has rows of its own."""
    finals: int
    """Number of subjects that may have a final; 0 if no finals are requested."""
    time_limit_s: float = 0.0
    """Time limit in seconds; 0 without one."""


def estimate(plan: Plan, history: History) -> Estimate:
    """Estimate the time and memory of the plan's rows from earlier records."""
    costs, asked, rows = Costs(history), plan.request, plan.rows
    fitting = {row.key for row in rows}
    if asked.time_limit_s:
        rows = by_priority(rows, history, asked.objective.goal)
    finals = finals_of(rows) if asked.final_s else []
    if asked.time_limit_s:
        fitting = {row.key for row in costs.fitting(rows, asked.time_limit_s, finals)}
    lines = []
    for row in rows:
        time = costs.of(row)
        peaks = [entry.record.peak_bytes for entry in history.like(row) if entry.record.config_id == row.config_id]
        precheck = "" if row.precheck is None else str(row.precheck)
        lines.append(
            Line(
                variant=str(row.variant),
                batch=row.subject.batch,
                process=row.process,
                precheck=precheck,
                seconds=0.0 if precheck else time.seconds,
                seconds_from="" if precheck else time.source,
                memory_bytes=0 if precheck else next(filter(None, reversed(peaks)), row.memory.device),
                fits=row.key in fitting,
            )
        )
    seconds = sum(line.seconds for line in lines) + FINAL_S * len(finals)
    return Estimate(
        tuple(lines), asked.processes, seconds, str(asked.objective), asked.batches, len(finals),
        asked.time_limit_s,
    )  # fmt: skip
