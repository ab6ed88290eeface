"""The page's figures as Plotly's own JSON: plain data, so that nothing is imported and nothing is drawn here.

Plotly reads names as a subset of HTML; what comes from records is escaped by `plain`.
"""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from bakeoff.record.schema import Record
from bakeoff.record.store import Records, Stored
from bakeoff.report.columns import peak_mib, worst_error
from bakeoff.report.figures.style import backend_colours, envelope, fastest_first, quantiles
from bakeoff.report.format import shorten
from bakeoff.report.groups import Group, name_of

Figure = dict[str, Any]
_SYMBOLS: Final = {"fp32": "circle", "tf32": "square", "bf16": "triangle-up", "fp16": "diamond"}
_DASHES: Final = {"fp32": "solid", "tf32": "dashdot", "bf16": "dash", "fp16": "dot"}
_WARMUP_POINTS, _TIMED_POINTS, _QUANTILES = 100, 300, 200
_LETTERS = 30
_LEGEND_PX = 21
"""Height of a line in a legend."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure of a section."""

    name: str
    heading: str
    caption: str
    plotly: Figure


def figures(group: Group, _records: Records) -> list[Chart]:
    """The figures that the group's records have something for."""
    made = (
        ("distribution", "Latency distribution", "all timed calls; the box holds the middle half", distribution),
        ("trade", "Speed, error, memory", "left and low is better; the area is the peak memory; hollow: not ok", trade),
        ("timeline", "Calls in the order taken", "warm-up shaded; a click on a name hides it", timeline),
    )
    return [
        Chart(name, heading, caption, plotly)
        for name, heading, caption, draw in made
        if (plotly := draw(group.rows)) is not None
    ]


def plain(text: str, letters: int = _LETTERS) -> str:
    """A name as Plotly shows it letter by letter."""
    return html.escape(shorten(text, letters), quote=False)


def distribution(rows: Sequence[Stored]) -> Figure | None:
    """All timed calls of each variant as a violin, fastest first; None where no row has samples."""
    timed = [entry for entry in fastest_first(rows) if entry.record.latency]
    if not timed:
        return None
    colours = backend_colours(rows)
    return {
        "data": [_violin(place, entry.record, colours) for place, entry in enumerate(timed)],
        "layout": {
            "height": 90 + 34 * len(timed),
            "margin": {"l": 8, "r": 12, "t": 8, "b": 44},
            "showlegend": False,
            "xaxis": {"title": {"text": "ms a call"}, "type": "linear"},
            "yaxis": {
                "type": "linear",
                "tickvals": list(range(len(timed))),
                "ticktext": [plain(name_of(entry.record)) for entry in timed],
                "range": [len(timed) - 0.4, -0.6],
                "automargin": True,
                "showgrid": False,
                "zeroline": False,
            },
        },
    }


def _violin(place: int, record: Record, colours: dict[str, str]) -> Figure:
    clock = record.measurement.latency
    assert clock is not None
    colour = colours[record.variant.backend]
    return {
        "type": "violin",
        "orientation": "h",
        "x": _rounded(quantiles(clock.samples_ns, _QUANTILES)),
        "y0": place,
        "width": 0.85,
        "name": plain(name_of(record)),
        "points": False,
        "spanmode": "hard",
        "box": {"visible": True, "width": 0.3},
        "line": {"color": colour, "width": 1.2},
        "hoverinfo": "x",
    }


def timeline(rows: Sequence[Stored]) -> Figure | None:
    """Calls in the order taken, warm-up before 1; None where no row has samples."""
    timed = [entry for entry in rows if entry.record.latency]
    if not timed:
        return None
    colours = backend_colours(rows)
    traces = [_trace(entry.record, colours) for entry in timed]
    values = [value for trace in traces for value in trace["y"]]
    first = min(trace["x"][0] for trace in traces)
    return {
        "data": traces,
        "layout": {
            "height": 330 + _legend_px(len(timed)),
            "margin": {"l": 60, "r": 12, "t": 8, "b": 44},
            "legend": {"orientation": "h", "y": -0.2, "yanchor": "top"},
            "xaxis": {"title": {"text": "call; 1 is the first after the warm-up"}, "type": "linear", "zeroline": False},
            "yaxis": {
                "title": {"text": "ms a call"},
                "type": "log" if max(values) > 10 * min(values) > 0 else "linear",
            },
            "shapes": [
                {
                    "type": "rect", "layer": "below", "x0": first - 0.5, "x1": 0.5, "y0": 0, "y1": 1,
                    "yref": "paper", "line": {"width": 0}, "fillcolor": "rgba(120,140,170,0.16)",
                }
            ],
        },
    }  # fmt: skip


def _trace(record: Record, colours: dict[str, str]) -> Figure:
    clock = record.measurement.latency
    assert clock is not None
    before, warm = envelope(clock.warmup_ns, _WARMUP_POINTS)
    after, timed = envelope(clock.samples_ns, _TIMED_POINTS)
    warmup = len(clock.warmup_ns)
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [place - warmup + 1 for place in before] + [place + 1 for place in after],
        "y": _rounded(warm + timed),
        "name": plain(name_of(record)),
        "line": {
            "color": colours[record.variant.backend],
            "width": 1.2,
            "dash": _DASHES.get(record.variant.dtype, "solid"),
        },
        "hovertemplate": "call %{x}: %{y} ms",
    }


def trade(rows: Sequence[Stored]) -> Figure | None:
    """Speed against error, the area of a point being its peak memory; None where no row has speed and error."""
    shown = [(entry.record, error) for entry in rows if (error := worst_error(entry.record)) is not None]
    shown = [(record, error) for record, error in shown if record.latency]
    if not shown:
        return None
    colours = backend_colours(rows)
    errors = [error for _, error in shown if error > 0]
    low = math.floor(math.log10(min(errors, default=1e-6)))
    high = math.ceil(math.log10(max(errors, default=1e-6)))
    exact = low - 1  # a logarithm has no place for no difference at all
    ends = [exact] if len(errors) < len(shown) else []
    largest = max((peak_mib(record) or 0.0 for record, _ in shown), default=0.0)
    ticks = list(range(low, high + 1, 1 + (high - low) // 8))
    return {
        "data": [
            _bubble(record, math.log10(error) if error > 0 else exact, error, largest, colours)
            for record, error in shown
        ],
        "layout": {
            "height": 340 + _legend_px(len(shown)),
            "margin": {"l": 70, "r": 12, "t": 8, "b": 44},
            "legend": {"orientation": "h", "y": -0.2, "yanchor": "top", "itemsizing": "constant"},
            "xaxis": {"title": {"text": "median ms a call"}, "type": "linear", "rangemode": "tozero"},
            "yaxis": {
                "title": {"text": "relative L2 error"},
                "type": "linear",
                "tickvals": [*ends, *ticks],
                "ticktext": [*("exact" for _ in ends), *(f"1e{tick}" for tick in ticks)],
                "range": [(exact if ends else low) - 0.6, high + 0.6],
                "zeroline": False,
            },
        },
    }


def _bubble(record: Record, height: float, error: float, largest: float, colours: dict[str, str]) -> Figure:
    assert record.latency is not None
    peak = peak_mib(record)
    share = (peak or 0.0) / largest if largest else 0.0
    colour = colours[record.variant.backend]
    memory = "" if peak is None else f"<br>{peak:,.0f} MiB at peak"
    return {
        "type": "scatter",
        "mode": "markers",
        "x": _rounded([record.latency.median_ms]),
        "y": [round(height, 4)],
        "name": plain(name_of(record)),
        "marker": {
            "size": round(8 + 26 * math.sqrt(share), 1),
            "color": colour,
            "symbol": _SYMBOLS.get(record.variant.dtype, "circle") + ("" if record.status == "ok" else "-open"),
            "opacity": 0.75,
            "line": {"width": 2 if record.status != "ok" else 1, "color": colour},
        },
        "text": [f"{record.latency.median_ms:.3f} ms, error {error:.2e}{memory}<br>{record.status}"],
        "hovertemplate": "%{text}",
    }


def _legend_px(entries: int) -> int:
    """Room for a legend of two names a line."""
    return 50 + _LEGEND_PX * -(-entries // 2)


def _rounded(values: Sequence[float]) -> list[float]:
    """Five digits: what a screen can show, at half the size."""
    return [float(f"{value:.5g}") for value in values]
