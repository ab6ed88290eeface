"""The account of a unit as bars, one below the other, each from where the one before it ends."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bakeoff.report.figures.vega import INK, Spec, name_text, rounded

_OPACITY: Final[Mapping[str, float]] = {"": 1.0, "busy": 1.0, "idle": 0.35, "not visible": 0.12}


@dataclass(frozen=True, slots=True)
class AccountLine:
    """A line of the account."""

    name: str
    colour: str
    share: str
    parts: Mapping[str, float]
    """Milliseconds of the unit by what the device does: `busy`, `idle`, `not visible`; "" where that is not told."""


def account_spec(lines: Sequence[AccountLine], title: str) -> Spec:
    """The specification; `title` is that of the time axis."""
    data: list[Spec] = []
    ends: list[Spec] = []
    at = 0.0
    for line in lines:
        about, ms = {"phase": name_text(line.name), "share": line.share}, sum(line.parts.values())
        ends.append({**about, "to": rounded(at + ms), "text": f"{ms:.2f} ms, {line.share}"})
        for kind, ms in line.parts.items():
            bar = {"kind": kind, "from": rounded(at), "to": rounded(at + ms), "ms": rounded(ms), "colour": line.colour}
            data.append({**about, **bar})
            at += ms
    domain = [0, rounded(1.2 * at) or 1]
    kinds = [kind for kind in _OPACITY if any(each["kind"] == kind for each in data)]
    x: Spec = {
        "type": "quantitative", "title": title, "axis": {"tickCount": 10}, "scale": {"domain": domain, "nice": False}
    }  # fmt: skip
    opacity = {
        "field": "kind", "type": "ordinal",
        "scale": {"domain": kinds, "range": [_OPACITY[kind] for kind in kinds]},
        "legend": {"symbolFillColor": INK, "symbolType": "square"} if any(kinds) else None,
    }  # fmt: skip
    fill = {"field": "colour", "type": "nominal", "scale": None}
    bars = {
        "data": {"values": data},
        "mark": {"type": "bar", "height": {"band": 0.7}},
        "encoding": {
            "x": {"field": "from", **x}, "x2": {"field": "to"}, "fill": fill, "stroke": fill, "opacity": opacity,
            "tooltip": [{"field": field} for field in ("phase", "kind", "ms", "share")],
        },
    }  # fmt: skip
    texts = {
        "data": {"values": ends},
        "mark": {"type": "text", "align": "left", "dx": 6, "color": INK},
        "encoding": {"x": {"field": "to", **x}, "text": {"field": "text"}},
    }
    y: Spec = {"field": "phase", "type": "nominal", "title": None, "sort": None, "axis": {"grid": False}}
    return {"height": 24 * len(lines), "encoding": {"y": y}, "layer": [bars, texts]}
