"""A session as it is reported: everything that its page, its JSON and its text show, computed from the record alone.

The JSON has a published schema, session.schema.json beside this file. Times are milliseconds, from the session's start
where they are places in time; shares are thousandths that add up to 1,000 within their list.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bakeoff.advice.evidence import Advice
from bakeoff.advice.session import advise_session
from bakeoff.models.types import Scalar
from bakeoff.record.frames import shares
from bakeoff.record.monitor import DeviceEnergy, MonitorCost, SeriesRecord, ThrottleTime
from bakeoff.record.points import merged
from bakeoff.record.schema import Finding
from bakeoff.record.session import (
    ModelParameters,
    RangeKind,
    RangeTotal,
    RankFacts,
    SessionRecord,
    StepTotals,
    UnitKind,
    UnitSpans,
    UnitTotals,
)
from bakeoff.record.session_account import LineKind, account
from bakeoff.record.session_rates import rates

REPORT_SCHEMA = 1
MOST_POINTS = 400
"""Of a series in a report; the record has more."""
_MS = 1e6
_OWN = 2
_ORDER = {"unit": 0, "phase": 1, "gpu": 3, "cpu": 4}


@dataclass(frozen=True, slots=True)
class ReportLine:
    """What one phase takes of a unit."""

    name: str
    kind: LineKind
    calls: float
    """A unit."""
    ms: float
    """A unit, without the phases within it."""
    share: int


@dataclass(frozen=True, slots=True)
class ReportAccount:
    """Where the time of units goes; the last line is what no phase has."""

    of: Literal["all units", "kept steady units"]
    """Where opening, filling and compiling units take more than 1 % of the time: steady ones that were kept in full."""
    units: int
    unit_ms: float
    """Mean of these units."""
    lines: tuple[ReportLine, ...]


@dataclass(frozen=True, slots=True)
class ReportUnits:
    """All units of one kind."""

    kind: UnitKind
    count: int
    frames: int
    latents: int
    wall_ms: float
    mean_ms: float
    least_ms: float
    greatest_ms: float
    percentiles_ms: dict[str, float]


@dataclass(frozen=True, slots=True)
class ReportRange:
    """All ranges of one path."""

    path: tuple[str, ...]
    """Empty for the session itself."""
    kind: RangeKind
    calls: int
    total_ms: float
    own_ms: float
    """Without the ranges within it."""
    share: int | None
    """Of the session, by own time; None of what ran before it."""
    device_ms: float | None
    """Between CUDA events; None where none were read."""


@dataclass(frozen=True, slots=True)
class ReportStep:
    """All steps of one index."""

    index: int
    timestep: float | None
    calls: int
    mean_ms: float
    least_ms: float
    greatest_ms: float


@dataclass(frozen=True, slots=True)
class ReportSpan:
    """A range within a unit."""

    name: str
    kind: RangeKind
    depth: int
    start_ms: float
    ms: float


@dataclass(frozen=True, slots=True)
class ReportUnit:
    """A unit that was kept in full."""

    index: int
    kind: UnitKind
    frames: int
    start_ms: float
    ms: float
    spans: tuple[ReportSpan, ...]


@dataclass(frozen=True, slots=True)
class ReportEvent:
    t_ms: float
    name: str
    data: dict[str, Scalar]
    failed: bool


@dataclass(frozen=True, slots=True)
class ReportPoint:
    """Samples that lie beside each other in time."""

    t_ms: float
    least: float
    mean: float
    greatest: float


@dataclass(frozen=True, slots=True)
class ReportSeries:
    """A quantity over time, times in milliseconds. Numbers are of all samples; points are merged to at most 400."""

    name: str
    unit: str
    source: str
    count: int
    least: float | None
    mean: float | None
    greatest: float | None
    points: tuple[ReportPoint, ...]


@dataclass(frozen=True, slots=True)
class ReportEnergy:
    """Energy of one device over the session. Devices are not added up: a domain may hold another one."""

    device: str
    joules: float | None
    """By the device's own counter, else the integral of its power; None is unknown."""
    watt_hours: float | None
    joules_a_frame: float | None
    """Over the frames of all units, and all time of the session."""
    source: Literal["counter", "integral", ""]
    note: str


@dataclass(frozen=True, slots=True)
class ReportRecording:
    """What recording cost, by its own account."""

    ranges: int
    range_ns: float
    ms: float
    share: float
    """Of the session, 0 to 1."""
    dropped: tuple[str, ...]
    note: str


@dataclass(frozen=True, slots=True)
class SessionReport:
    """One session."""

    schema: int
    name: str
    status: str
    started_at: str
    ms: float
    tags: dict[str, Scalar]
    settings: dict[str, Scalar]
    environment: dict[str, str]
    frames: int
    """Of all units."""
    fps: float | None
    """Frames a second; None without units or frames."""
    bps: float | None
    """Units a second."""
    rates_of: Literal["steady", "all"]
    """The units that the rates are of: all where none is steady."""
    units: tuple[ReportUnits, ...]
    account: ReportAccount | None
    """None without units."""
    ranges: tuple[ReportRange, ...]
    before_ms: float
    """What the process did in ranges before its first session."""
    before: tuple[ReportRange, ...]
    steps: tuple[ReportStep, ...]
    kept: tuple[ReportUnit, ...]
    events: tuple[ReportEvent, ...]
    events_dropped: int
    parameters: tuple[ModelParameters, ...]
    series: tuple[ReportSeries, ...]
    energy: tuple[ReportEnergy, ...]
    throttled: tuple[ThrottleTime, ...]
    monitor: MonitorCost | None
    """None where no monitor ran to its end."""
    missing: tuple[str, ...]
    """What the monitor could not tell, and why."""
    recording: ReportRecording | None
    rank: RankFacts | None
    advice: tuple[Advice, ...]
    findings: tuple[Finding, ...]


def report_of(record: SessionRecord) -> SessionReport:
    """The report of a session; equal records give equal reports."""
    found, monitored = rates(record), record.monitored
    frames = sum(units.frames for units in record.units)
    series = (*record.series, *(monitored.series if monitored is not None else ()))
    return SessionReport(
        schema=REPORT_SCHEMA,
        name=record.name,
        status=record.status,
        started_at=record.started_at,
        ms=record.ns / _MS,
        tags=dict(record.tags),
        settings=dict(record.settings),
        environment=dict(record.environment),
        frames=frames,
        fps=found.fps,
        bps=found.bps,
        rates_of=found.of,
        units=tuple(map(_units, record.units)),
        account=_account(record),
        ranges=_ranges(record.ranges, shares([each.own_ns for each in record.ranges])),
        before_ms=sum(each.own_ns for each in record.before) / _MS,
        before=_ranges(record.before, [None] * len(record.before)),
        steps=tuple(map(_step, record.steps)),
        kept=tuple(map(_unit, record.spans)),
        events=tuple(ReportEvent(each.t_ns / _MS, each.name, dict(each.data), each.failed) for each in record.events),
        events_dropped=record.events_dropped,
        parameters=record.parameters,
        series=tuple(map(_series, sorted(series, key=_place))),
        energy=tuple(_energy(each, frames) for each in (monitored.energy if monitored is not None else ())),
        throttled=monitored.throttled if monitored is not None else (),
        monitor=monitored.cost if monitored is not None else None,
        missing=monitored.missing if monitored is not None else (),
        recording=_recording(record),
        rank=record.rank,
        advice=advise_session(record),
        findings=record.findings,
    )


def _account(record: SessionRecord) -> ReportAccount | None:
    found = account(record)
    if found is None:
        return None
    lines = [
        ReportLine(line.name, line.kind, line.calls / found.units, line.ns / found.units / _MS, line.thousandths)
        for line in found.lines
    ]
    return ReportAccount(found.of, found.units, found.unit_ms, tuple(lines))


def _units(units: UnitTotals) -> ReportUnits:
    return ReportUnits(
        kind=units.kind,
        count=units.count,
        frames=units.frames,
        latents=units.latents,
        wall_ms=units.wall_ns / _MS,
        mean_ms=units.wall_ns / units.count / _MS,
        least_ms=units.least_ns / _MS,
        greatest_ms=units.greatest_ns / _MS,
        percentiles_ms={name: ns / _MS for name, ns in units.percentiles_ns.items()},
    )


def _ranges(ranges: Sequence[RangeTotal], parts: Sequence[int | None]) -> tuple[ReportRange, ...]:
    return tuple(
        ReportRange(
            path=each.path,
            kind=each.kind,
            calls=each.calls,
            total_ms=each.total_ns / _MS,
            own_ms=each.own_ns / _MS,
            share=share,
            device_ms=each.device_ns / _MS if each.device_ns is not None else None,
        )
        for each, share in zip(ranges, parts, strict=True)
    )


def _step(step: StepTotals) -> ReportStep:
    mean_ms = step.ns / step.calls / _MS
    return ReportStep(step.index, step.timestep, step.calls, mean_ms, step.least_ns / _MS, step.greatest_ns / _MS)


def _unit(unit: UnitSpans) -> ReportUnit:
    spans = [
        ReportSpan(span.name, span.kind, span.depth, span.start_ns / _MS, span.ns / _MS)
        for span in sorted(unit.spans, key=lambda span: (span.start_ns, span.depth))
    ]
    return ReportUnit(unit.index, unit.kind, unit.frames, unit.start_ns / _MS, unit.ns / _MS, tuple(spans))


def _series(series: SeriesRecord) -> ReportSeries:
    size = _MS if series.unit == "ns" else 1.0

    def shown(value: float | None) -> float | None:
        return value / size if value is not None else None

    return ReportSeries(
        name=series.name,
        unit="ms" if series.unit == "ns" else series.unit,
        source=series.source,
        count=series.count,
        least=shown(series.least),
        mean=shown(series.mean),
        greatest=shown(series.greatest),
        points=tuple(
            ReportPoint(point.t_ns / _MS, point.least / size, point.mean / size, point.greatest / size)
            for point in merged(series.points, MOST_POINTS)
        ),
    )


def _energy(energy: DeviceEnergy, frames: int) -> ReportEnergy:
    joules = energy.mj / 1000 if energy.mj is not None else None
    return ReportEnergy(
        device=energy.device,
        joules=joules,
        watt_hours=joules / 3600 if joules is not None else None,
        joules_a_frame=joules / frames if joules is not None and frames else None,
        source="counter" if energy.counter_mj is not None else "integral" if joules is not None else "",
        note=energy.note,
    )


def _recording(record: SessionRecord) -> ReportRecording | None:
    cost = record.cost
    if cost is None:
        return None
    share = cost.ns / record.ns if record.ns else 0.0
    return ReportRecording(cost.ranges, cost.range_ns, cost.ns / _MS, share, cost.dropped, cost.note)


def _place(series: SeriesRecord) -> int:
    """Unit times and phases are shown first, then the user's own, then the machine's."""
    if series.source == "user":
        return _OWN
    return _ORDER.get(series.name.partition(".")[0], _OWN)
