"""Samples over time: what a median hides, such as drift, steps and two speeds; the warm-up is shaded."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bakeoff.record.schema import Record, Samples
from bakeoff.record.store import Stored
from bakeoff.report.figures.canvas import INK, TOP, sheet, svg
from bakeoff.report.figures.style import envelope, status_colour
from bakeoff.report.format import shorten
from bakeoff.report.groups import Group, name_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH, _COLUMNS = 10.0, 3
_LEFT, _GAP = 0.62, 0.62
_HEAD, _PANEL, _STEP = 0.5, 0.95, 1.5
"""Inches of a group's heading, of a panel, and from one row of panels to the next."""

_POINTS, _DOTS = 240, 100
"""Drawn in a panel at most, and up to which each sample is a dot."""


def draw(heading: str, groups: Sequence[Group]) -> bytes | None:
    """A small panel for each row that has samples. None where none has."""
    timed = [(group, [entry for entry in group.rows if entry.record.latency]) for group in groups]
    timed = [(group, rows) for group, rows in timed if rows]
    if not timed:
        return None
    heights = [_HEAD + _STEP * -(-len(rows) // _COLUMNS) for _, rows in timed]
    page = sheet(
        _WIDTH,
        sum(heights),
        f"Samples: {heading}",
        "Milliseconds of each call of the latency clock in the order taken; warm-up shaded, the median as a line",
    )
    width = (_WIDTH - _LEFT - _GAP * (_COLUMNS - 1) - 0.2) / _COLUMNS
    top = TOP
    for (group, rows), height in zip(timed, heights, strict=True):
        page.head(top, group.rows[0].record)
        for place, entry in enumerate(rows):
            line, column = divmod(place, _COLUMNS)
            left = _LEFT + column * (width + _GAP)
            _panel(page.place(left, top + _HEAD + line * _STEP, width, _PANEL), entry)
        top += height
    return svg(page)


def _panel(axes: "Axes", entry: Stored) -> None:
    record = entry.record
    clock, figures = record.measurement.latency, record.latency
    assert clock is not None
    assert figures is not None
    warmup = len(clock.warmup_ns)
    places, values = envelope(Samples((*clock.warmup_ns, *clock.samples_ns)), _POINTS)
    axes.axvspan(0.5, warmup + 0.5, color="#dfe6ef", linewidth=0, gid=f"warm-up-{len(axes.figure.axes)}")
    dots: dict[str, Any] = {"marker": ".", "markersize": 2.4} if len(places) <= _DOTS else {}
    axes.plot([place + 1 for place in places], values, color=status_colour(record.status), linewidth=0.7, **dots)
    axes.axhline(figures.median_ms, color=INK, linewidth=0.8, zorder=3)
    axes.set_xlim(0.5, max(warmup + len(clock.samples_ns), 2) + 0.5)
    axes.margins(y=0.08)
    axes.locator_params(axis="y", nbins=4)
    axes.locator_params(axis="x", nbins=5, integer=True)
    axes.set_title(_title(record), fontsize=8.0)


def _title(record: Record) -> str:
    name = name_of(record)
    return shorten(name, 42) if record.status == "ok" else f"{shorten(name, 26)}, {record.status}"
