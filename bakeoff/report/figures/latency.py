"""Latency by variant as bars: the median with its interval, the middle half and p99 of the calls, and the floor."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bakeoff.machine.floors import Ceiling
from bakeoff.models.words import counted
from bakeoff.record.floor import floor
from bakeoff.record.schema import Record
from bakeoff.record.statistics import Summary
from bakeoff.record.store import Stored
from bakeoff.report.columns import latency_text
from bakeoff.report.figures.style import Style, styles
from bakeoff.report.figures.vega import FAINT, INK, Figure, Spec, end_of, name_text, rounded
from bakeoff.report.groups import name_of

_ROW = 22
"""Pixels of a row."""
_ROOM = 1.9
"""The panel is so many times as wide as the longest row that is ranked, behind which its figures are written."""


_Row = tuple[Record, Summary, float | None]
"""A record, the figures of its latency clock, and its floor in milliseconds."""


def figure(rows: Sequence[Stored], ceilings: Sequence[Ceiling] | None = None) -> Figure | None:
    """Bars of the rows that have figures, ranked ones first, the fastest first; the others are counted. None where
    none has.

    Floors are computed from `ceilings`, by default from each record's own.
    """
    timed: list[_Row] = []
    for record in (entry.record for entry in rows):
        if record.latency is not None:
            bound = floor(record, ceilings)
            timed.append((record, record.latency, bound.ms if bound is not None else None))
    if not timed:
        return None
    timed.sort(key=lambda row: (row[0].status != "ok", row[1].median_ms))
    floors = ""
    if any(ms is not None for *_, ms in timed):
        above = any(record.status == "ok" and (ms or 0.0) > figures.median_ms for record, figures, ms in timed)
        floors = ", long mark: floor" + "; right of a median that is ok: the ceilings are too low" * above
    caption = f"bar and dot: median, whisker: to p99, in the dot: its 95 % interval, band: middle half of calls{floors}"
    spec = _spec(timed, styles(entry.record for entry in rows), len(rows) - len(timed))
    return Figure("latency", "Latency of a synchronised call", caption, spec)


def _spec(rows: Sequence[_Row], style: Mapping[str, Style], left_out: int) -> Spec:
    end = end_of((row[0].status, _end_ms(row)) for row in rows) or 1.0
    data = [_datum(row, style[name_of(row[0])], end) for row in rows]
    scale = {"domain": [0, rounded(_ROOM * end)], "nice": False, "clamp": True}
    beyond = f"datum.value > {end}"
    inside = {"condition": {"test": beyond, "value": 0}, "value": 1}
    title = "ms a call" + (f"; left out: {counted(left_out, 'variant')} without figures" if left_out else "")
    x = {
        "type": "quantitative", "title": title, "scale": scale,
        "axis": {
            "domain": False, "titleAnchor": "start", "gridOpacity": inside, "tickOpacity": inside,
            "labelExpr": f"{beyond} ? '' : datum.label",
        },
    }  # fmt: skip

    def layer(mark: str, field: str, to: str = "", text: str = "", **look: Any) -> Spec:
        more = {"x2": {"field": to}} if to else {}
        more |= {"text": {"field": text}} if text else {}
        return {"mark": {"type": mark, **look}, "encoding": {"x": {"field": field, **x}, **more}}

    bars = layer("bar", "median", height={"band": 0.7})
    bars["encoding"] |= {
        "color": {"field": "colour", "type": "nominal", "scale": None},
        "opacity": {"field": "opacity", "type": "quantitative", "scale": None},
        "tooltip": [{"field": "name"}, {"field": "text"}, {"field": "p99_ms", "title": "p99 ms"}],
    }
    return {
        "height": _ROW * len(rows),
        "data": {"values": data},
        "encoding": {
            "y": {
                "field": "name", "type": "nominal", "sort": None, "title": None, "axis": {"grid": False, "ticks": False}
            }
        },
        "layer": [
            bars,
            layer("bar", "quarter", "three_quarters", height={"band": 0.34}, color=INK, opacity=0.22),
            layer("rule", "high", "p99", color=FAINT, strokeWidth=1),
            layer("rule", "low", "high", color=INK, strokeWidth=2.4),
            layer("point", "median", color=INK, filled=True, size=22, opacity=1),
            layer("tick", "p99", color=FAINT, height=10, thickness=1.6),
            layer("tick", "floor", color=INK, height=18, thickness=1.8),
            layer("text", "end", text="text", align="left", dx=6, color=INK),
        ],
    }  # fmt: skip


def _end_ms(row: _Row) -> float:
    """How far a row reaches."""
    return max(row[1].p99_ms, row[2] or 0.0)


def _datum(row: _Row, style: Style, end_ms: float) -> dict[str, Any]:
    """What is drawn of a row; one that is not ranked is cut off where the longest that is ends."""
    record, figures, floor_ms = row
    clock = record.measurement.latency
    assert clock is not None
    quarter, three_quarters = np.quantile(clock.samples_ns, (0.25, 0.75)) / 1e6
    found = {
        "median": figures.median_ms, "low": figures.low_ms, "high": figures.high_ms, "p99": figures.p99_ms,
        "floor": floor_ms, "end": _end_ms(row), "quarter": quarter, "three_quarters": three_quarters,
    }  # fmt: skip
    status = "" if record.status == "ok" else f" {record.status}"
    cut = ", cut off at the axis' end" if _end_ms(row) > end_ms * 1.001 else ""
    return {
        "name": name_text(name_of(record)),
        "text": f"{latency_text(clock)} ms{status}{cut}",
        "colour": style.colour,
        "opacity": 0.65 if record.status == "ok" else 0.25,
        "p99_ms": rounded(figures.p99_ms),
        **{key: rounded(min(value, end_ms)) for key, value in found.items() if value is not None},
    }
