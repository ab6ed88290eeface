"""Speed against error and peak memory."""

import math
from collections.abc import Sequence

from bakeoff.record.store import Stored
from bakeoff.report.columns import peak_mib, worst_error
from bakeoff.report.figures.style import styles
from bakeoff.report.figures.vega import Figure, end_of, filled, looks, name_text, points, rounded
from bakeoff.report.groups import name_of


def figure(rows: Sequence[Stored]) -> Figure | None:
    """Error by median as points whose area is the peak memory: the ranked rows first, the fastest first.

    None where no row has a median and an error.
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
    label = f"datum.value <= {exact} ? 'exact' : format(datum.value, '.0e')"
    style = styles(entry.record for entry in rows)
    data = [
        {
            "name": name_text(name_of(record)),
            "ms": rounded(ms),
            "error": rounded(error) or exact,
            "error_text": f"{error:.2e}",
            "MiB": round(peak_mib(record) or 0.0),
            "status": record.status,
            "fill": filled(style[name_of(record)], record.status),
        }
        for record, ms, error in found
    ]
    scale = {"domain": [0, rounded(1.05 * end)], "nice": False, "clamp": True}
    encoding = {
        "x": {"field": "ms", "type": "quantitative", "title": "median ms a call", "scale": scale},
        "y": {
            "field": "error", "type": "quantitative", "title": "relative L2 error",
            "scale": {"type": "log", "padding": 16}, "axis": {"labelExpr": label, "tickCount": 6},
        },
        "size": {"field": "MiB", "type": "quantitative", "scale": {"range": [40, 700]}, "legend": None},
        **looks({name: style[name] for name in (name_of(record) for record, *_ in found)}),
        "tooltip": [{"field": "name"}, {"field": "ms"}, {"field": "error_text"}, {"field": "MiB"}, {"field": "status"}],
    }  # fmt: skip
    spec = {"height": 280, "data": {"values": data}, **points(encoding, fillOpacity=0.7)}
    return Figure("tradeoff", "Speed, error, memory", caption, spec)
