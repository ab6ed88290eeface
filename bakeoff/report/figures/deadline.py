"""The figure of sustained runs: the time of each unit over minutes, beside the time that its frame rate leaves it."""

from collections.abc import Mapping, Sequence
from statistics import median

from bakeoff.record.deadline import MINUTE_NS, Stamp, viewer_of
from bakeoff.record.pipeline import PipelineRecord
from bakeoff.report.figures.vega import FAINT, Figure, Spec, colours, envelope, lines, name_text, rounded, scaled

_POINTS = 600
"""Largest number of units of a mix that are drawn."""


def units_figure(runs: Mapping[str, PipelineRecord]) -> Figure | None:
    """Draw the units of each run by its name, and a line for its rate at the time of a unit's frames; None without
    units."""
    viewers = {name: viewer for name, record in runs.items() if (viewer := viewer_of(record)) and viewer.units}
    if not viewers:
        return None
    unit = next(iter(runs.values())).unit
    data = [point for name, viewer in viewers.items() for point in _points(name, viewer.units)]
    frames = median(stamp.frames for viewer in viewers.values() for stamp in viewer.units)
    rates = sorted({viewer.how.fps for viewer in viewers.values()})
    limits = [{"due": rounded(1e3 * frames / rate), "fps": f"{rate:g} fps"} for rate in rates]
    colour_of = colours(viewers)
    x: Spec = {"field": "minute", "type": "quantitative", "title": "minutes"}
    y: Spec = {"field": "ms", "type": "quantitative", "title": f"ms a {unit}", "scale": {"zero": True}}
    due: Spec = {**y, "field": "due"}
    tooltip = [{"field": field} for field in ("mix", "minute", "ms")]
    layers = [
        {
            "data": {"values": data},
            **lines(
                {
                    "x": x,
                    "y": y,
                    "stroke": scaled("mix", {name_text(name): colour for name, colour in colour_of.items()}),
                    "tooltip": tooltip,
                },
                strokeWidth=0.9,
            ),
        },
        {
            "data": {"values": limits},
            "mark": {"type": "rule", "stroke": FAINT, "strokeDash": [5, 4]},
            "encoding": {"y": due},
        },
        {
            "data": {"values": limits},
            "mark": {"type": "text", "align": "right", "dy": -5, "x": "width"},
            "encoding": {"y": due, "text": {"field": "fps"}},
        },
    ]
    caption = f"dashed: the time that a frame rate leaves a {unit}"
    return Figure("deadline", "Units over minutes", caption, {"height": 240, "layer": layers})


def _points(name: str, units: Sequence[Stamp]) -> list[Spec]:
    kept, _ = envelope([stamp.ns for stamp in units], _POINTS)
    return [
        {
            "mix": name_text(name),
            "minute": rounded((units[place].submit_ns - units[0].submit_ns) / MINUTE_NS),
            "ms": rounded(units[place].ns / 1e6),
        }
        for place in kept
    ]
