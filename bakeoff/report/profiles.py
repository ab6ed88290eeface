"""A profile as it is reported: everything that its page and its JSON show, computed from the record and from others.

The JSON has a published schema, profile.schema.json beside this file. Times are milliseconds a unit, means over steady
units; shares are thousandths that add up to 1,000 within their list.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bakeoff.advice import advise
from bakeoff.advice.evidence import Advice
from bakeoff.advice.facts import evidence_of
from bakeoff.models.types import Scalar
from bakeoff.record.frames import phases
from bakeoff.record.pipeline import PipelineRecord
from bakeoff.record.profile import PartTime, Profile, ProgramSight
from bakeoff.record.schema import Finding
from bakeoff.record.statistics import summarise_ns
from bakeoff.record.store import Records, StoredPipeline
from bakeoff.record.units import UnitKind, Units
from bakeoff.report.monitored import sentences
from bakeoff.report.pipelines import title
from bakeoff.trace.table import ProfileTable, RankedRow, operators_scale, own_kernels, profile_table, ranked

REPORT_SCHEMA = 1


@dataclass(frozen=True, slots=True)
class ReportLine:
    """One line of a unit."""

    name: str
    kind: Literal["phase", "glue", "copies", "unattributed"]
    slot: str
    calls: int | None
    ms: float
    share: int
    busy_ms: float | None
    """None where nothing shows what runs inside."""
    idle_ms: float | None
    host_wait_ms: float | None
    gap_ms: float | None
    other_ms: float | None
    inconsistent: bool
    """The traced units were busier in this line than a timed unit lasts."""
    told_by: str


@dataclass(frozen=True, slots=True)
class ReportPart:
    """A part of a network in the traced loop."""

    tag: str
    level: int
    slot: str
    path: str
    calls: float
    ms: float
    """A unit, while traced, with the parts within it."""


@dataclass(frozen=True, slots=True)
class ReportUnit:
    """One unit of the run, in order."""

    kind: UnitKind
    started_ms: float
    ms: float
    lines_ms: tuple[float, ...]
    """Of each line of the report, in its order; what a unit has besides, such as phases of an opening unit, is left."""
    compiled: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProfileReport:
    """One profile."""

    schema: int
    record: str
    mix: str
    role: str
    title: str
    unit: Literal["frame", "block", "call"]
    status: str
    reason: str
    level: int
    steady_units: int
    traced_units: int
    """Those that count; a finding names what was left out."""
    unit_ms: float
    busy_ms: float
    idle_ms: float
    hidden_ms: float
    cores: float
    overlap_ms: float | None
    stamps_ms: tuple[float, float, float] | None
    """What the account itself costs a unit: its stamps times the median time of one, and the interval of that median.
    None in records that lack it."""
    lines: tuple[ReportLine, ...]
    kernels: tuple[RankedRow, ...]
    """On a GPU, by the traced loop."""
    own_kernels: tuple[RankedRow, ...]
    """Of programs that only a traced build shows, by that build."""
    operators: tuple[RankedRow, ...]
    programs: tuple[ProgramSight, ...]
    parts: tuple[ReportPart, ...]
    hidden: tuple[str, ...]
    """What of levels 4 and 5 is not visible, and why; a sentence each."""
    findings: tuple[Finding, ...]
    advice: tuple[Advice, ...]
    units: tuple[ReportUnit, ...]
    memory: tuple[tuple[float, float], ...]
    """Milliseconds from the start of the first traced unit, and MiB allocated."""
    compiled: tuple[str, ...]
    files: dict[str, str]
    """What lies in the cache folder of the machine: trace, memory snapshot, compiler's log."""
    environment: dict[str, Scalar]


def report_of(entry: StoredPipeline, records: Records) -> ProfileReport | None:
    """The report of a record with a profile and steady units; None of any other."""
    record, table = entry.record, profile_table(entry.record)
    profile, units = record.measurement.profile, record.measurement.units
    if table is None or profile is None or units is None:
        return None
    facts = evidence_of(entry, records)
    return ProfileReport(
        schema=REPORT_SCHEMA,
        record=entry.id,
        mix=str(record.mix),
        role=record.role,
        title=title(record),
        unit=record.unit,
        status=record.status,
        reason=record.measurement.reason,
        level=profile.level,
        steady_units=units.kinds.count("steady"),
        traced_units=profile.units,
        unit_ms=table.unit_ms,
        busy_ms=table.busy_ms,
        idle_ms=table.idle_ms,
        hidden_ms=table.hidden_ms,
        cores=table.cores,
        overlap_ms=table.overlap_ms,
        stamps_ms=_stamps(profile),
        lines=_lines(table),
        kernels=ranked(profile.kernels, profile.units, {}) if profile.kernels is not None else (),
        own_kernels=own_kernels(profile.programs, record.calls),
        operators=ranked(profile.operators, profile.units, operators_scale(profile, phases(record)))
        if profile.operators is not None
        else (),
        programs=profile.programs,
        parts=tuple(_part(part, profile.units) for part in profile.parts),
        hidden=tuple(_hidden(record, profile)),
        findings=record.measurement.findings,
        advice=advise(facts) if facts is not None else (),
        units=_units(units, table),
        memory=tuple((point.t_ns / 1e6, point.bytes / 2**20) for point in profile.memory),
        compiled=profile.compiled,
        files=_files(profile),
        environment=_environment(record),
    )


def reports_of(entries: Sequence[StoredPipeline], records: Records) -> list[ProfileReport]:
    """The reports of those that have one."""
    made = (report_of(entry, records) for entry in entries)
    return [report for report in made if report is not None]


def _stamps(profile: Profile) -> tuple[float, float, float] | None:
    if not profile.stamps_ns:
        return None
    found = summarise_ns(profile.stamps_ns)
    return profile.stamps * found.median_ms, profile.stamps * found.low_ms, profile.stamps * found.high_ms


def _units(units: Units, table: ProfileTable) -> tuple[ReportUnit, ...]:
    by_name = {(line.name, line.kind): line.ns for line in units.lines}
    lines = [by_name[row.phase.name, row.phase.kind] for row in table.rows]
    return tuple(
        ReportUnit(
            kind,
            units.started_ns[place] / 1e6,
            units.wall_ns[place] / 1e6,
            tuple(line[place] / 1e6 for line in lines),
            units.moved.get(str(place), ()),
        )
        for place, kind in enumerate(units.kinds)
    )


def _lines(table: ProfileTable) -> tuple[ReportLine, ...]:
    return tuple(
        ReportLine(
            name=row.phase.name,
            kind=row.phase.kind,
            slot=row.phase.slot,
            calls=row.phase.calls,
            ms=row.phase.ms,
            share=row.phase.thousandths,
            busy_ms=row.busy_ms,
            idle_ms=row.idle_ms,
            host_wait_ms=row.idle.host_wait_ms if row.idle is not None else None,
            gap_ms=row.idle.gap_ms if row.idle is not None else None,
            other_ms=row.idle.other_ms if row.idle is not None else None,
            inconsistent=row.inconsistent,
            told_by=row.told_by,
        )
        for row in table.rows
    )


def _part(part: PartTime, units: int) -> ReportPart:
    return ReportPart(part.tag, part.level, part.slot, part.path, part.calls / units, part.ns / units / 1e6)


def _hidden(record: PipelineRecord, profile: Profile) -> list[str]:
    """What a reader would look for and not find."""
    found = []
    for sight in profile.programs:
        if sight.sight == "hidden":
            why = sight.problem or "its engine shows nothing of itself, and there is no traced build"
            found.append(f"{sight.slot}.{sight.program}: inside not visible: {why}")
    if profile.level < 4:
        return found
    seen = {part.slot for part in profile.parts}
    for slot in record.mix.slots:
        if slot.slot not in seen:
            text = "compiled region, inside not visible at levels 4 and 5; see the eager mix"
            found.append(f"{slot.slot} ({slot.backend}/{slot.dtype}): {text}")
    return found


def _files(profile: Profile) -> dict[str, str]:
    named = {"trace": profile.trace, "memory snapshot": profile.snapshot}
    found = {name: file.path for name, file in named.items() if file is not None}
    return found | ({"compiler's log": profile.compiler} if profile.compiler else {})


def _environment(record: PipelineRecord) -> dict[str, Scalar]:
    versions: dict[str, Scalar] = dict(record.versions)
    seen = sentences(record)
    monitor: dict[str, Scalar] = {"monitor": ". ".join(seen)} if seen else {}
    return {
        "machine": record.machine.name,
        "system": record.host.system,
        "threads": record.threads,
        "created": record.created,
        "commit": f"{record.commit[:12]}{' with changes' if record.dirty else ''}",
        **versions,
        **record.measurement.settings,
        **record.measurement.device_state,
        **monitor,
    }
