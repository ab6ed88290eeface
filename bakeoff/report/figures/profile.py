"""Figures of a profile: one unit as a waterfall with busy and idle time or as an account, all units, and memory."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from bakeoff.models.words import counted
from bakeoff.record.pipeline import MemoryPoint, Units
from bakeoff.report.figures.vega import (
    BETWEEN,
    INK,
    Figure,
    Spec,
    beside,
    colours,
    envelope,
    layer,
    name_text,
    quantity,
    rounded,
    scaled,
    tooltip,
)
from bakeoff.report.format import MIB
from bakeoff.trace.table import ProfileRow, ProfileTable

_UNITS, _POINTS = 100, 400
"""Largest number of a run's units, and of points of its memory, that are drawn."""
_LEAST = 0.003
"""Least length of a piece of a bar, as a share of the longest unit; shorter ones cannot be seen and are not drawn."""
_OTHERS, _GREY = "other phases", "#444444"
"""Name and colour of lines that a steady unit does not have, such as phases of an opening unit."""
_MARKS: Final[Mapping[str, str]] = {"opening": "square", "filling": "circle", "compiled in it": "M-1,-1L1,1M-1,1L1,-1"}
_OPACITY: Final[Mapping[str, float]] = {"busy": 1.0, "idle": 0.35, "not visible": 0.12}


def line_colours(table: ProfileTable) -> dict[str, str]:
    """Return a colour for each line by its name; a phase has the same colour in all figures."""
    found = colours(row.phase.name for row in table.rows if row.phase.kind not in BETWEEN)
    return {row.phase.name: BETWEEN.get(row.phase.kind) or found[row.phase.name] for row in table.rows}


def waterfall(table: ProfileTable, unit: str) -> Figure:
    """Draw the lines of the mean unit one after the other, opaque while the device is busy and pale while idle."""
    colour_of = line_colours(table)
    data: list[Spec] = []
    ends: list[Spec] = []
    at = 0.0
    for row in table.rows:
        about = {"phase": name_text(row.phase.name), "share": row.phase.share}
        ends.append({**about, "to": rounded(at + row.phase.ms), "text": f"{row.phase.ms:.2f} ms, {row.phase.share}"})
        for kind, ms in _parts(row).items():
            bar = {"kind": kind, "from": rounded(at), "to": rounded(at + ms), "ms": rounded(ms)}
            data.append({**about, **bar, "colour": colour_of[row.phase.name]})
            at += ms
    kinds = [kind for kind in _OPACITY if any(each["kind"] == kind for each in data)]
    scale = {"domain": [0, rounded(1.2 * at) or 1], "nice": False}
    x = partial(quantity, title=f"ms from the start of the {unit}", axis={"tickCount": 10}, scale=scale)
    opacity = {
        "field": "kind", "type": "ordinal",
        "scale": {"domain": kinds, "range": [_OPACITY[kind] for kind in kinds]},
        "legend": {"symbolFillColor": INK, "symbolType": "square"},
    }  # fmt: skip
    fill = {"field": "colour", "type": "nominal", "scale": None}
    encoding = {
        "x": x("from"), "x2": {"field": "to"}, "fill": fill, "stroke": fill, "opacity": opacity,
        "tooltip": tooltip("phase", "kind", "ms", "share"),
    }  # fmt: skip
    y: Spec = {"field": "phase", "type": "nominal", "title": None, "sort": None, "axis": {"grid": False}}
    layers = [layer(data, "bar", encoding, height={"band": 0.7}), beside(ends, x("to"))]
    spec = {"height": 24 * len(table.rows), "encoding": {"y": y}, "layer": layers}
    caption = "the mean steady unit; full: the device is busy, pale: it is idle or nothing shows what runs inside"
    return Figure("waterfall", f"One {unit}", caption, spec)


def _parts(row: ProfileRow) -> dict[str, float]:
    """Return the milliseconds of a line by what the device does."""
    if row.busy_ms is None or row.idle_ms is None:
        return {"not visible": row.phase.ms}
    return {"busy": row.busy_ms, "idle": row.idle_ms}


def units_over_time(units: Units, table: ProfileTable, unit: str) -> Figure | None:
    """Draw each unit of a run, of many the last ones, as a bar of its lines; None if no unit took any time."""
    first = max(0, len(units.kinds) - _UNITS)
    longest = max(units.wall_ns[first:], default=0)
    if not longest:
        return None
    by_name = {(line.name, line.kind): line.ns for line in units.lines}
    lines = {row.phase.name: by_name[row.phase.name, row.phase.kind] for row in table.rows}
    data, marks = [], []
    for place in range(first, len(units.kinds)):
        pieces = {name: ns[place] for name, ns in lines.items()}
        pieces[_OTHERS] = units.wall_ns[place] - sum(pieces.values())
        data += [
            {"unit": place, "line": name_text(name), "ms": rounded(ns / 1e6), "place": order}
            for order, (name, ns) in enumerate(pieces.items())
            if ns >= _LEAST * longest
        ]
        kind = "compiled in it" if str(place) in units.moved else units.kinds[place]
        if kind in _MARKS:
            marks.append({"unit": place, "ms": rounded(units.wall_ns[place] / 1e6), "kind": kind})
    colour_of = {**line_colours(table), _OTHERS: _GREY}
    drawn = {name_text(name): colour for name, colour in colour_of.items()}
    drawn = {name: drawn[name] for name in drawn if any(each["line"] == name for each in data)}
    x: Spec = {
        "field": "unit", "type": "ordinal", "title": f"{unit} of the run",
        "axis": {"labelAngle": 0, "values": list(range(first, len(units.kinds), 5))},
    }  # fmt: skip
    y = quantity("ms", f"ms a {unit}")
    kinds = [kind for kind in _MARKS if any(mark["kind"] == kind for mark in marks)]
    bars = {"x": x, "y": {**y, "stack": "zero"}, "order": quantity("place"), "fill": scaled("line", drawn)}
    shapes = {"x": x, "y": y, "shape": scaled("kind", {kind: _MARKS[kind] for kind in kinds})}
    layers = [
        layer(data, "bar", bars, aria=False),
        layer(marks, "point", shapes, yOffset=-7, size=30, stroke=INK, aria=False),
    ]
    caption = f"the last {_UNITS} of {counted(len(units.kinds), 'unit')}" if first else "every unit, lines from below"
    return Figure("units", "Units over time", caption, {"height": 220, "layer": layers})


def memory(points: Sequence[MemoryPoint]) -> Figure | None:
    """Draw allocated memory over the traced units; None if nothing was allocated or there are fewer than two points."""
    if len(points) < 2 or not points[-1].t_ns or not any(point.bytes for point in points):
        return None
    kept, _ = envelope([point.bytes for point in points], _POINTS)
    data = [{"ms": rounded(points[place].t_ns / 1e6), "mib": rounded(points[place].bytes / MIB)} for place in kept]
    encoding = {
        "x": quantity("ms", "ms from the start of the first traced unit", axis={"tickCount": 10}),
        "y": quantity("mib", "MiB", scale={"zero": True}),
    }
    line = layer(data, "line", encoding, interpolate="step-after", strokeWidth=1.2, color="#4477aa")
    return Figure("memory", "Allocated memory", "over the traced units", {"height": 180, **line})
