"""The median of each variant over the sweeps: what got faster when, and how far apart sweeps of the same code lie."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bakeoff.record.schema import Record
from bakeoff.report.figures.canvas import TOP, sheet, svg
from bakeoff.report.figures.style import DASHES, backend_colours
from bakeoff.report.format import shorten
from bakeoff.report.groups import Group, name_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH, _LEFT, _NAMES = 10.0, 0.75, 3.0
_HEAD, _FOOT, _LEAST, _LINE = 0.34, 0.6, 1.9, 0.175
"""Inches above a panel, below it, of the smallest panel, and of a name in its legend."""
_DATES = 8
"""Written under a panel at most."""
_SPREAD = 0.5
"""How far the variants of a sweep stand apart, of the distance between two sweeps; else they hide each other."""


def draw(heading: str, groups: Sequence[Group]) -> bytes | None:
    """One panel per group over all its sweeps, in their order. None where no row has numbers."""
    timed = [group for group in groups if any(entry.record.latency for entry in group.rows)]
    if not timed:
        return None
    bodies = [max(_LEAST, _LINE * (len(_by_variant(group)) + 1)) for group in timed]
    page = sheet(
        _WIDTH,
        sum(bodies) + (_HEAD + _FOOT) * len(timed),
        f"History: {heading}",
        "Median latency of each variant with its 95 % interval, by sweep (UTC); hollow: not ok, cross: no numbers",
    )
    top = TOP
    for group, body in zip(timed, bodies, strict=True):
        page.head(top, group.rows[0].record)
        axes = page.place(_LEFT, top + _HEAD, _WIDTH - _LEFT - _NAMES, body)
        _panel(axes, group)
        top += _HEAD + body + _FOOT
    return svg(page)


def _by_variant(group: Group) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for entry in group.rows:
        found.setdefault(name_of(entry.record), []).append(entry.record)
    return found


def _sweeps(group: Group) -> dict[str, str]:
    """When each sweep made its first record here, in order of time."""
    found: dict[str, str] = {}
    for record in sorted((entry.record for entry in group.rows), key=lambda record: record.created):
        found.setdefault(record.sweep, record.created)
    return found


def _panel(axes: "Axes", group: Group) -> None:
    sweeps = _sweeps(group)
    places = {sweep: place for place, sweep in enumerate(sweeps)}
    colours = backend_colours(group.rows)
    variants = _by_variant(group)
    step = min(0.08, _SPREAD / len(variants))
    for number, (name, records) in enumerate(variants.items()):
        aside = step * (number - (len(variants) - 1) / 2)
        line = [(places[record.sweep] + aside, record) for record in records]
        _line(axes, shorten(name, 34), line, colours[records[0].variant.backend])
    dates = [f"{created[:10]}\n{created[11:16]}" for created in sweeps.values()]
    step = -(-len(dates) // _DATES)
    axes.set_xticks(range(0, len(dates), step), dates[::step])
    axes.set_xlim(-0.5, len(dates) - 0.5)
    axes.set_ylim(0, axes.get_ylim()[1] * 1.05)
    axes.set_ylabel("median ms a call")
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.03), labelspacing=0.25, handlelength=2.4)


def _line(axes: "Axes", name: str, line: Sequence[tuple[float, Record]], colour: str) -> None:
    timed = [(place, record.status, record.latency) for place, record in line if record.latency]
    axes.plot(
        [place for place, _, _ in timed], [figures.median_ms for _, _, figures in timed], color=colour,
        linestyle=DASHES.get(line[0][1].variant.dtype, "-"), linewidth=1.2, marker="o", markersize=3.4, label=name,
    )  # fmt: skip
    axes.vlines(
        [place for place, _, _ in timed],
        [figures.low_ms for _, _, figures in timed],
        [figures.high_ms for _, _, figures in timed],
        color=colour,
        linewidth=1.1,
    )
    hollow = [(place, figures.median_ms) for place, status, figures in timed if status != "ok"]
    axes.plot(
        [place for place, _ in hollow], [median for _, median in hollow], color=colour, marker="o", markersize=5.5,
        markerfacecolor="white", linewidth=0,
    )  # fmt: skip
    failed = [place for place, record in line if not record.latency]
    axes.plot(
        failed, [0.03] * len(failed), color=colour, marker="x", markersize=4.5, linewidth=0,
        transform=axes.get_xaxis_transform(), clip_on=False,
    )  # fmt: skip
