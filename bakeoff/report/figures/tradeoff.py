"""Speed against error and peak memory."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bakeoff.record.schema import Status
from bakeoff.record.store import Stored
from bakeoff.report.columns import peak_mib, worst_error
from bakeoff.report.figures.style import Style, styles
from bakeoff.report.figures.vega import Figure, end_of, filled, looks, name_text, points, rounded
from bakeoff.report.groups import name_of


@dataclass(frozen=True, slots=True)
class TradeoffPoint:
    name: str
    style: Style
    status: Status
    median_ms: float
    error: float
    """Largest relative L2 of an output against the reference; 0 where there is no difference at all."""
    peak_mib: float | None


def tradeoff(rows: Sequence[Stored]) -> tuple[TradeoffPoint, ...]:
    """A point for each row that has a median and an error: the ranked ones first, the fastest first."""
    style = styles(entry.record for entry in rows)
    found = (
        TradeoffPoint(name, style[name], record.status, record.latency.median_ms, error, peak_mib(record))
        for name, record in ((name_of(entry.record), entry.record) for entry in rows)
        if record.latency is not None and (error := worst_error(record)) is not None
    )
    return tuple(sorted(found, key=lambda point: (point.status != "ok", point.median_ms)))


def figure(found: Sequence[TradeoffPoint]) -> Figure | None:
    """Error by median as points whose area is the peak memory. None without points."""
    if not found:
        return None
    end = end_of((point.status, point.median_ms) for point in found)
    beyond = ", at the right edge: beyond it" if any(point.median_ms > end * 1.001 for point in found) else ""
    caption = f"left and low is better; the area is the peak memory; hollow: not ok{beyond}"
    least = min((point.error for point in found if point.error > 0), default=1e-6)
    exact = 10.0 ** (math.floor(math.log10(least)) - 1)  # an error of 0 has no logarithm
    label = f"datum.value <= {exact} ? 'exact' : format(datum.value, '.0e')"
    styles = {point.name: point.style for point in found}
    data = [
        {
            "name": name_text(point.name),
            "ms": rounded(point.median_ms),
            "error": rounded(point.error) or exact,
            "error_text": f"{point.error:.2e}",
            "MiB": round(point.peak_mib or 0.0),
            "status": point.status,
            "fill": filled(point.style, point.status),
        }
        for point in found
    ]
    scale = {"domain": [0, rounded(1.05 * end)], "nice": False, "clamp": True}
    encoding = {
        "x": {"field": "ms", "type": "quantitative", "title": "median ms a call", "scale": scale},
        "y": {
            "field": "error", "type": "quantitative", "title": "relative L2 error",
            "scale": {"type": "log", "padding": 16}, "axis": {"labelExpr": label, "tickCount": 6},
        },
        "size": {"field": "MiB", "type": "quantitative", "scale": {"range": [40, 700]}, "legend": None},
        **looks(styles),
        "tooltip": [{"field": "name"}, {"field": "ms"}, {"field": "error_text"}, {"field": "MiB"}, {"field": "status"}],
    }  # fmt: skip
    spec = {"height": 280, "data": {"values": data}, **points(encoding, fillOpacity=0.7)}
    return Figure("tradeoff", "Speed, error, memory", caption, spec)
