"""Estimates for `--dry-run`: time from earlier records or guesses, memory and disk from shapes and parameters.

With a budget, the rows are in the order in which the sweep would run them, and those expected to fit are marked.
"""

from dataclasses import dataclass
from pathlib import Path

from bakeoff.plan.costs import Costs
from bakeoff.plan.history import History, by_priority
from bakeoff.plan.plan import Plan
from bakeoff.plan.rows import Row, reference_folder

_COMPILED_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Line:
    """Estimate for one row of a plan. `seconds_from` is the id of the record that gave the time, or "guess"."""

    variant: str
    batch: int
    build_number: int
    process: int
    precheck: str
    """Reason why the row cannot run; "" if it can."""
    seconds: float
    seconds_from: str
    memory_bytes: int
    disk_bytes: int
    fits: bool = True
    """Whether the row is expected to be timed within the budget; True without a budget."""


@dataclass(frozen=True, slots=True)
class Estimate:
    lines: tuple[Line, ...]
    builds: int
    """Fresh builds of each variant that is compiled."""
    processes: int
    """Fresh processes of each build."""
    seconds: float
    """Sum over all rows, references and finals."""
    disk_bytes: int
    objective: str
    batches: tuple[int, ...]
    """Batch sizes, each of which has rows of its own."""
    finals: int
    """Number of subjects that may have a final; 0 if no finals are requested."""
    references_s: float = 0.0
    """Seconds for the references that are not cached yet."""
    budget_s: float = 0.0
    """Budget in seconds; 0 without one."""


def estimate(plan: Plan, history: History) -> Estimate:
    """Estimate the time, memory and disk space of the plan's rows from earlier records."""
    costs, asked, rows = Costs(plan, history), plan.request, plan.rows
    finals, fitting = costs.finals(rows), {row.key for row in rows}
    if asked.budget_s:
        rows = by_priority(rows, history, asked.objective.goal)
        finals = costs.finals(rows)
        fitting = {row.key for row in costs.fitting(rows, asked.budget_s, finals)}
    seen: set[Path] = set()
    lines = []
    for row in rows:
        time = costs.of(row)
        peaks = [entry.record.peak_bytes for entry in history.like(row) if entry.record.config_id == row.config_id]
        precheck = "" if row.precheck is None else str(row.precheck)
        lines.append(
            Line(
                variant=str(row.variant),
                batch=row.subject.batch,
                build_number=row.build_number,
                process=row.process,
                precheck=precheck,
                seconds=0.0 if precheck else time.seconds,
                seconds_from="" if precheck else time.source,
                memory_bytes=0 if precheck else next(filter(None, reversed(peaks)), row.memory.device),
                disk_bytes=0 if precheck else _reference_bytes(plan, row, seen) + _compiled_bytes(row, seen),
                fits=row.key in fitting,
            )
        )
    first = {row.subject: row for row in plan.rows if row.precheck is None}
    references_s = sum(map(costs.references_s, first.values()))
    seconds = sum(line.seconds for line in lines) + references_s + sum(map(costs.final_s, finals))
    disk = sum(line.disk_bytes for line in lines)
    return Estimate(
        tuple(lines), asked.builds, asked.processes, seconds, disk, str(asked.objective), asked.batches,
        len(finals), references_s, asked.budget_s,
    )  # fmt: skip


def _compiled_bytes(row: Row, seen: set[Path]) -> int:
    folder = row.cache_folder
    if not row.caches or folder in seen or folder.exists():
        return 0
    seen.add(folder)
    return _COMPILED_BYTES


def _reference_bytes(plan: Plan, row: Row, seen: set[Path]) -> int:
    folder = reference_folder(row.subject, plan.component)
    if folder in seen or folder.exists():
        return 0
    seen.add(folder)
    config = plan.component.preset(row.subject.preset).config
    workload = plan.component.workload(config, row.subject.workload, row.subject.batch)
    other = sum(spec.elements for size in workload.sizes for spec in size.outputs)
    return sum(spec.elements for spec in workload.outputs) * 8 * 4 + other * 8 * 2
