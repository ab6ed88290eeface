"""Figures of pipelines: where a unit's time goes, units over time, and mixes beside their baseline line by line."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from bakeoff.record.account import account_lines
from bakeoff.record.frames import figures
from bakeoff.report.figures.vega import (
    BETWEEN,
    INK,
    Figure,
    Spec,
    colours,
    envelope,
    lines,
    name_text,
    points,
    rounded,
    scaled,
)
from bakeoff.report.format import milliseconds, shorten
from bakeoff.report.pipelines import MixRow

_POINTS = 400
"""Largest number of steady units of a mix that are drawn."""
_LABELLED, _REASON = 0.05, 90
"""Least share of the longest bar for a segment to show its own share, and most characters of a reason."""
_CROSS = "M-1,-1L1,1M-1,1L1,-1"
_LOOKS: Final[Mapping[str, tuple[str, int]]] = {
    "opening": ("square", 50),
    "filling": ("circle", 45),
    "steady": ("circle", 12),
    "moved": (_CROSS, 90),
}
"""Shape and size of a unit's point by its kind; `moved` is a unit in which something was compiled."""


def drawings(rows: Sequence[MixRow]) -> list[Figure]:
    """Return the figures of these mixes that have something to show."""
    made = (waterfall_figure(rows), units_figure(rows), lines_figure(rows))
    return [figure for figure in made if figure is not None]


def waterfall_figure(rows: Sequence[MixRow]) -> Figure | None:
    """Draw the mean steady unit of each mix as a bar of its lines, a line in the same colour in every bar.

    The time is written behind each bar; a mix without steady units has its reason instead. None if no mix has any.
    """
    bars = {row.name: account_lines(row.record) for row in rows if figures(row.record) is not None}
    if not bars:
        return None
    every = [line for bar in bars.values() for line in bar]
    colour_of = {**colours(line.name for line in every if line.kind == "phase"), **BETWEEN}
    of_line = {line.name: colour_of[line.name if line.kind == "phase" else line.kind] for line in every}
    lengths = {name: sum(line.ms for line in bar) for name, bar in bars.items()}
    longest = max(lengths.values())
    segments = []
    for name, bar in bars.items():
        start = 0.0
        for line in bar:
            segments.append(
                {
                    "mix": name_text(name),
                    "phase": name_text(line.name),
                    "from": rounded(start),
                    "to": rounded(start + line.ms),
                    "middle": rounded(start + line.ms / 2),
                    "ms": rounded(line.ms),
                    "share": line.share if line.ms >= _LABELLED * longest else "",
                    "ink": _ink(of_line[line.name]),
                }
            )
            start += line.ms
    ends = [{"mix": name_text(row.name), **_end(row, lengths.get(row.name))} for row in rows]
    x: Spec = {
        "type": "quantitative", "title": f"ms a {rows[0].record.unit}",
        "scale": {"domain": [0, rounded(1.2 * longest)], "nice": False},
    }  # fmt: skip
    y: Spec = {
        "field": "mix", "type": "nominal", "title": None, "sort": [end["mix"] for end in ends],
        "axis": {"grid": False, "ticks": False},
    }  # fmt: skip
    layers = [
        {
            "data": {"values": segments},
            "mark": {"type": "bar", "height": {"band": 0.66}, "stroke": "white", "strokeWidth": 0.6},
            "encoding": {
                "x": {"field": "from", **x}, "x2": {"field": "to"}, "tooltip": _tooltip("mix", "phase", "ms"),
                "color": scaled("phase", {name_text(name): colour for name, colour in of_line.items()}),
            },
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
    caption = "the mean steady unit from its start to its end, with glue, copies and what has no name"
    return Figure("waterfall", "Phases of a unit", caption, spec)


def _end(row: MixRow, ms: float | None) -> dict[str, str | float]:
    """Return the text behind a mix's bar or, if `ms` is None, in place of the bar."""
    status = row.record.status
    if ms is None:
        reason = row.record.measurement.reason or "no reason is stored"
        return {"end": 0.0, "text": shorten(f"{status}: {reason}", _REASON)}
    return {"end": rounded(ms), "text": f"{milliseconds(ms)} ms{'' if status == 'ok' else f' {status}'}"}


def _ink(colour: str) -> str:
    """Return black or white, whichever can be read on a colour `#rrggbb` (its luma by ITU-R BT.601)."""
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return INK if 0.299 * red + 0.587 * green + 0.114 * blue > 150 else "white"


def _tooltip(*fields: str) -> list[Spec]:
    return [{"field": field} for field in fields]


def units_figure(rows: Sequence[MixRow]) -> Figure | None:
    """Draw the wall time of every unit of each mix in the order they ran; None if no mix has units."""
    colour_of = colours(row.name for row in rows if row.record.measurement.units is not None)
    if not colour_of:
        return None
    unit = rows[0].record.unit
    x: Spec = {"field": "unit", "type": "quantitative", "title": f"{unit} of the run", "axis": {"tickMinStep": 1}}
    y: Spec = {"field": "ms", "type": "quantitative", "title": f"ms a {unit}", "scale": {"zero": True}}
    drawn = {"x": x, "y": y, "stroke": scaled("mix", {name_text(name): colour for name, colour in colour_of.items()})}
    shape = scaled("kind", {kind: shape for kind, (shape, _) in _LOOKS.items()})
    size = scaled("kind", {kind: size for kind, (_, size) in _LOOKS.items()})
    looks = {
        "shape": {**shape, "legend": None},
        "size": {**size, "type": "ordinal", "legend": None},
        "tooltip": _tooltip("mix", "unit", "ms", "kind", "compiled"),
    }
    layers = [lines(drawn, strokeWidth=0.9), points({**drawn, **looks})]
    data = [point for row in rows for point in _points(row, colour_of.get(row.name, ""))]
    caption = "square: opening, hollow: filling, dot: steady, cross: compiled or captured in it"
    return Figure("units", "Units over time", caption, {"height": 220, "data": {"values": data}, "layer": layers})


def _points(row: MixRow, colour: str) -> Iterator[Spec]:
    """Yield the points of a mix's units; many steady ones are thinned, but keep their spikes."""
    units = row.record.measurement.units
    if units is None:
        return
    steady = [place for place, kind in enumerate(units.kinds) if kind == "steady"]
    kept, _ = envelope([units.wall_ns[place] for place in steady], _POINTS)
    shown = {steady[place] for place in kept}
    for place, kind in enumerate(units.kinds):
        moved = units.moved.get(str(place), ())
        if kind != "steady" or place in shown or moved:
            yield {
                "mix": name_text(row.name),
                "unit": place,
                "ms": rounded(units.wall_ns[place] / 1e6),
                "kind": "moved" if moved else kind,
                "compiled": name_text(", ".join(moved)),
                "fill": "transparent" if kind == "filling" else colour,
            }


def lines_figure(rows: Sequence[MixRow]) -> Figure | None:
    """Draw the lines of the account of each mix of the newest run beside those of its baseline.

    None if no mix took turns with a baseline.
    """
    newest = max((row.record for row in rows if row.gain is not None), key=lambda each: each.created, default=None)
    found = [row for row in rows if row.gain is not None and newest is not None and row.record.run == newest.run]
    if not found:
        return None
    times: dict[str, dict[str, float]] = {found[0].against: {}}
    for row in found:
        for line in row.gain.lines if row.gain is not None else ():
            times[row.against][line.name] = line.before_ms
            times.setdefault(row.name, {})[line.name] = line.after_ms
    before = times[found[0].against]
    data = [
        {
            "mix": name_text(mix),
            "line": name_text(name),
            "ms": rounded(own.get(name, 0.0)),
            "change": rounded(own.get(name, 0.0) - ms),
        }
        for mix, own in times.items()
        for name, ms in before.items()
    ]
    colour_of = colours(times)
    spec = {
        "height": max(160, (14 * len(times) + 10) * len(before)),
        "data": {"values": data},
        "mark": {"type": "bar"},
        "encoding": {
            "x": {"field": "ms", "type": "quantitative", "title": f"ms a {rows[0].record.unit}"},
            "y": {"field": "line", "type": "nominal", "title": None, "sort": [name_text(name) for name in before]},
            "yOffset": {"field": "mix", "type": "nominal", "sort": [name_text(mix) for mix in times]},
            "fill": scaled("mix", {name_text(mix): colour_of[mix] for mix in times}),
            "tooltip": _tooltip("mix", "line", "ms", "change"),
        },
    }
    caption = "mean steady unit of the baseline and of each mix that took turns with it"
    return Figure("lines", "Before and after, line by line", caption, spec)
