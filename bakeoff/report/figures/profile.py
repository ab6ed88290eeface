"""Figures of a profile: one unit as a waterfall with busy and idle time, and memory."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from bakeoff.record.pipeline import MemoryPoint
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
    tooltip,
)
from bakeoff.report.format import MIB
from bakeoff.trace.table import ProfileRow, ProfileTable

_POINTS = 400
"""Largest number of points of memory that are drawn."""
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
