"""The median of each variant from sweep to sweep as lines."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bakeoff.report.figures.history import History, HistorySeries, history
from bakeoff.report.format import shorten
from bakeoff.report.groups import Group
from bakeoff.report.svg.canvas import face, head, legend_beside, line_style, panels, svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEAST, _LINE = 1.9, 0.2
"""Inches of the smallest panel, and of a name in its legend."""
_DATES = 8
"""Written under a panel at most."""


def draw(heading: str, groups: Sequence[Group]) -> bytes | None:
    """A panel for each group that was measured in two sweeps or more. None where none was."""
    found = [(group, data) for group in groups if (data := history(group.rows)) is not None]
    if not found:
        return None
    figure, axes = panels(
        f"History: {heading}",
        "Median latency of each variant with its 95 % interval, by sweep (UTC); hollow: not ok, cross: no figures",
        [max(_LEAST, _LINE * (len(data.series) + 1)) for _, data in found],
    )
    for panel, (group, data) in zip(axes, found, strict=True):
        head(panel, group.rows[0].record)
        _panel(panel, data)
    return svg(figure)


def _panel(axes: "Axes", data: History) -> None:
    for series in data.series:
        _series(axes, series)
    step = -(-len(data.sweeps) // _DATES)
    dates = [sweep.replace(" ", "\n") for sweep in data.sweeps]
    axes.set_xticks(range(0, len(dates), step), dates[::step])
    axes.set_xlim(-0.5, len(dates) - 0.5)
    axes.set_ylim(0, axes.get_ylim()[1] * 1.05)
    axes.set_ylabel("median ms a call")
    legend_beside(axes)


def _series(axes: "Axes", series: HistorySeries) -> None:
    colour, mark = series.style.colour, series.style.mark
    timed = [(point.x, point.status, point.median_ms) for point in series.points if point.median_ms is not None]
    look: dict[str, Any] = {"color": colour, "marker": mark.matplotlib, "markersize": 4.0}
    axes.plot(
        [x for x, _, _ in timed], [ms for _, _, ms in timed], linestyle=line_style(mark.dashes), linewidth=1.2,
        label=shorten(series.name, 34), **look,
    )  # fmt: skip
    for x, status, ms in timed:
        if status != "ok":
            axes.plot([x], [ms], linewidth=0, markerfacecolor=face(colour, status), zorder=3, **look)
    for point in series.points:
        if point.low_ms is not None and point.high_ms is not None:
            axes.vlines(point.x, point.low_ms, point.high_ms, color=colour, linewidth=1.1)
    failed = [point.x for point in series.points if point.median_ms is None]
    axes.plot(
        failed, [0.03] * len(failed), color=colour, marker="x", markersize=4.5, linewidth=0,
        transform=axes.get_xaxis_transform(), clip_on=False,
    )  # fmt: skip
