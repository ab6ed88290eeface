"""Latency by variant: the median with its interval, the p99, and the floor below which it cannot be."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bakeoff.record.floor import floor
from bakeoff.record.schema import MEASURED, Record
from bakeoff.record.store import Stored
from bakeoff.report.figures.canvas import FAINT, INK, LETTER, TOP, sheet, svg
from bakeoff.report.figures.style import fastest_first, status_colour
from bakeoff.report.format import milliseconds, shorten
from bakeoff.report.groups import Group, name_of

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

_WIDTH, _ROW, _HEAD, _FOOT, _LEGEND = 10.0, 0.27, 0.3, 0.5, 0.22
_FIGURES = 2.55
"""Inches at the right, for the numbers."""


def draw(heading: str, groups: Sequence[Group]) -> bytes | None:
    """One panel per group, fastest row first; rows without numbers say why. None where there is no row."""
    if not groups:
        return None
    heights = [_HEAD + _ROW * len(group.rows) + _FOOT for group in groups]
    names = [name_of(entry.record) for group in groups for entry in group.rows]
    letters = min(44, max(len(shorten(name, 44)) for name in names))
    left = 0.3 + LETTER * letters
    page = sheet(
        _WIDTH,
        sum(heights) + _LEGEND,
        f"Latency: {heading}",
        "One synchronised call, host clock; newest record of each variant",
    )
    top = TOP
    for group, height in zip(groups, heights, strict=True):
        page.head(top, group.rows[0].record)
        axes = page.place(left, top + _HEAD, _WIDTH - left - _FIGURES, _ROW * len(group.rows))
        _panel(axes, fastest_first(group.rows))
        top += height
    page.explain(_legend([entry.record for group in groups for entry in group.rows]))
    return svg(page)


def _panel(axes: "Axes", rows: Sequence[Stored]) -> None:
    axes.set_yticks(range(len(rows)), [shorten(name_of(entry.record), 44) for entry in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(0, _right_end(rows))
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("milliseconds a call", loc="right", labelpad=1)
    for place, entry in enumerate(rows):
        _row(axes, place, entry.record)


def _right_end(rows: Sequence[Stored]) -> float:
    timed = [entry.record for entry in rows if entry.record.latency]
    ends = [record.latency.p99_ms for record in timed if record.latency]
    ends += [bound.ms for record in timed if (bound := floor(record)) is not None]
    return 1.04 * max(ends, default=0.0) or 1.0


def _row(axes: "Axes", place: int, record: Record) -> None:
    figures, bound, colour = record.latency, floor(record), status_colour(record.status)
    beside: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "va": "center", "fontsize": 8.0}
    if figures is None:
        text = shorten(f"{record.status}: {record.measurement.reason or 'no reason is stored'}", 88)
        axes.text(0.008, place, text, color="#555555", style="italic", **beside)
        return
    axes.barh(place, figures.median_ms, height=0.56, color=colour, alpha=0.55)
    if bound is not None:
        name = f"floor-{len(axes.figure.axes)}-{place}"
        axes.plot([bound.ms, bound.ms], [place - 0.42, place + 0.42], color=INK, linewidth=1.6, gid=name)
    axes.plot([figures.low_ms, figures.high_ms], [place, place], color=INK, linewidth=2.2, solid_capstyle="butt")
    axes.plot([figures.median_ms], [place], color=INK, marker="o", markersize=3.2)
    axes.plot([figures.p99_ms], [place], color=FAINT, marker="|", markersize=9, markeredgewidth=1.4)
    middle, low, high = (milliseconds(value) for value in (figures.median_ms, figures.low_ms, figures.high_ms))
    status = "" if record.status == "ok" else f" {record.status}"
    axes.text(1.012, place, f"{middle} [{low}, {high}] ms{status}", color=INK, **beside)


def _legend(records: Sequence[Record]) -> list["Artist"]:
    """What the marks mean, of those that are there."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    timed = [record for record in records if record.latency]
    marks: list[Artist] = [
        Line2D([], [], color=INK, marker="o", markersize=3.2, linewidth=2.2, label="median, 95 % interval"),
        Line2D([], [], color=FAINT, marker="|", markersize=9, markeredgewidth=1.4, linewidth=0, label="p99"),
    ]
    if any(floor(record) for record in timed):
        marks.append(
            Line2D([], [], color=INK, marker="|", markersize=11, markeredgewidth=1.6, linewidth=0, label="floor")
        )
    shown = [status for status in MEASURED if any(record.status == status for record in timed)]
    return marks + [Patch(color=status_colour(status), alpha=0.55, label=status) for status in shown]
