"""The figure of sustained runs: the time of each unit over minutes, beside the time that frame rates leave it."""

from collections.abc import Mapping, Sequence
from statistics import median

from bakeoff.record.deadline import MINUTE_NS, Stamp
from bakeoff.report.figures.vega import FAINT, Figure, Spec, colours, envelope, lines, name_text, rounded, scaled

_POINTS = 600
"""Largest number of units of a mix that are drawn."""


def units_figure(runs: Mapping[str, Sequence[Stamp]], rates: Sequence[float], unit: str) -> Figure | None:
    """Draw the units of each run by its name, and a line for each rate at the time of a unit's frames; None without
    units."""
    held = {name: units for name, units in runs.items() if units}
    if not held:
        return None
    data = [point for name, units in held.items() for point in _points(name, units)]
    frames = median(stamp.frames for units in held.values() for stamp in units)
    slowest = max(point["ms"] for point in data)
    shown = [rate for rate in rates if 1e3 * frames / rate <= 1.5 * slowest] or [max(rates)]
    limits = [{"due": rounded(1e3 * frames / rate), "fps": f"{rate:g} fps"} for rate in shown]
    colour_of = colours(held)
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
