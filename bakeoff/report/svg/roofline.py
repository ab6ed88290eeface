"""The roofline of each group, on logarithmic axes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bakeoff.report.comparable import Table
from bakeoff.report.figures.roofline import Roofline, roofline
from bakeoff.report.figures.style import dtype_dashes
from bakeoff.report.format import shorten
from bakeoff.report.svg.canvas import INK, face, head, legend_beside, line_style, panels, svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEAST, _LINE = 3.0, 0.2
"""Inches of the smallest panel, and of a name in its legend."""


def draw(heading: str, tables: Sequence[Table]) -> bytes | None:
    """A panel for each table that has roofs and points. None where none has."""
    found = [(table, data) for table in tables if (data := roofline(table.rows, table.ceilings.best)) is not None]
    if not found:
        return None
    figure, axes = panels(
        f"Roofline: {heading}",
        "FLOPs of a call over the least traffic it needs, against FLOPs over the median latency; hollow: not ok",
        [max(_LEAST, _LINE * (len(data.points) + len(data.roofs) + (3 if data.above else 1))) for _, data in found],
    )
    for panel, (table, data) in zip(axes, found, strict=True):
        head(panel, table.rows[0].record)
        _panel(panel, data)
    return svg(figure)


def _panel(axes: "Axes", data: Roofline) -> None:
    from matplotlib.ticker import EngFormatter, LogLocator

    low, high = data.span
    axes.set_xscale("log")
    axes.set_yscale("log")
    for roof in data.roofs:
        line = [low, roof.ridge, high]
        axes.plot(
            line, [roof.at(intensity) for intensity in line], color=INK, linewidth=1.3,
            linestyle=line_style(dtype_dashes(roof.dtype)), label=roof.name,
        )  # fmt: skip
    for point in data.points:
        colour = point.style.colour
        axes.plot(
            [point.intensity], [point.flops_per_s], color=colour, marker=point.style.mark.matplotlib, markersize=6.0,
            linewidth=0, markerfacecolor=face(colour, point.status), label=shorten(point.name, 34),
        )  # fmt: skip
    if data.above:
        axes.plot(
            [point.intensity for point in data.above], [point.flops_per_s for point in data.above], color=INK,
            marker="o", markersize=11.0, markerfacecolor="none", linewidth=0, gid="above",
            label=data.above_text.replace(", ", ",\n"),
        )  # fmt: skip
    axes.set_xlim(low, high)
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.yaxis.set_major_formatter(EngFormatter(sep=" "))
    axes.minorticks_off()
    axes.set_xlabel("FLOP a byte")
    axes.set_ylabel("FLOP/s")
    legend_beside(axes)
