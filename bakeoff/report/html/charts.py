"""The page's figures as Plotly's JSON: plain data, made without importing Plotly; the browser draws them.

Plotly reads names as a subset of HTML, so names from records are escaped by `plain`.
"""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from bakeoff.machine.floors import Ceiling
from bakeoff.record.store import Stored
from bakeoff.report.figures.history import History, HistorySeries, history
from bakeoff.report.figures.latency import LatencyRow, floor_text, latency
from bakeoff.report.figures.roofline import Roofline, roofline
from bakeoff.report.figures.style import Style, dtype_dashes, status_colour
from bakeoff.report.figures.timeline import TimelineSeries, timeline
from bakeoff.report.figures.tradeoff import TradeoffPoint, tradeoff
from bakeoff.report.format import shorten

Figure = dict[str, Any]
_LETTERS: Final = 30
_LEGEND_PX: Final = 21
"""Height of a line in a legend."""
_MARGIN: Final[dict[str, int]] = {"l": 70, "r": 12, "t": 8, "b": 44}


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure of a section."""

    name: str
    heading: str
    caption: str
    plotly: Figure


def figures(
    rows: Sequence[Stored], every: Sequence[Stored] = (), ceilings: Sequence[Ceiling] | None = None
) -> list[Chart]:
    """The figures that have something to show: of a table's rows, and of `every` record of its group.

    Floors and roofs are of `ceilings`, by default of those that the records hold.
    """
    timed = [row for row in latency(rows, ceilings) if row.figures is not None]
    made = (
        (
            "latency",
            "Latency distribution",
            f"all timed calls; the box holds the middle half, a line is the {floor_text(timed)}",
            _latency(timed),
        ),
        (
            "tradeoff",
            "Speed, error, memory",
            "left and low is better; the area is the peak memory; hollow: not ok",
            _tradeoff(tradeoff(rows)),
        ),
        (
            "timeline",
            "Calls in the order taken",
            "warm-up shaded; a click on a name hides it",
            _timeline(timeline(rows)),
        ),
        (
            "roofline",
            "Roofline",
            "FLOPs over least traffic against FLOPs over median latency; hollow: not ok",
            _roofline(roofline(rows, ceilings)),
        ),
        (
            "history",
            "History",
            "median and its 95 % interval, sweep by sweep (UTC); hollow: not ok",
            _history(history(every)),
        ),
    )
    return [Chart(name, heading, caption, plotly) for name, heading, caption, plotly in made if plotly is not None]


def plain(text: str, letters: int = _LETTERS) -> str:
    """A name shortened and escaped, so that Plotly shows it as text."""
    return html.escape(shorten(text, letters), quote=False)


def _latency(rows: Sequence[LatencyRow]) -> Figure | None:
    if not rows:
        return None
    floors = [(index, row.floor_ms) for index, row in enumerate(rows) if row.floor_ms is not None]
    return {
        "data": [_violin(index, row) for index, row in enumerate(rows)],
        "layout": {
            "height": 90 + 34 * len(rows),
            "margin": {**_MARGIN, "l": 8},
            "showlegend": False,
            "xaxis": {"title": {"text": "ms a call"}, "type": "linear", "rangemode": "tozero"},
            "yaxis": {
                "type": "linear",
                "tickvals": list(range(len(rows))),
                "ticktext": [plain(row.name) for row in rows],
                "range": [len(rows) - 0.4, -0.6],
                "automargin": True,
                "showgrid": False,
                "zeroline": False,
            },
            "shapes": [
                {
                    "type": "line", "x0": floor_ms, "x1": floor_ms, "y0": index - 0.42, "y1": index + 0.42,
                    "line": {"color": "#888888", "width": 2},
                }
                for index, floor_ms in floors
            ],
        },
    }  # fmt: skip


def _violin(index: int, row: LatencyRow) -> Figure:
    return {
        "type": "violin",
        "orientation": "h",
        "x": rounded(row.quantiles_ms),
        "y0": index,
        "width": 0.85,
        "name": plain(row.name),
        "points": False,
        "spanmode": "hard",
        "box": {"visible": True, "width": 0.3},
        "line": {"color": status_colour(row.status), "width": 1.2},
        "hoverinfo": "x",
    }


def _timeline(series: Sequence[TimelineSeries]) -> Figure | None:
    if not series:
        return None
    values = [value for each in series for value in each.ms]
    first = min(each.calls[0] for each in series)
    return {
        "data": [
            {
                "type": "scatter",
                "mode": "lines",
                "x": list(each.calls),
                "y": rounded(each.ms),
                "name": plain(each.name),
                "line": line(each.style),
                "hovertemplate": "call %{x}: %{y} ms",
            }
            for each in series
        ],
        "layout": {
            **with_legend(330, len(series)),
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


def _tradeoff(points: Sequence[TradeoffPoint]) -> Figure | None:
    if not points:
        return None
    errors = [point.error for point in points if point.error > 0]
    low = math.floor(math.log10(min(errors, default=1e-6)))
    high = math.ceil(math.log10(max(errors, default=1e-6)))
    exact = low - 1  # an error of 0 has no logarithm: it is drawn one decade below the smallest
    ends = [exact] if len(errors) < len(points) else []
    largest = max((point.peak_mib or 0.0 for point in points), default=0.0)
    ticks = list(range(low, high + 1, 1 + (high - low) // 8))
    return {
        "data": [_bubble(point, math.log10(point.error) if point.error > 0 else exact, largest) for point in points],
        "layout": {
            **with_legend(340, len(points)),
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


def _bubble(point: TradeoffPoint, height: float, largest_mib: float) -> Figure:
    share = (point.peak_mib or 0.0) / largest_mib if largest_mib else 0.0
    memory = "" if point.peak_mib is None else f"<br>{point.peak_mib:,.0f} MiB at peak"
    return {
        "type": "scatter",
        "mode": "markers",
        "x": rounded([point.median_ms]),
        "y": [round(height, 4)],
        "name": plain(point.name),
        "marker": {**marker(point.style, point.status), "size": round(8 + 26 * math.sqrt(share), 1), "opacity": 0.75},
        "text": [f"{point.median_ms:.3f} ms, error {point.error:.2e}{memory}<br>{point.status}"],
        "hovertemplate": "%{text}",
    }


def _roofline(found: Roofline | None) -> Figure | None:
    if found is None:
        return None
    low, high = found.span
    roofs: list[Figure] = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": rounded([low, roof.ridge, high]),
            "y": rounded([roof.at(intensity) for intensity in (low, roof.ridge, high)]),
            "name": plain(roof.name, 60),
            "line": {"color": "#888888", "width": 1.5, "dash": _dash(dtype_dashes(roof.dtype))},
            "hoverinfo": "name",
        }
        for roof in found.roofs
    ]
    points: list[Figure] = [
        {
            "type": "scatter",
            "mode": "markers",
            "x": rounded([point.intensity]),
            "y": rounded([point.flops_per_s]),
            "name": plain(point.name),
            "marker": {**marker(point.style, point.status), "size": 10},
            "hovertemplate": "%{x} FLOP a byte, %{y}FLOP/s",
        }
        for point in found.points
    ]
    above: list[Figure] = [
        {
            "type": "scatter",
            "mode": "markers",
            "x": rounded([point.intensity for point in found.above]),
            "y": rounded([point.flops_per_s for point in found.above]),
            "name": plain(found.above_text, 80),
            "marker": {"color": "#888888", "symbol": "circle-open", "size": 18, "line": {"width": 2}},
            "hoverinfo": "skip",
        }
    ]
    data = [*roofs, *points, *(above if found.above else [])]
    return {
        "data": data,
        "layout": {
            **with_legend(360, len(data)),
            "xaxis": {"title": {"text": "FLOP a byte"}, "type": "log"},
            "yaxis": {"title": {"text": "FLOP/s"}, "type": "log", "exponentformat": "SI"},
        },
    }


def _history(found: History | None) -> Figure | None:
    if found is None:
        return None
    return {
        "data": [_medians(series) for series in found.series],
        "layout": {
            **with_legend(340, len(found.series)),
            "xaxis": {
                "type": "linear",
                "tickvals": list(range(len(found.sweeps))),
                "ticktext": [plain(sweep).replace(" ", "<br>") for sweep in found.sweeps],
                "zeroline": False,
            },
            "yaxis": {"title": {"text": "median ms a call"}, "type": "linear", "rangemode": "tozero"},
        },
    }


def _medians(series: HistorySeries) -> Figure:
    timed = [
        (point, point.median_ms, point.low_ms, point.high_ms)
        for point in series.points
        if point.median_ms is not None and point.low_ms is not None and point.high_ms is not None
    ]
    symbols = [marker(series.style, point.status)["symbol"] for point, _, _, _ in timed]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": rounded([point.x for point, _, _, _ in timed]),
        "y": rounded([median for _, median, _, _ in timed]),
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": rounded([high - median for _, median, _, high in timed]),
            "arrayminus": rounded([median - low for _, median, low, _ in timed]),
            "thickness": 1,
            "width": 0,
        },
        "name": plain(series.name),
        "line": line(series.style),
        "marker": {"color": series.style.colour, "symbol": symbols, "size": 7},
        "hovertemplate": "%{y} ms",
    }


def line(style: Style) -> Figure:
    """The line of a variant."""
    return {"color": style.colour, "width": 1.2, "dash": _dash(style.mark.dashes)}


def _dash(dashes: tuple[float, ...]) -> str:
    return ",".join(f"{length:g}px" for length in dashes) or "solid"


def marker(style: Style, status: str) -> Figure:
    """Filled where the row is ok, else hollow."""
    ok = status == "ok"
    return {
        "color": style.colour,
        "symbol": style.mark.plotly + ("" if ok else "-open"),
        "line": {"width": 1 if ok else 2, "color": style.colour},
    }


def with_legend(height: int, names: int) -> Figure:
    """A layout with a legend of two names a line below it."""
    return {
        "height": height + 50 + _LEGEND_PX * -(-names // 2),
        "margin": _MARGIN,
        "legend": {"orientation": "h", "y": -0.2, "yanchor": "top", "itemsizing": "constant"},
    }


def rounded(values: Sequence[float]) -> list[float]:
    """Five digits: what a screen can show, at half the size."""
    return [float(f"{value:.5g}") for value in values]
