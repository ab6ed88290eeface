"""Figures of pipelines as Plotly's JSON: the phases of a unit, units over time, and mixes line by line."""

from collections.abc import Sequence
from typing import Any

from bakeoff.report.figures.pipeline import Bar, LineBars, UnitSeries, by_line, units_over_time, waterfall
from bakeoff.report.figures.style import palette
from bakeoff.report.html.charts import Chart, Figure, plain, rounded, with_legend
from bakeoff.report.pipelines import MixRow

_MARGIN = {"l": 8, "r": 12, "t": 8, "b": 44}
_KINDS = {"opening": "square", "filling": "circle-open", "steady": "circle"}


def charts(rows: Sequence[MixRow]) -> list[Chart]:
    """The figures of a table's mixes that have something to show."""
    unit = rows[0].record.unit if rows else "frame"
    made = (
        (
            "waterfall",
            "Phases of a unit",
            "the mean steady unit from its start to its end, with glue, copies and what has no name",
            _waterfall(waterfall(rows), unit),
        ),
        (
            "units",
            "Units over time",
            "square: opening, hollow: filling, dot: steady, cross: compiled or captured in it",
            _units(units_over_time(rows), unit),
        ),
        (
            "lines",
            "Before and after, line by line",
            "mean steady unit of the baseline and of each mix that took turns with it",
            _lines(by_line(rows), unit),
        ),
    )
    return [Chart(name, heading, caption, plotly) for name, heading, caption, plotly in made if plotly is not None]


def _waterfall(bars: Sequence[Bar], unit: str) -> Figure | None:
    if not bars:
        return None
    names = list(dict.fromkeys(segment.name for bar in bars for segment in bar.segments))
    data = []
    for name in names:
        held = [(index, each) for index, bar in enumerate(bars) for each in bar.segments if each.name == name]
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": plain(name),
                "y": [index for index, _ in held],
                "base": rounded([each.start_ms for _, each in held]),
                "x": rounded([each.ms for _, each in held]),
                "width": 0.62,
                "marker": {"color": held[0][1].colour},
                "text": [each.share for _, each in held],
                "textposition": "inside",
                "insidetextanchor": "middle",
                "textangle": 0,
                "customdata": [plain(name)] * len(held),
                "hovertemplate": "%{customdata}: %{x} ms, %{text}<extra></extra>",
            }
        )
    layout = with_legend(70 + 46 * len(bars), 2)
    return {
        "data": data,
        "layout": {
            **layout,
            "margin": _MARGIN,
            "barmode": "overlay",
            "legend": {**layout["legend"], "y": -34 / (20 + 46 * len(bars)), "traceorder": "normal"},
            "uniformtext": {"minsize": 9, "mode": "hide"},
            "xaxis": {"title": {"text": f"ms a {unit}", "standoff": 4}, "type": "linear", "rangemode": "tozero"},
            "yaxis": _names([bar.name if bar.status == "ok" else f"{bar.name} ({bar.status})" for bar in bars]),
        },
    }


def _names(names: Sequence[str]) -> dict[str, Any]:
    """An axis with a name at each whole number, from top to bottom."""
    return {
        "type": "linear",
        "tickvals": list(range(len(names))),
        "ticktext": [plain(name) for name in names],
        "range": [len(names) - 0.4, -0.6],
        "automargin": True,
        "showgrid": False,
        "zeroline": False,
    }


def _units(series: Sequence[UnitSeries], unit: str) -> Figure | None:
    if not series:
        return None
    return {
        "data": [
            {
                "type": "scatter",
                "mode": "lines+markers",
                "x": [point.number for point in each.points],
                "y": rounded([point.ms for point in each.points]),
                "name": plain(each.name),
                "line": {"color": each.colour, "width": 1},
                "marker": {
                    "color": ["#cc3311" if point.moved else each.colour for point in each.points],
                    "symbol": ["x" if point.moved else _KINDS[point.kind] for point in each.points],
                    "size": [12 if point.moved else 5 if point.kind == "steady" else 9 for point in each.points],
                },
                "text": [
                    point.kind + (f", compiled {plain(', '.join(point.moved), 60)}" if point.moved else "")
                    for point in each.points
                ],
                "hovertemplate": f"{unit} %{{x}}: %{{y}} ms, %{{text}}",
            }
            for each in series
        ],
        "layout": {
            **with_legend(330, len(series)),
            "xaxis": {"title": {"text": f"{unit} of the run"}, "type": "linear", "zeroline": False},
            "yaxis": {"title": {"text": f"ms a {unit}"}, "type": "linear", "rangemode": "tozero"},
        },
    }


def _lines(found: Sequence[LineBars], unit: str) -> Figure | None:
    if not found:
        return None
    names = list(dict.fromkeys(line.name for bars in found for line in bars.lines))
    before = {line.name: line.before_ms for bars in found for line in bars.lines}
    mixes = [
        (found[0].against, before),
        *((bars.name, {line.name: line.after_ms for line in bars.lines}) for bars in found),
    ]
    step = 0.8 / len(mixes)
    data = []
    for index, ((name, times), colour) in enumerate(zip(mixes, palette(len(mixes)), strict=True)):
        shown = [times.get(line, 0.0) for line in names]
        change = [ms - before.get(line, 0.0) for line, ms in zip(names, shown, strict=True)]
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": plain(name),
                "y": rounded([place - 0.4 + step * (index + 0.5) for place in range(len(names))]),
                "x": rounded(shown),
                "width": round(step * 0.92, 4),
                "marker": {"color": colour},
                "text": [f"{plain(line)}: {ms:.3f} ms" + (f" ({more:+.3f})" if index else "")
                         for line, ms, more in zip(names, shown, change, strict=True)],
                "textposition": "none",
                "hovertemplate": "%{text}",
            }
        )  # fmt: skip
    height = max(200, 60 + (14 * len(mixes) + 10) * len(names))
    return {
        "data": data,
        "layout": {
            **with_legend(height, len(mixes)),
            "margin": _MARGIN,
            "barmode": "overlay",
            "xaxis": {"title": {"text": f"ms a {unit}"}, "type": "linear", "rangemode": "tozero"},
            "yaxis": _names(names),
        },
    }
