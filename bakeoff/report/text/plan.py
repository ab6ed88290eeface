"""What a sweep would run, with estimates: time from earlier records or a guess, memory and disk from the specs."""

from dataclasses import dataclass
from pathlib import Path

from tabulate import tabulate

from bakeoff.plan.plan import Entry, Plan, reference_folder
from bakeoff.process.jobs import Subject
from bakeoff.record.store import load_all

MIB = 1 << 20
_GUESS_MEASURE_S = 45.0
_GUESS_BUILD_S = 90.0
_GUESS_FINAL_BUILDS_S = 60.0
_COMPILED_BYTES = 64 * MIB


@dataclass(frozen=True, slots=True)
class Line:
    """One record that a plan asks for. `seconds_from` is the record the time is taken from, or "guess"."""

    variant: str
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


def estimate(plan: Plan, runs: Path) -> Estimate:
    earlier = {entry.record.config_id: entry for entry in load_all(runs).current if entry.record.wall_s}
    seen: set[Path] = set()
    lines = []
    for entry in plan.entries:
        if entry.settled is not None:
            reason = f"{entry.settled[0]}: {entry.settled[1]}"
            lines.append(Line(str(entry.variant), entry.build_number, entry.process, reason, 0.0, "", 0, 0))
            continue
        known = earlier.get(entry.config_id)
        seconds = known.record.wall_s if known else _GUESS_MEASURE_S + (_GUESS_BUILD_S if entry.caches else 0)
        lines.append(
            Line(
                variant=str(entry.variant),
                build_number=entry.build_number,
                process=entry.process,
                settled="",
                seconds=seconds,
                seconds_from=known.id if known else "guess",
                memory_bytes=entry.memory_bytes,
                disk_bytes=_judge_bytes(plan, entry, seen) + _compiled_bytes(entry, seen),
            )
        )
    seconds = sum(line.seconds for line in lines) + _finals_s(plan)
    disk = sum(line.disk_bytes for line in lines)
    return Estimate(tuple(lines), plan.request.builds, plan.request.processes, seconds, disk)


def _finals_s(plan: Plan) -> float:
    """A final for each subject that may have two rows, with both builds."""
    variants: dict[Subject, set[str]] = {}
    for entry in plan.entries:
        if entry.settled is None:
            variants.setdefault(entry.subject, set()).add(str(entry.variant))
    finals = sum(len(names) > 1 for names in variants.values()) if plan.request.final_s else 0
    return finals * (plan.request.final_s + _GUESS_FINAL_BUILDS_S)


def _compiled_bytes(entry: Entry, seen: set[Path]) -> int:
    folder = entry.cache_folder
    if not entry.caches or folder in seen or folder.exists():
        return 0
    seen.add(folder)
    return _COMPILED_BYTES


def _judge_bytes(plan: Plan, entry: Entry, seen: set[Path]) -> int:
    folder = reference_folder(entry, plan.component)
    if folder in seen or folder.exists():
        return 0
    seen.add(folder)
    config = plan.component.preset(entry.subject.preset).config
    workload = plan.component.workload(config, entry.subject.workload, entry.subject.batch)
    return sum(spec.elements for spec in workload.outputs) * 8 * 4


def render(plan: Estimate) -> str:
    rows = [
        [
            line.variant,
            *([line.build_number] if plan.builds > 1 else []),
            *([line.process] if plan.processes > 1 else []),
            line.settled or f"{line.seconds:.0f}",
            line.seconds_from,
            line.memory_bytes // MIB,
            line.disk_bytes // MIB,
        ]
        for line in plan.lines
    ]
    which = (["build"] if plan.builds > 1 else []) + (["process"] if plan.processes > 1 else [])
    headers = ("variant", *which, "about s", "from", "memory MiB", "disk MiB")
    body = tabulate(rows, headers=headers, disable_numparse=True)
    builds = f" ({plan.builds} builds of each compiled variant)" if plan.builds > 1 else ""
    total = f"about {plan.seconds / 60:.1f} minutes, {plan.disk_bytes // MIB} MiB of disk"
    return f"{body}\n\n{len(plan.lines)} rows{builds}, {total}, finals included"
