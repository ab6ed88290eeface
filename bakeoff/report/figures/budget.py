"""Figure of a budget: time, memory and error of the mixes that no other surpasses, and of the candidates."""

from collections.abc import Mapping

from bakeoff.record.pipeline import Budget, Forecast
from bakeoff.report.figures.vega import FAINT, Figure, Spec, rounded
from bakeoff.report.format import MIB

_NO_DB, _MOST_DB = 0.0, 120.0
"""Ends of the colours' scale: an unknown SQNR, and one that more decibels do not change."""


def front_figure(budget: Budget, names: Mapping[str, str], unit: str) -> Figure | None:
    """Draw each mix with a known memory by its time; the colour is its SQNR, a cross a mix that misses a limit.

    `names` has the name of each drawn mix by its slots. None without any such mix.
    """
    front = {each.slots for each in budget.front}
    candidates = {each.slots for each in budget.candidates}
    shown = {each.slots: each for each in (*budget.candidates, *budget.front) if each.slots in names}
    data = [
        _point(each, names[slots], each.memory_bytes, slots in front, slots in candidates)
        for slots, each in shown.items()
        if each.memory_bytes is not None
    ]
    if not data:
        return None
    x: Spec = {"field": "ms", "type": "quantitative", "title": f"predicted ms a {unit}", "scale": {"zero": False}}
    y: Spec = {"field": "mib", "type": "quantitative", "title": "predicted peak MiB", "scale": {"zero": False}}
    colour: Spec = {
        "field": "db", "type": "quantitative", "title": "SQNR dB", "legend": {"title": "SQNR dB"},
        "scale": {"domain": [_NO_DB, _MOST_DB], "scheme": "viridis", "clamp": True},
    }  # fmt: skip
    shape: Spec = {
        "field": "limits", "type": "nominal",
        "scale": {"domain": ["met", "missed"], "range": ["circle", "M-1,-1L1,1M-1,1L1,-1"]},
    }  # fmt: skip
    tooltip = [{"field": field} for field in ("mix", "slots", "ms", "mib", "db", "limits")]
    layers: list[Spec] = [
        {
            "transform": [{"filter": "datum.front"}],
            "mark": {"type": "line", "color": FAINT, "strokeWidth": 1, "interpolate": "step-after"},
            "encoding": {"x": x, "y": y, "order": {"field": "ms", "type": "quantitative"}},
        },
        {
            "mark": {"type": "point", "size": 90, "strokeWidth": 2, "opacity": 1, "filled": False},
            "encoding": {"x": x, "y": y, "color": colour, "shape": shape, "tooltip": tooltip},
        },
        {
            "mark": {"type": "text", "dx": 9, "align": "left", "fontSize": 10},
            "encoding": {"x": x, "y": y, "text": {"field": "mix"}},
        },
    ]
    for limit in budget.objective.limits:
        if limit.figure == "fps":
            ends: Spec = {"x": {"datum": rounded(budget.frames * 1000 / limit.bound), "type": "quantitative"}}
        elif limit.figure == "memory":
            ends = {"y": {"datum": rounded(limit.bound / MIB), "type": "quantitative"}}
        else:
            continue
        layers.append({"mark": {"type": "rule", "color": FAINT, "strokeDash": [4, 3]}, "encoding": ends})
    caption = "predicted from records; circle: meets the limits, cross: misses one, line: the Pareto front"
    spec = {"height": 300, "data": {"values": data}, "layer": layers}
    return Figure("front", "Time, memory and error of the mixes", caption, spec)


def _point(each: Forecast, name: str, memory_bytes: int, in_front: bool, meets: bool) -> Spec:
    return {
        "mix": name,
        "slots": each.slots,
        "ms": rounded(each.ms),
        "mib": rounded(memory_bytes / MIB),
        "db": rounded(min(each.sqnr_db, _MOST_DB)) if each.sqnr_db is not None else _NO_DB,
        "front": in_front,
        "limits": "met" if meets else "missed",
    }
