"""Figures of pipelines: where a unit's time goes, and units over time."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from bakeoff.record.account import account_lines
from bakeoff.record.frames import figures
from bakeoff.report.figures.vega import (
    BETWEEN,
    Figure,
    Spec,
    beside,
    colours,
    envelope,
    layer,
    lines,
    name_text,
    points,
    quantity,
    rounded,
    scaled,
    tooltip,
)
from bakeoff.report.format import milliseconds, shorten
from bakeoff.report.pipelines import MixRow

_POINTS = 200
"""Largest number of steady units of a mix that are drawn."""
_REASON = 90
"""Most characters of a reason."""
_CROSS = "M-1,-1L1,1M-1,1L1,-1"
_SHAPES: Final = {"opening": "square", "filling": "circle", "steady": "circle", "moved": _CROSS}
"""Shape of a unit's point by its kind; `moved` is a unit in which something was compiled."""


def drawings(rows: Sequence[MixRow]) -> list[Figure]:
    """Return the figures of these mixes that have something to show."""
    made = (waterfall_figure(rows), units_figure(rows))
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
                    "ms": rounded(line.ms),
                    "share": line.share,
                }
            )
            start += line.ms
    ends = [{"mix": name_text(row.name), **_end(row, lengths.get(row.name))} for row in rows]
    scale = {"domain": [0, rounded(1.2 * longest)], "nice": False}
    x = partial(quantity, title=f"ms a {rows[0].record.unit}", scale=scale)
    y: Spec = {
        "field": "mix", "type": "nominal", "title": None, "sort": [end["mix"] for end in ends],
        "axis": {"grid": False, "ticks": False},
    }  # fmt: skip
    colour = scaled("phase", {name_text(name): colour for name, colour in of_line.items()})
    bar_of = {"x": x("from"), "x2": {"field": "to"}, "tooltip": tooltip("mix", "phase", "ms", "share"), "color": colour}
    layers = [
        layer(segments, "bar", bar_of, height={"band": 0.66}, stroke="white", strokeWidth=0.6),
        beside(ends, x("end")),
    ]
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


def units_figure(rows: Sequence[MixRow]) -> Figure | None:
    """Draw the wall time of every unit of each mix in the order they ran; None if no mix has units."""
    colour_of = colours(row.name for row in rows if row.record.measurement.units is not None)
    if not colour_of:
        return None
    unit = rows[0].record.unit
    x = quantity("unit", f"{unit} of the run", axis={"tickMinStep": 1})
    y = quantity("ms", f"ms a {unit}", scale={"zero": True})
    drawn = {"x": x, "y": y, "stroke": scaled("mix", {name_text(name): colour for name, colour in colour_of.items()})}
    looks = {
        "shape": {**scaled("kind", _SHAPES), "legend": None},
        "tooltip": tooltip("mix", "unit", "ms", "kind", "compiled"),
    }
    layers = [lines(drawn, strokeWidth=0.9), points({**drawn, **looks})]
    data = [point for row in rows for point in _points(row)]
    caption = "square: opening, hollow: filling, dot: steady, cross: compiled or captured in it"
    return Figure("units", "Units over time", caption, {"height": 220, "data": {"values": data}, "layer": layers})


def _points(row: MixRow) -> Iterator[Spec]:
    """Yield the points of a mix's units; many steady ones are thinned, but keep their spikes."""
    units = row.record.measurement.units
    if units is None:
        return
    steady = [place for place, kind in enumerate(units.kinds) if kind == "steady"]
    kept, _ = envelope([units.wall_ns[place] for place in steady], _POINTS)
    shown = {steady[place] for place in kept}
    for place, kind in enumerate(units.kinds):
        moved = units.moved.get(str(place), ())
        if kind in ("opening", "filling") or place in shown or moved:
            yield {
                "mix": name_text(row.name),
                "unit": place,
                "ms": rounded(units.wall_ns[place] / 1e6),
                "kind": "moved" if moved else kind,
                "compiled": name_text(", ".join(moved)),
                "fill": int(kind != "filling"),
            }
