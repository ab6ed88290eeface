"""Data of the figures of pipelines: where a unit's time goes, units over time, and two mixes line by line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bakeoff.record.frames import LineDifference, figures, phases
from bakeoff.record.pipeline import PipelineRecord
from bakeoff.record.schema import Status
from bakeoff.record.units import UnitKind
from bakeoff.report.figures.style import palette
from bakeoff.report.figures.thinning import envelope
from bakeoff.report.pipelines import MixRow

_BETWEEN: Final[Mapping[str, str]] = {"glue": "#bbbbbb", "copies": "#777777", "unattributed": "#d9c9a3"}
_POINTS = 400
"""Steady units of a mix that are drawn at most."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A line of the account within a bar."""

    name: str
    start_ms: float
    ms: float
    share: str
    colour: str


@dataclass(frozen=True, slots=True)
class Bar:
    """The mean steady unit of a mix."""

    name: str
    status: Status
    segments: tuple[Segment, ...]
    """In the order of the unit, without gaps."""

    @property
    def ms(self) -> float:
        return sum(segment.ms for segment in self.segments)


@dataclass(frozen=True, slots=True)
class UnitPoint:
    number: int
    ms: float
    kind: UnitKind
    moved: tuple[str, ...]
    """What was compiled or captured in it."""


@dataclass(frozen=True, slots=True)
class UnitSeries:
    """The units of a mix in the order they ran."""

    name: str
    colour: str
    points: tuple[UnitPoint, ...]


@dataclass(frozen=True, slots=True)
class LineBars:
    """A mix held against the baseline of its run, line by line."""

    name: str
    against: str
    lines: tuple[LineDifference, ...]


def waterfall(rows: Sequence[MixRow]) -> tuple[Bar, ...]:
    """A bar for each mix with steady units; a line has the same colour in every bar."""
    held = [(row, phases(row.record)) for row in rows if figures(row.record) is not None]
    names = dict.fromkeys(line.name for _, lines in held for line in lines if line.kind == "phase")
    colours = dict(zip(names, palette(len(names)), strict=True))
    bars = []
    for row, lines in held:
        at, segments = 0.0, []
        for line in lines:
            colour = colours[line.name] if line.kind == "phase" else _BETWEEN[line.kind]
            segments.append(Segment(line.name, at, line.ms, line.share, colour))
            at += line.ms
        bars.append(Bar(row.name, row.record.status, tuple(segments)))
    return tuple(bars)


def units_over_time(rows: Sequence[MixRow]) -> tuple[UnitSeries, ...]:
    """A series for each mix with units; of many steady ones, those that keep the spikes."""
    held = [row for row in rows if row.record.measurement.units is not None]
    return tuple(
        UnitSeries(row.name, colour, _points(row.record)) for row, colour in zip(held, palette(len(held)), strict=True)
    )


def _points(record: PipelineRecord) -> tuple[UnitPoint, ...]:
    units = record.measurement.units
    if units is None:
        return ()
    steady = [place for place, kind in enumerate(units.kinds) if kind == "steady"]
    kept, _ = envelope([units.wall_ns[place] for place in steady], _POINTS)
    drawn = {steady[place] for place in kept}
    return tuple(
        UnitPoint(place, units.wall_ns[place] / 1e6, kind, units.moved.get(str(place), ()))
        for place, kind in enumerate(units.kinds)
        if kind != "steady" or place in drawn or str(place) in units.moved
    )


def by_line(rows: Sequence[MixRow]) -> tuple[LineBars, ...]:
    """For each mix that took turns with the baseline of the newest run, both mixes' lines."""
    gained = [row for row in rows if row.gain is not None]
    newest = max((row.record for row in gained), key=lambda record: record.created, default=None)
    return tuple(
        LineBars(row.name, row.against, row.gain.lines)
        for row in gained
        if row.gain is not None and newest is not None and row.record.run == newest.run
    )
