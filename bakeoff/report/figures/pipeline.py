"""Data of the figures of pipelines: where a unit's time goes, units over time, and two mixes line by line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bakeoff.record.frames import LineDifference, figures, phases
from bakeoff.record.pipeline import PipelineRecord
from bakeoff.record.schema import Status
from bakeoff.record.units import UnitKind
from bakeoff.report.figures.style import BETWEEN, colours
from bakeoff.report.figures.thinning import envelope
from bakeoff.report.figures.vega import INK, Figure, Spec, name_text, rounded
from bakeoff.report.format import milliseconds, shorten
from bakeoff.report.pipelines import MixRow

_POINTS = 400
"""Steady units of a mix that are drawn at most."""
_LABELLED, _REASON = 0.05, 90
"""Least share of the longest bar that a segment's share is written in, and letters of a reason."""
_CROSS = "M-1,-1L1,1M-1,1L1,-1"
_LOOKS: Final[Mapping[str, tuple[str, int]]] = {
    "opening": ("square", 50),
    "filling": ("circle", 45),
    "steady": ("circle", 12),
    "moved": (_CROSS, 90),
}
"""Shape and size of a unit's point by its kind, and of one in which something was compiled."""


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
    colour_of = {**colours(names), **BETWEEN}
    bars = []
    for row, lines in held:
        at, segments = 0.0, []
        for line in lines:
            colour = colour_of[line.name if line.kind == "phase" else line.kind]
            segments.append(Segment(line.name, at, line.ms, line.share, colour))
            at += line.ms
        bars.append(Bar(row.name, row.record.status, tuple(segments)))
    return tuple(bars)


def units_over_time(rows: Sequence[MixRow]) -> tuple[UnitSeries, ...]:
    """A series for each mix with units; of many steady ones, those that keep the spikes."""
    held = [row for row in rows if row.record.measurement.units is not None]
    colour_of = colours(row.name for row in held)
    return tuple(UnitSeries(row.name, colour_of[row.name], _points(row.record)) for row in held)


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


def waterfall_figure(rows: Sequence[MixRow]) -> Figure | None:
    """A bar for each mix, and the reasons of those without steady units. None where no mix has any."""
    bars = {bar.name: bar for bar in waterfall(rows)}
    if not bars:
        return None
    caption = "the mean steady unit from its start to its end, with glue, copies and what has no name"
    longest = max(bar.ms for bar in bars.values())
    segments = [
        {
            "mix": name_text(bar.name),
            "phase": name_text(segment.name),
            "from": rounded(segment.start_ms),
            "to": rounded(segment.start_ms + segment.ms),
            "middle": rounded(segment.start_ms + segment.ms / 2),
            "ms": rounded(segment.ms),
            "share": segment.share if segment.ms >= _LABELLED * longest else "",
            "ink": _ink(segment.colour),
        }
        for bar in bars.values()
        for segment in bar.segments
    ]
    ends = [{"mix": name_text(row.name), **_end(row, bars.get(row.name))} for row in rows]
    legend = {name_text(segment.name): segment.colour for bar in bars.values() for segment in bar.segments}
    x: Spec = {
        "type": "quantitative", "title": f"ms a {rows[0].record.unit}",
        "scale": {"domain": [0, rounded(1.2 * longest)], "nice": False},
    }  # fmt: skip
    y: Spec = {
        "field": "mix", "type": "nominal", "title": None, "sort": [end["mix"] for end in ends],
        "axis": {"grid": False, "ticks": False},
    }  # fmt: skip
    fill = {
        "field": "phase", "type": "nominal", "scale": {"domain": list(legend), "range": list(legend.values())}
    }  # fmt: skip
    tooltip = [{"field": "mix"}, {"field": "phase"}, {"field": "ms"}]
    layers = [
        {
            "data": {"values": segments},
            "mark": {"type": "bar", "height": {"band": 0.66}, "stroke": "white", "strokeWidth": 0.6},
            "encoding": {"x": {"field": "from", **x}, "x2": {"field": "to"}, "color": fill, "tooltip": tooltip},
        },
        {
            "data": {"values": segments},
            "mark": {"type": "text", "fontSize": 9},
            "encoding": {
                "x": {"field": "middle", **x}, "text": {"field": "share"},
                "color": {"field": "ink", "type": "nominal", "scale": None},
            },
        },
        {
            "data": {"values": ends},
            "mark": {"type": "text", "align": "left", "dx": 6, "color": INK},
            "encoding": {"x": {"field": "end", **x}, "text": {"field": "text"}},
        },
    ]  # fmt: skip
    spec = {
        "height": 32 * len(rows), "encoding": {"y": y}, "layer": layers, "resolve": {"scale": {"color": "independent"}}
    }  # fmt: skip
    return Figure("waterfall", "Phases of a unit", caption, spec)


def _end(row: MixRow, bar: Bar | None) -> dict[str, str | float]:
    """What is written behind a bar, or in place of it."""
    if bar is None:
        text = f"{row.record.status}: {row.record.measurement.reason or 'no reason is stored'}"
        return {"end": 0.0, "text": shorten(text, _REASON)}
    status = "" if bar.status == "ok" else f" {bar.status}"
    return {"end": rounded(bar.ms), "text": f"{milliseconds(bar.ms)} ms{status}"}


def _ink(colour: str) -> str:
    """Black or white, whichever can be read on a colour `#rrggbb` (its luma by ITU-R BT.601)."""
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return INK if 0.299 * red + 0.587 * green + 0.114 * blue > 150 else "white"


def units_figure(rows: Sequence[MixRow]) -> Figure | None:
    """The wall time of every unit of each mix. None where no mix has units."""
    found = units_over_time(rows)
    if not found:
        return None
    caption = "square: opening, hollow: filling, dot: steady, cross: compiled or captured in it"
    unit = rows[0].record.unit
    data = [
        {
            "mix": name_text(series.name),
            "unit": point.number,
            "ms": rounded(point.ms),
            "kind": "moved" if point.moved else point.kind,
            "compiled": name_text(", ".join(point.moved)),
            "fill": "transparent" if point.kind == "filling" else series.colour,
        }
        for series in found
        for point in series.points
    ]
    legend = {name_text(series.name): series.colour for series in found}
    x: Spec = {"field": "unit", "type": "quantitative", "title": f"{unit} of the run", "axis": {"tickMinStep": 1}}
    y: Spec = {"field": "ms", "type": "quantitative", "title": f"ms a {unit}", "scale": {"zero": True}}
    stroke = {"field": "mix", "type": "nominal", "scale": {"domain": list(legend), "range": list(legend.values())}}
    look = {"domain": list(_LOOKS), "range": [shape for shape, _ in _LOOKS.values()]}
    size = {"domain": list(_LOOKS), "range": [size for _, size in _LOOKS.values()]}
    tooltip = [{"field": "mix"}, {"field": "unit"}, {"field": "ms"}, {"field": "kind"}, {"field": "compiled"}]
    layers = [
        {"mark": {"type": "line", "strokeWidth": 0.9}, "encoding": {"x": x, "y": y, "stroke": stroke}},
        {
            "mark": {"type": "point", "opacity": 1},
            "encoding": {
                "x": x, "y": y, "stroke": stroke, "tooltip": tooltip,
                "fill": {"field": "fill", "type": "nominal", "scale": None},
                "shape": {"field": "kind", "type": "nominal", "scale": look, "legend": None},
                "size": {"field": "kind", "type": "ordinal", "scale": size, "legend": None},
            },
        },
    ]  # fmt: skip
    return Figure("units", "Units over time", caption, {"height": 220, "data": {"values": data}, "layer": layers})


def lines_figure(rows: Sequence[MixRow]) -> Figure | None:
    """The lines of each mix's account beside those of the baseline. None where no mix took turns with one."""
    found = by_line(rows)
    if not found:
        return None
    caption = "mean steady unit of the baseline and of each mix that took turns with it"
    names = list(dict.fromkeys(line.name for bars in found for line in bars.lines))
    before = {line.name: line.before_ms for bars in found for line in bars.lines}
    mixes = {
        found[0].against: before,
        **{bars.name: {line.name: line.after_ms for line in bars.lines} for bars in found},
    }
    data = [
        {
            "mix": name_text(mix),
            "line": name_text(name),
            "ms": rounded(times.get(name, 0.0)),
            "change": rounded(times.get(name, 0.0) - before.get(name, 0.0)),
        }
        for mix, times in mixes.items()
        for name in names
    ]
    colour_of = colours(mixes)
    order = [name_text(mix) for mix in mixes]
    scale = {"domain": order, "range": [colour_of[mix] for mix in mixes]}
    spec = {
        "height": max(160, (14 * len(mixes) + 10) * len(names)),
        "data": {"values": data},
        "mark": {"type": "bar"},
        "encoding": {
            "x": {"field": "ms", "type": "quantitative", "title": f"ms a {rows[0].record.unit}"},
            "y": {"field": "line", "type": "nominal", "title": None, "sort": [name_text(name) for name in names]},
            "yOffset": {"field": "mix", "type": "nominal", "sort": order},
            "fill": {"field": "mix", "type": "nominal", "scale": scale},
            "tooltip": [{"field": "mix"}, {"field": "line"}, {"field": "ms"}, {"field": "change"}],
        },
    }
    return Figure("lines", "Before and after, line by line", caption, spec)
