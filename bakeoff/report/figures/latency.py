"""Latency by variant as bars: the median with its interval, the middle half and p99 of the calls, and the floor."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bakeoff.machine.floors import Ceiling
from bakeoff.models.words import counted
from bakeoff.record.floor import floor
from bakeoff.record.schema import Status
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


@dataclass(frozen=True, slots=True)
class LatencyRow:
    """A variant; without samples it has no figures."""

    name: str
    status: Status
    figures: Summary | None
    text: str
    """The median with its interval, or both modes; "" without samples."""
    floor_ms: float | None
    quarters_ms: tuple[float, ...]
    """Between which the middle half of the timed calls lies; none without calls."""
    style: Style

    @property
    def end_ms(self) -> float:
        """How far it reaches."""
        return max(self.figures.p99_ms if self.figures is not None else 0.0, self.floor_ms or 0.0)

    @property
    def above(self) -> bool:
        """Whether it is above 100 % of its floor."""
        return self.status == "ok" and (self.floor_ms or 0.0) > _median_ms(self)


def floor_text(rows: Iterable[LatencyRow]) -> str:
    """What a figure says of the floors of these rows."""
    above = any(row.above for row in rows)
    return "floor; right of a median that is ok: the ceilings are too low" if above else "floor"


def latency(rows: Sequence[Stored], ceilings: Sequence[Ceiling] | None = None) -> tuple[LatencyRow, ...]:
    """The rows that are ranked by their median, fastest first; then the others with figures, then those without.

    Floors are computed from `ceilings`, by default from each record's own.
    """
    style = styles(entry.record for entry in rows)
    found = (_row(entry, ceilings, style[name_of(entry.record)]) for entry in rows)
    return tuple(sorted(found, key=lambda row: (row.status != "ok", _median_ms(row))))


def _row(entry: Stored, ceilings: Sequence[Ceiling] | None, style: Style) -> LatencyRow:
    record, clock = entry.record, entry.record.measurement.latency
    bound = floor(record, ceilings)
    return LatencyRow(
        name=name_of(record),
        status=record.status,
        figures=record.latency,
        text=latency_text(clock) if clock is not None and clock.samples_ns else "",
        floor_ms=bound.ms if bound is not None and record.latency is not None else None,
        quarters_ms=tuple(np.quantile(clock.samples_ns, (0.25, 0.75)) / 1e6) if clock and clock.samples_ns else (),
        style=style,
    )


def _median_ms(row: LatencyRow) -> float:
    return row.figures.median_ms if row.figures is not None else float("inf")


def figure(rows: Sequence[LatencyRow]) -> Figure | None:
    """Bars of the rows that have figures; the others are counted. None where none has."""
    timed = [row for row in rows if row.figures is not None]
    if not timed:
        return None
    floors = f", long mark: {floor_text(timed)}" if any(row.floor_ms is not None for row in timed) else ""
    caption = f"bar and dot: median, whisker: to p99, in the dot: its 95 % interval, band: middle half of calls{floors}"
    return Figure("latency", "Latency of a synchronised call", caption, _spec(timed, len(rows) - len(timed)))


def _spec(rows: Sequence[LatencyRow], left_out: int) -> Spec:
    end = end_of((row.status, row.end_ms) for row in rows) or 1.0
    data = [_datum(row, end) for row in rows]
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


def _datum(row: LatencyRow, end_ms: float) -> dict[str, Any]:
    """What is drawn of a row; one that is not ranked is cut off where the longest that is ends."""
    figures = row.figures
    assert figures is not None
    found = {
        "median": figures.median_ms, "low": figures.low_ms, "high": figures.high_ms, "p99": figures.p99_ms,
        "floor": row.floor_ms, "end": row.end_ms,
        **dict(zip(("quarter", "three_quarters"), row.quarters_ms, strict=False)),
    }  # fmt: skip
    status = "" if row.status == "ok" else f" {row.status}"
    cut = ", cut off at the axis' end" if row.end_ms > end_ms * 1.001 else ""
    return {
        "name": name_text(row.name),
        "text": f"{row.text} ms{status}{cut}",
        "colour": row.style.colour,
        "opacity": 0.65 if row.status == "ok" else 0.25,
        "p99_ms": rounded(figures.p99_ms),
        **{key: rounded(min(value, end_ms)) for key, value in found.items() if value is not None},
    }
