"""The page's section of batch curves: a table and a figure for each subject that was measured with several batches."""

from collections.abc import Sequence
from dataclasses import dataclass

from bakeoff.record.store import Stored
from bakeoff.report.figures.batch_curve import BatchCurve, BatchSeries, batch_curves, cells, headings, remarks
from bakeoff.report.figures.style import status_colour
from bakeoff.report.html.charts import Figure, line, marker, plain, rounded, with_legend
from bakeoff.report.html.embed import as_script_data
from bakeoff.report.links import Link


@dataclass(frozen=True, slots=True)
class CurveLine:
    """A row of the table: the texts of its cells, the colour of its status, and the address of its record."""

    texts: tuple[str, ...]
    colour: str
    href: str


@dataclass(frozen=True, slots=True)
class CurveSection:
    """A batch curve, as the template reads it."""

    anchor: str
    title: str
    columns: tuple[tuple[str, bool], ...]
    """Heading, and whether the column is of numbers."""
    rows: tuple[CurveLine, ...]
    remarks: tuple[str, ...]
    height: int
    """Of the figure in pixels."""
    data: str
    """The figure as JSON that cannot end a script element."""


def curve_sections(rows: Sequence[Stored], link: Link) -> list[CurveSection]:
    return [_section(number, curve, link) for number, curve in enumerate(batch_curves(rows))]


def _section(number: int, curve: BatchCurve, link: Link) -> CurveSection:
    drawn = _figure(curve)
    return CurveSection(
        anchor=f"batches-{number}",
        title=curve.title,
        columns=headings(curve),
        rows=tuple(
            CurveLine(tuple(texts), status_colour(point.record.status), link(point.entry))
            for point, texts in cells(curve)
        ),
        remarks=tuple(remarks(curve)),
        height=drawn["layout"]["height"],
        data=as_script_data({"batches": drawn}),
    )


def _figure(curve: BatchCurve) -> Figure:
    batches = sorted({point.batch for series in curve.series for point in series.points})
    return {
        "data": [_series(series, batches) for series in curve.series],
        "layout": {
            **with_legend(340, len(curve.series)),
            "xaxis": {
                "title": {"text": "batch"},
                "type": "linear",
                "tickvals": list(range(len(batches))),
                "ticktext": [str(batch) for batch in batches],
                "range": [-0.5, len(batches) - 0.5],
                "zeroline": False,
            },
            "yaxis": {"title": {"text": "items a second"}, "type": "linear", "rangemode": "tozero"},
        },
    }


def _series(series: BatchSeries, batches: Sequence[int]) -> Figure:
    timed = [(point, point.items) for point in series.points if point.items is not None]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": [batches.index(point.batch) for point, _ in timed],
        "y": rounded([items[0] for _, items in timed]),
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": rounded([high - rate for _, (rate, _, high) in timed]),
            "arrayminus": rounded([rate - low for _, (rate, low, _) in timed]),
            "thickness": 1,
            "width": 0,
        },
        "name": plain(series.name),
        "line": line(series.style),
        "marker": {
            "color": series.style.colour,
            "symbol": [marker(series.style, point.record.status)["symbol"] for point, _ in timed],
            "size": 7,
        },
        "hovertemplate": "%{y} items/s",
    }
