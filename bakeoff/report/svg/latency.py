"""Latency by variant as bars: the median with its interval, p99, and the floor."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, get_args

from bakeoff.record.schema import Status
from bakeoff.report.comparable import Table
from bakeoff.report.figures.latency import LatencyRow, floor_text, latency
from bakeoff.report.figures.style import status_colour
from bakeoff.report.format import median_and_interval, shorten
from bakeoff.report.svg.canvas import FAINT, INK, head, panels, svg

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

_ROW = 0.27
"""Inches a row."""
_NAME_LETTERS, _REASON_LETTERS = 44, 80


def draw(heading: str, tables: Sequence[Table]) -> bytes | None:
    """A panel for each table, fastest row first; rows without figures give their reason. None where there is no row."""
    if not tables:
        return None
    found = [latency(table.rows, table.ceilings.best) for table in tables]
    figure, axes = panels(
        f"Latency: {heading}",
        "One synchronised call, host clock; newest record of each variant",
        [_ROW * len(rows) for rows in found],
    )
    for panel, table, rows in zip(axes, tables, found, strict=True):
        head(panel, table.rows[0].record)
        _panel(panel, rows)
    marks = _legend([row for rows in found for row in rows])
    figure.legend(handles=marks, loc="outside lower left", ncols=len(marks), handlelength=1.6)
    return svg(figure)


def _panel(axes: "Axes", rows: Sequence[LatencyRow]) -> None:
    axes.set_yticks(range(len(rows)), [shorten(row.name, _NAME_LETTERS) for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(0, _right_end(rows))
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("ms a call", loc="right", labelpad=1)
    for index, row in enumerate(rows):
        _row(axes, index, row)


def _right_end(rows: Iterable[LatencyRow]) -> float:
    ends = [end for row in rows if row.figures is not None for end in (row.figures.p99_ms, row.floor_ms or 0.0)]
    return 1.04 * max(ends, default=0.0) or 1.0


def _row(axes: "Axes", index: int, row: LatencyRow) -> None:
    beside: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "va": "center", "fontsize": 8.0}
    figures = row.figures
    if figures is None:
        text = shorten(f"{row.status}: {row.reason or 'no reason is stored'}", _REASON_LETTERS)
        written = axes.text(0.008, index, text, color="#555555", style="italic", **beside)
        written.set_in_layout(False)  # it may go on beside the panel, where other rows have their figures
        return
    axes.barh(index, figures.median_ms, height=0.56, color=status_colour(row.status), alpha=0.55)
    if row.floor_ms is not None:
        panel = axes.figure.axes.index(axes)
        axes.plot(
            [row.floor_ms] * 2, [index - 0.42, index + 0.42], color=INK, linewidth=1.6, gid=f"floor-{panel}-{index}"
        )
    axes.plot([figures.low_ms, figures.high_ms], [index, index], color=INK, linewidth=2.2, solid_capstyle="butt")
    axes.plot([figures.median_ms], [index], color=INK, marker="o", markersize=3.2)
    axes.plot([figures.p99_ms], [index], color=FAINT, marker="|", markersize=9, markeredgewidth=1.4)
    status = "" if row.status == "ok" else f" {row.status}"
    axes.text(1.012, index, f"{' '.join(median_and_interval(figures))} ms{status}", color=INK, **beside)


def _legend(rows: Sequence[LatencyRow]) -> list["Artist"]:
    """The marks that occur, explained."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    timed = [row for row in rows if row.figures is not None]
    marks: list[Artist] = [
        Line2D([], [], color=INK, marker="o", markersize=3.2, linewidth=2.2, label="median, 95 % interval"),
        Line2D([], [], color=FAINT, marker="|", markersize=9, markeredgewidth=1.4, linewidth=0, label="p99"),
    ]
    if any(row.floor_ms is not None for row in timed):
        text = floor_text(timed)
        marks.append(Line2D([], [], color=INK, marker="|", markersize=11, markeredgewidth=1.6, linewidth=0, label=text))
    shown = [status for status in get_args(Status) if any(row.status == status for row in timed)]
    return marks + [Patch(color=status_colour(status), alpha=0.55, label=status) for status in shown]
