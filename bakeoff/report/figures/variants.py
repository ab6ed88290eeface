"""Figures of a table's variants: latency as bars with the floor, call times in their order, speed against error."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bakeoff.machine.floors import Ceiling
from bakeoff.models.words import counted
from bakeoff.record.floor import floor
from bakeoff.record.schema import Record
from bakeoff.record.statistics import Summary
from bakeoff.record.store import Stored
from bakeoff.report.columns import latency_text, peak_mib, worst_error
from bakeoff.report.figures.vega import (
    FAINT,
    INK,
    Figure,
    Spec,
    Style,
    end_of,
    envelope,
    layer,
    lines,
    looks,
    name_text,
    points,
    quantity,
    rounded,
    styles,
    tooltip,
)
from bakeoff.report.groups import name_of

_ROW = 22
"""Height of a row in pixels."""
_ROOM = 1.9
"""Width of the panel over that of the longest ranked row; the figures are written in the rest."""
_Row = tuple[Record, Summary, float | None]
"""A record, the figures of its latency clock, and its floor in milliseconds."""
_WARMUP_POINTS, _TIMED_POINTS = 40, 160


def bars(rows: Sequence[Stored], ceilings: Sequence[Ceiling] | None = None) -> Figure | None:
    """Draw rows that have figures as bars, ok ones first, the fastest first; None if none has.

    Rows without figures are counted. Floors are computed from `ceilings`, by default from each record's own.
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
    """Return the bars' specification; `left_out` is the number of rows without figures, which the axis title states."""
    end = end_of((row[0].status, _end_ms(row)) for row in rows) or 1.0
    data = [_datum(row, style[name_of(row[0])], end) for row in rows]
    scale = {"domain": [0, rounded(_ROOM * end)], "nice": False, "clamp": True}
    beyond = f"datum.value > {end}"
    inside = {"condition": {"test": beyond, "value": 0}, "value": 1}
    title = "ms a call" + (f"; left out: {counted(left_out, 'variant')} without figures" if left_out else "")
    axis = {
        "domain": False, "titleAnchor": "start", "gridOpacity": inside, "tickOpacity": inside,
        "labelExpr": f"{beyond} ? '' : datum.label",
    }  # fmt: skip

    def drawn(mark: str, field: str, more: Spec | None = None, **look: Any) -> Spec:
        x = quantity(field, title, scale=scale, axis=axis)
        return {"mark": {"type": mark, **look}, "encoding": {"x": x, **(more or {})}}

    to_high, to_quarter = {"x2": {"field": "high"}}, {"x2": {"field": "three_quarters"}}
    colour = {
        "color": {"field": "colour", "type": "nominal", "scale": None},
        "opacity": quantity("opacity", scale=None),
        "tooltip": [*tooltip("name", "text"), {"field": "p99_ms", "title": "p99 ms"}],
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
            drawn("bar", "median", colour, height={"band": 0.7}),
            drawn("bar", "quarter", to_quarter, height={"band": 0.34}, color=INK, opacity=0.22),
            drawn("rule", "p99", to_high, color=FAINT, strokeWidth=1),
            drawn("rule", "low", to_high, color=INK, strokeWidth=2.4),
            drawn("point", "median", color=INK, filled=True, size=22, opacity=1),
            drawn("tick", "p99", color=FAINT, height=10, thickness=1.6),
            drawn("tick", "floor", color=INK, height=18, thickness=1.8),
            drawn("text", "end", {"text": {"field": "text"}}, align="left", dx=6, color=INK),
        ],
    }  # fmt: skip


def _end_ms(row: _Row) -> float:
    """Return the end of a row, in milliseconds: its 99th percentile (of few samples, the 90th), interval or floor."""
    return max(row[1].p99_ms or row[1].p90_ms, row[1].high_ms, row[2] or 0.0)


def _datum(row: _Row, style: Style, end_ms: float) -> dict[str, Any]:
    """Return the values drawn in a row, cut off at `end_ms`, at which the longest ranked row ends."""
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
        "p99_ms": figures.p99_ms and rounded(figures.p99_ms),
        **{key: rounded(min(value, end_ms)) for key, value in found.items() if value is not None},
    }


def timeline(rows: Sequence[Stored]) -> Figure | None:
    """Draw the call times of each row that has samples as a line, ok rows first, the fastest first; None without any.

    Call 1 is the first after the warm-up. Long lines are thinned to 200 points that keep their spikes. The axis is
    logarithmic if call times differ by more than a factor of ten.
    """
    found = []
    for record in (entry.record for entry in rows):
        clock = record.measurement.latency
        if clock is not None and clock.figures is not None:
            before, warmup_ms = envelope(clock.warmup_ns, _WARMUP_POINTS)
            after, timed_ms = envelope(clock.samples_ns, _TIMED_POINTS)
            numbers = [index - len(clock.warmup_ns) + 1 for index in before] + [index + 1 for index in after]
            place = record.status != "ok", clock.figures.median_ms
            found.append((place, name_of(record), numbers, [*warmup_ms, *timed_ms]))
    if not found:
        return None
    found.sort(key=lambda each: each[0])
    values = [value for *_, ms in found for value in ms]
    kind = "log" if max(values) > 10 * min(values) > 0 else "linear"
    style = styles(entry.record for entry in rows)
    data = [
        {"name": name_text(name), "call": numbers, "ms": [float(f"{each:.4g}") for each in ms]}
        for _, name, numbers, ms in found
    ]
    title = "call; 1 is the first after the warm-up"
    look = looks({name: style[name] for _, name, *_ in found})
    look["stroke"]["legend"] = {"symbolType": "stroke", "symbolSize": 400, "rowPadding": -6}
    encoding = {
        "x": quantity("call", title),
        "y": quantity("ms", "ms a call", scale={"type": kind}),
        **look,
        "tooltip": tooltip("name", "call", "ms"),
    }
    calls = {
        "transform": [{"flatten": ["call", "ms"]}],
        "params": [{"name": "zoom", "select": {"type": "interval", "encodings": ["x"]}, "bind": "scales"}],
        **lines(encoding, clip=True),
    }
    shaded = {"from": min(numbers[0] for *_, numbers, _ in found) - 0.5, "to": 0.5}
    at = {"x": quantity("from", title), "x2": {"field": "to"}}
    warmup = layer([shaded], "rect", at, color="#788caa", opacity=0.16)
    spec = {"height": 260, "data": {"values": data}, "layer": [warmup, calls]}
    return Figure("timeline", "Calls in the order taken", "warm-up shaded; drag and scroll to zoom", spec)


def tradeoff(rows: Sequence[Stored]) -> Figure | None:
    """Draw error by median as points whose area is the peak memory, ok rows first, the fastest first.

    None if no row has a median and an error.
    """
    found = [
        (record, record.latency.median_ms, error)
        for record in (entry.record for entry in rows)
        if record.latency is not None and (error := worst_error(record)) is not None
    ]
    if not found:
        return None
    found.sort(key=lambda each: (each[0].status != "ok", each[1]))
    end = end_of((record.status, ms) for record, ms, _ in found)
    beyond = ", at the right edge: beyond it" if any(ms > end * 1.001 for _, ms, _ in found) else ""
    caption = f"left and low is better; the area is the peak memory; hollow: not ok{beyond}"
    least = min((error for *_, error in found if error > 0), default=1e-6)
    exact = 10.0 ** (math.floor(math.log10(least)) - 1)  # an error of 0 has no logarithm
    label = f"datum.value <= {exact} ? 'exact' : format(datum.value, '~g')"
    style = styles(entry.record for entry in rows)
    data = [
        {
            "name": name_text(name_of(record)),
            "ms": rounded(ms),
            "error": rounded(error) or exact,
            "error_text": f"{error:.2e}",
            "MiB": round(peak_mib(record) or 0.0),
            "status": record.status,
            "fill": 0.7 * (record.status == "ok"),
        }
        for record, ms, error in found
    ]
    scale = {"domain": [0, rounded(1.05 * end)], "nice": False, "clamp": True}
    axis = {"labelExpr": label, "tickCount": 6}
    encoding = {
        "x": quantity("ms", "median ms a call", scale=scale),
        "y": quantity("error", "relative L2 error", scale={"type": "log", "padding": 16}, axis=axis),
        "size": quantity("MiB", scale={"range": [40, 700]}, legend=None),
        **looks({name: style[name] for name in (name_of(record) for record, *_ in found)}),
        "tooltip": tooltip("name", "ms", "error_text", "MiB", "status"),
    }
    spec = {"height": 280, "data": {"values": data}, **points(encoding)}
    return Figure("tradeoff", "Speed, error, memory", caption, spec)
