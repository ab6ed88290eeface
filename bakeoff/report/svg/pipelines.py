"""Runs of pipelines as pictures: the phases of a unit as one bar a mix, and units in the order they ran."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bakeoff.report.figures.pipeline import Bar, UnitSeries, units_over_time, waterfall
from bakeoff.report.figures.style import status_colour
from bakeoff.report.format import milliseconds, shorten
from bakeoff.report.pipelines import MixRow, PipelineTable, title_without_machine
from bakeoff.report.svg.canvas import FAINT, INK, panels, svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROW, _LEAST = 0.36, 0.9
"""Inches of a bar, and of the smallest panel of bars."""
_UNITS_HEIGHT = 2.2
_NAME_LETTERS, _TITLE_LETTERS = 30, 120
_LABELLED = 0.05
"""Least share of the longest bar that a segment's share is written in."""


def draw_waterfall(heading: str, tables: Sequence[PipelineTable]) -> bytes | None:
    """A panel for each subject, one bar a mix; mixes without steady units give their reason. None without mixes."""
    found = [(table, waterfall(table.rows)) for table in tables if table.rows]
    if not found:
        return None
    figure, axes = panels(
        f"Phases: {heading}",
        "The mean steady unit from its start to its end; shares add up to the unit exactly; newest record of each mix",
        [max(_LEAST, _ROW * len(table.rows)) + 0.25 for table, _ in found],
    )
    for panel, (table, bars) in zip(axes, found, strict=True):
        _title(panel, table)
        _bars(panel, table.rows, {bar.name: bar for bar in bars})
    return svg(figure)


def _bars(axes: "Axes", rows: Sequence[MixRow], bars: dict[str, Bar]) -> None:
    beside: dict[str, Any] = {"va": "center", "fontsize": 8.0}
    longest = max((bar.ms for bar in bars.values()), default=1.0)
    named: set[str] = set()
    for index, row in enumerate(rows):
        bar = bars.get(row.name)
        if bar is None:
            text = shorten(f"{row.record.status}: {row.record.measurement.reason or 'no reason is stored'}", 90)
            written = axes.text(
                0.008, index, text, transform=axes.get_yaxis_transform(), color="#555555", style="italic", **beside
            )
            written.set_in_layout(False)
            continue
        for segment in bar.segments:
            label = segment.name if segment.name not in named else None
            named.add(segment.name)
            axes.barh(
                index, segment.ms, left=segment.start_ms, height=0.62, color=segment.colour, edgecolor="white",
                linewidth=0.6, label=None if label is None else shorten(label, _NAME_LETTERS),
            )  # fmt: skip
            if segment.ms >= _LABELLED * longest:
                middle = segment.start_ms + segment.ms / 2
                ink = _ink(segment.colour)
                axes.text(middle, index, segment.share, ha="center", color=ink, va="center", fontsize=7.5)
        status = "" if bar.status == "ok" else f" {bar.status}"
        colour = INK if bar.status == "ok" else status_colour(bar.status)
        axes.text(bar.ms + longest * 0.008, index, f"{milliseconds(bar.ms)} ms{status}", color=colour, **beside)
    axes.set_yticks(range(len(rows)), [shorten(row.name, _NAME_LETTERS) for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(0, 1.14 * longest)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(f"ms a {rows[0].record.unit}", loc="right", labelpad=1)
    if named:
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.03), labelspacing=0.25, handlelength=1.2)


def _ink(colour: str) -> str:
    """Black or white, whichever can be read on a colour `#rrggbb` (its luma by ITU-R BT.601)."""
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return INK if 0.299 * red + 0.587 * green + 0.114 * blue > 150 else "white"


def draw_units(heading: str, tables: Sequence[PipelineTable]) -> bytes | None:
    """A panel for each subject with the wall time of every unit. None where no mix has units."""
    found = [(table, units_over_time(table.rows)) for table in tables]
    found = [(table, series) for table, series in found if series]
    if not found:
        return None
    figure, axes = panels(
        f"Units over time: {heading}",
        "Wall time of each unit; square: opening, hollow: filling, dot: steady, cross: compiled or captured in it",
        [_UNITS_HEIGHT for _ in found],
    )
    for panel, (table, series) in zip(axes, found, strict=True):
        _title(panel, table)
        for each in series:
            _series(panel, each)
        panel.set_xlabel(f"{table.rows[0].record.unit} of the run", loc="right", labelpad=1)
        panel.set_ylabel(f"ms a {table.rows[0].record.unit}")
        panel.set_ylim(0, panel.get_ylim()[1] * 1.05)
        panel.legend(loc="upper left", bbox_to_anchor=(1.01, 1.03), labelspacing=0.25, handlelength=1.8)
    return svg(figure)


def _series(axes: "Axes", series: UnitSeries) -> None:
    colour = series.colour
    x, y = [point.number for point in series.points], [point.ms for point in series.points]
    axes.plot(x, y, color=colour, linewidth=0.8, alpha=0.7, label=shorten(series.name, _NAME_LETTERS))
    looks: dict[str, dict[str, Any]] = {
        "opening": {"marker": "s", "markersize": 5.0, "color": colour},
        "filling": {"marker": "o", "markersize": 4.5, "markerfacecolor": "white", "color": colour},
        "steady": {"marker": "o", "markersize": 2.4, "color": colour},
    }
    for kind, look in looks.items():
        points = [point for point in series.points if point.kind == kind]
        axes.plot([point.number for point in points], [point.ms for point in points], linewidth=0, **look)
    moved = [point for point in series.points if point.moved]
    axes.plot(
        [point.number for point in moved], [point.ms for point in moved], linewidth=0, marker="x", markersize=8,
        markeredgewidth=1.8, color="#cc3311", zorder=4,
    )  # fmt: skip


def _title(axes: "Axes", table: PipelineTable) -> None:
    axes.set_title(shorten(title_without_machine(table.rows[0].record), _TITLE_LETTERS), color=INK)
    axes.spines["left"].set_color(FAINT)
