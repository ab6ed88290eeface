"""What `--dry-run` shows: each row's time from earlier records or a guess, memory and disk from formulas."""

from dataclasses import dataclass
from pathlib import Path

from bakeoff.plan.plan import Plan
from bakeoff.plan.reference import reference_folder
from bakeoff.plan.rows import Row
from bakeoff.process.jobs import Subject
from bakeoff.record.store import load_all

_GUESS_MEASURE_S = 45.0
_GUESS_BUILD_S = 90.0
_GUESS_FINAL_BUILDS_S = 60.0
_COMPILED_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Line:
    """One record that a plan asks for. `seconds_from` is the record the time is taken from, or "guess"."""

    variant: str
    batch: int
    build_number: int
    process: int
    settled: str
    seconds: float
    seconds_from: str
    memory_bytes: int
    disk_bytes: int


@dataclass(frozen=True, slots=True)
class Estimate:
    lines: tuple[Line, ...]
    builds: int
    """Of each variant that is built at all."""
    processes: int
    """Of each build."""
    seconds: float
    disk_bytes: int
    objective: str
    batches: tuple[int, ...]
    """Sizes, each with rows of its own."""


def estimate(plan: Plan, runs: Path) -> Estimate:
    earlier = {stored.record.config_id: stored for stored in load_all(runs).current if stored.record.wall_s}
    seen: set[Path] = set()
    lines = []
    for row in plan.rows:
        if row.precheck is not None:
            lines.append(
                Line(
                    str(row.variant), row.subject.batch, row.build_number, row.process, str(row.precheck), 0.0, "", 0, 0
                )
            )
            continue
        known = earlier.get(row.config_id)
        seconds = known.record.wall_s if known else _GUESS_MEASURE_S + (_GUESS_BUILD_S if row.caches else 0)
        lines.append(
            Line(
                variant=str(row.variant),
                batch=row.subject.batch,
                build_number=row.build_number,
                process=row.process,
                settled="",
                seconds=seconds,
                seconds_from=known.id if known else "guess",
                memory_bytes=row.memory_bytes,
                disk_bytes=_reference_bytes(plan, row, seen) + _compiled_bytes(row, seen),
            )
        )
    seconds = sum(line.seconds for line in lines) + _finals_s(plan)
    disk = sum(line.disk_bytes for line in lines)
    asked = plan.request
    objective = str(asked.objective)
    return Estimate(tuple(lines), asked.builds, asked.processes, seconds, disk, objective, asked.batch_sizes)


def _finals_s(plan: Plan) -> float:
    """A final for each subject that may have two rows, with both builds."""
    variants: dict[Subject, set[str]] = {}
    for row in plan.rows:
        if row.precheck is None:
            variants.setdefault(row.subject, set()).add(str(row.variant))
    finals = sum(len(names) > 1 for names in variants.values()) if plan.request.final_s else 0
    return finals * (plan.request.final_s + _GUESS_FINAL_BUILDS_S)


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
