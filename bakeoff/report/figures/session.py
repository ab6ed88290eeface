"""Figures of sessions: the first and the last kept units with their ranges, and series over time."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from math import isfinite
from typing import Final, NamedTuple

from bakeoff.models.words import counted
from bakeoff.record.account import account_lines
from bakeoff.record.monitor import SeriesRecord, merged
from bakeoff.record.session import SessionEvent, SessionRecord, UnitKind, UnitSpans
from bakeoff.report.figures.vega import (
    BETWEEN,
    Figure,
    Spec,
    colours,
    layer,
    name_text,
    quantity,
    rounded,
    scaled,
    tooltip,
)
from bakeoff.report.format import duration, shorten

MOST_POINTS = 400
"""Largest number of points of a series that are drawn; the record may have more."""
_KINDS: Final[Mapping[UnitKind, str]] = {
    "steady": "#5b6570", "opening": "#35506b", "filling": "#8a949e", "compiling": "#cc3311"
}  # fmt: skip
"""Colours of units by their kind."""
_EVENT, _FAILED, _MEAN = "#5d9a52", "#cc3311", "#4477aa"
_FIRST, _MOST_UNITS, _MOST_BARS, _MOST_ROWS, _MOST_MARKS = 3, 24, 1_200, 5, 100
_ROW = 24
"""Height of a row of bars in pixels."""
_FROM_ZERO = 0.7
"""An axis begins at zero if the least value is at most this share of the greatest."""
_TIMES: Final = ((3600e9, "h"), (60e9, "min"), (1e9, "s"), (1e6, "ms"))


class _Axis(NamedTuple):
    """The time axis of a part of a session, in the largest unit of time of which that part has at least two."""

    start_ns: int
    ns: int

    @property
    def size(self) -> tuple[float, str]:
        return next((each for each in _TIMES if self.ns >= 2 * each[0]), _TIMES[-1])

    def at(self, t_ns: float) -> float:
        return float(f"{(t_ns - self.start_ns) / self.size[0]:.7g}")

    def encoding(self, field: str, since: str) -> Spec:
        scale = {"domain": [0, self.at(self.start_ns + self.ns)], "nice": False, "clamp": True}
        return quantity(field, f"{self.size[1]} after {since}", scale=scale, axis={"tickCount": 10})


def timeline_figures(record: SessionRecord) -> tuple[Figure, ...]:
    """Draw the first three kept units, and the last ones."""
    kept = sorted(record.spans, key=lambda unit: unit.index)
    lines = [line.name.rpartition(" / ")[2] for line in account_lines(record)]
    colour_of = {**colours([*lines, *(span.name for unit in record.spans for span in unit.spans)]), **BETWEEN}
    parts = kept[:_FIRST], kept[_FIRST:][-_MOST_UNITS:]
    found = [_timeline(units, record.events, colour_of) for units in parts if units]
    return tuple(figure for figure in found if figure is not None)


def _timeline(
    units: Sequence[UnitSpans], events: Sequence[SessionEvent], colour_of: Mapping[str, str]
) -> Figure | None:
    """Draw units and the ranges within them as rows of bars by depth, with events; None if the units took no time."""
    start = min(unit.start_ns for unit in units)
    axis = _Axis(start, max(unit.start_ns + unit.ns for unit in units) - start)
    if axis.ns <= 0:
        return None
    deepest = min(_MOST_ROWS, max((span.depth for unit in units for span in unit.spans), default=0))
    while deepest > 1 and sum(span.depth <= deepest for unit in units for span in unit.spans) > _MOST_BARS:
        deepest -= 1
    bars = []
    for unit in units:
        frames = f", {counted(unit.frames, 'frame')}" if unit.frames else ""
        bar = _bar(axis, unit.start_ns, unit.ns, 0, f"{unit.kind} unit")
        bars.append({**bar, "unit": f"unit {unit.index}{frames}"})
    spans = [span for unit in units for span in unit.spans if span.depth <= deepest][:_MOST_BARS]
    bars += [_bar(axis, span.start_ns, span.ns, span.depth, name_text(span.name)) for span in spans]
    legend: dict[str, str] = {f"{unit.kind} unit": _KINDS[unit.kind] for unit in units}
    legend |= {name_text(span.name): colour_of[span.name] for span in spans}
    x = axis.encoding("from", f"the start of unit {units[0].index}")
    y: Spec = {"field": "row", "type": "ordinal", "axis": None, "scale": {"domain": list(range(deepest + 1))}}
    fill, told = scaled("what", legend), tooltip("what", "unit", "ms")
    encoding = {"x": x, "x2": {"field": "to"}, "y": y, "tooltip": told, "fill": fill}
    ranges = layer(bars, "rect", encoding, stroke="white", strokeWidth=0.4, yOffset=1, y2Offset=-1)
    heading = f"unit {units[0].index}" if len(units) == 1 else f"units {units[0].index} to {units[-1].index}"
    caption = f"{duration(axis.ns / 1e6)}, from {duration(start / 1e6)} after the session's start"
    layers = [ranges, *_marks(events, axis, x)]
    return Figure("timeline", heading, caption, {"height": _ROW * (deepest + 1) + 20, "layer": layers})


def _bar(axis: _Axis, start_ns: int, ns: int, row: int, what: str) -> Spec:
    return {"what": what, "from": axis.at(start_ns), "to": axis.at(start_ns + ns), "row": row, "ms": rounded(ns / 1e6)}


def _marks(events: Iterable[SessionEvent], axis: _Axis, x: Spec) -> list[Spec]:
    """Return a layer of vertical lines at the events within the axis; a pointer shows what they are."""
    end_ns = axis.start_ns + axis.ns
    data = [
        {"from": axis.at(event.t_ns), "event": name_text(event.name) + (" (failed)" if event.failed else ""),
         "at": duration(event.t_ns / 1e6), "colour": _FAILED if event.failed else _EVENT}
        for event in events
        if axis.start_ns <= event.t_ns <= end_ns
    ]  # fmt: skip
    stroke = {"field": "colour", "type": "nominal", "scale": None}
    encoding = {"x": x, "stroke": stroke, "tooltip": tooltip("event", "at")}
    return [layer(data[:_MOST_MARKS], "rule", encoding, strokeWidth=1.5)] if data else []


def series_figure(series: SeriesRecord, record: SessionRecord, name: str) -> Figure | None:
    """Draw the mean of a series as a line in a band from least to greatest, over the whole session.

    None if the session took no time or the series has no finite values. `name` becomes the figure's name.
    """
    axis, size = _Axis(0, record.ns), 1e6 if series.unit == "ns" else 1.0
    points = merged(series.points, MOST_POINTS)
    if axis.ns <= 0 or series.least is None or series.greatest is None or not isfinite(series.greatest - series.least):
        return None
    unit = "ms" if series.unit == "ns" else shorten(series.unit, 20)
    columns = {
        "t": [axis.at(min(max(point.t_ns, 0), record.ns)) for point in points],
        "least": [rounded(point.least / size) for point in points],
        "mean": [rounded(point.mean / size) for point in points],
        "greatest": [rounded(point.greatest / size) for point in points],
    }
    x = axis.encoding("t", "the start")
    zero = 0 <= series.least <= _FROM_ZERO * series.greatest
    y = partial(quantity, title=unit or None, scale={"zero": zero})
    told = [{"field": "t", "title": axis.size[1]}, *tooltip("least", "mean", "greatest")]
    mean: Spec = {"x": x, "y": y("mean"), "tooltip": told}
    band = {"x": x, "y": y("least"), "y2": {"field": "greatest"}}
    curve: Spec = {
        "data": {"values": [columns]},
        "transform": [{"flatten": list(columns)}],
        "layer": [
            {"mark": {"type": "area", "color": _MEAN, "opacity": 0.25}, "encoding": band},
            {"mark": {"type": "line", "color": _MEAN, "strokeWidth": 1.2, "point": len(points) == 1}, "encoding": mean},
        ],
    }
    source = shorten(series.source, 20)
    least, mean_value, greatest = (f"{(each or 0) / size:.5g}" for each in (series.least, series.mean, series.greatest))
    heading = f"{name_text(series.name)}{', ' if unit else ''}{unit}"
    caption = f"{source}: {least} to {greatest}, mean {mean_value}, {counted(series.count, 'sample', form=',')}"
    layers = [curve, *_marks(record.events, axis, {**x, "field": "from"})]
    return Figure(name, heading, caption, {"height": 140, "layer": layers})
