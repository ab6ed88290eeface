"""Items a second by batch as lines, one for each variant."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bakeoff.report.figures.batch_curve import BatchCurve, BatchSeries
from bakeoff.report.format import shorten
from bakeoff.report.svg.canvas import INK, face, legend_beside, line_style, panels, svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEAST, _LINE = 2.2, 0.2
"""Inches of the smallest panel, and of a name in its legend."""
_TITLE_LETTERS = 120
_CROSS = 0.05
"""Height of a cross as a share of the panel's: variants that fail at the same batch have theirs one above another."""


def draw(heading: str, curves: Sequence[BatchCurve]) -> bytes | None:
    """A panel for each curve. None where no subject was measured with several batches."""
    if not curves:
        return None
    figure, axes = panels(
        f"Batch curve: {heading}",
        "Items a second with the 95 % interval; ring: saturated from here; hollow: not ok, cross: no figures",
        [max(_LEAST, _LINE * (len(curve.series) + 1)) for curve in curves],
    )
    for panel, curve in zip(axes, curves, strict=True):
        panel.set_title(shorten(curve.title, _TITLE_LETTERS), color=INK)
        _panel(panel, curve)
    return svg(figure)


def _panel(axes: "Axes", curve: BatchCurve) -> None:
    batches = sorted({point.batch for series in curve.series for point in series.points})
    places = {batch: place for place, batch in enumerate(batches)}
    for number, series in enumerate(curve.series):
        _series(axes, series, places, 0.03 + _CROSS * number)
    axes.set_xticks(range(len(batches)), [str(batch) for batch in batches])
    axes.set_xlim(-0.5, len(batches) - 0.5)
    axes.set_ylim(0, axes.get_ylim()[1] * 1.05)
    axes.set_xlabel("batch", loc="right", labelpad=1)
    axes.set_ylabel("items a second")
    legend_beside(axes)


def _series(axes: "Axes", series: BatchSeries, places: dict[int, int], cross: float) -> None:
    """The line of a variant; `cross` is the height of its crosses as a share of the panel's."""
    colour, mark, saturates = series.style.colour, series.style.mark, series.saturates
    timed = [(places[point.batch], point.items, point) for point in series.points if point.items is not None]
    axes.plot(
        [x for x, _, _ in timed], [items[0] for _, items, _ in timed], color=colour, marker=mark.matplotlib,
        markersize=4.0, linestyle=line_style(mark.dashes), linewidth=1.2, label=shorten(series.name, 34),
    )  # fmt: skip
    for x, (rate, low, high), point in timed:
        axes.vlines(x, low, high, color=colour, linewidth=1.1)
        if point.record.status != "ok":
            axes.plot(
                [x], [rate], color=colour, marker=mark.matplotlib, markersize=4.0, linewidth=0,
                markerfacecolor=face(colour, point.record.status), zorder=3,
            )  # fmt: skip
        if point is saturates and point.batch != series.largest:
            axes.plot(
                [x], [rate], color=colour, marker="o", markersize=10, markerfacecolor="none", linewidth=0, zorder=4
            )
    failed = [places[point.batch] for point in series.points if point.items is None]
    axes.plot(
        failed, [cross] * len(failed), color=colour, marker="x", markersize=4.5, linewidth=0,
        transform=axes.get_xaxis_transform(), clip_on=False,
    )  # fmt: skip
