"""The figure of a rollout: how a mix drifts from the reference loop when it runs free, beside equivalents of eager."""

from bakeoff.record.pipeline import Rollout
from bakeoff.record.rollout import MIX
from bakeoff.report.figures.vega import (
    FAINT,
    Figure,
    Spec,
    colours,
    layer,
    lines,
    name_text,
    quantity,
    rounded,
    scaled,
    tooltip,
)


def figure(rollout: Rollout, unit: str) -> Figure | None:
    """Draw the decibels of each output by unit, the mix thick and the other runs thin; None without a finite error."""
    data = [
        {"output": name_text(curve.output), "run": name_text(curve.run), "unit": place, "db": rounded(db)}
        for curve in rollout.curves
        for place, db in enumerate(curve.decibels)
        if db is not None
    ]
    if not data:
        return None
    colour_of = {name_text(name): colour for name, colour in colours(each.output for each in rollout.curves).items()}
    encoding: Spec = {
        "x": quantity("unit", unit, axis={"tickMinStep": 1}),
        "y": quantity("db", "dB", scale={"zero": True}),
        "stroke": scaled("output", colour_of),
        "detail": {"field": "run", "type": "nominal"},
        "tooltip": tooltip("output", "run", "unit", "db"),
    }
    threshold = {"threshold": rounded(rollout.horizon_db)}
    layers = [
        {**lines(encoding, strokeWidth=2.4), "transform": [{"filter": {"field": "run", "equal": MIX}}]},
        {**lines(encoding, opacity=0.35), "transform": [{"filter": {"not": {"field": "run", "equal": MIX}}}]},
        layer([threshold], "rule", {"y": quantity("threshold")}, color=FAINT, strokeDash=[4, 4]),
    ]
    caption = "PSNR of pictures, else signal to error; thick: the mix, thin: eager and single slots, dashed: threshold"
    spec = {"height": 260, "data": {"values": data}, "layer": layers}
    return Figure("rollout", "Running free", caption, spec)
