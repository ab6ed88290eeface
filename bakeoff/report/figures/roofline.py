"""The roofline: arithmetic intensity against speed, under what the device was measured, or is stated, to do at best.

After Williams, Waterman and Patterson (CACM 52-4, 2009).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bakeoff.machine.datasheets import find_datasheet
from bakeoff.machine.floors import peak_bandwidth, peak_flops
from bakeoff.models.types import DTYPES
from bakeoff.record.schema import Record
from bakeoff.report.figures.canvas import INK, TOP, sheet, svg
from bakeoff.report.figures.style import DASHES, MARKERS, backend_colours
from bakeoff.report.format import shorten
from bakeoff.report.groups import Group, name_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH, _LEFT, _NAMES = 10.0, 0.95, 3.0
_HEAD, _FOOT, _LEAST, _LINE = 0.34, 0.6, 3.0, 0.175


@dataclass(frozen=True, slots=True)
class Roof:
    """Peaks a second of a dtype on one device."""

    dtype: str
    flops: float
    bytes_per_s: float

    @property
    def ridge(self) -> float:
        """FLOP a byte from which on work bounds and not traffic."""
        return self.flops / self.bytes_per_s

    def at(self, intensity: float) -> float:
        """FLOP a second that cannot be passed at this many FLOP a byte."""
        return min(self.flops, intensity * self.bytes_per_s)


@dataclass(frozen=True, slots=True)
class Point:
    record: Record
    intensity: float
    """FLOP a byte of compulsory traffic."""
    flops_per_s: float


def draw(heading: str, groups: Sequence[Group]) -> bytes | None:
    """One panel for each group that has roofs and points. None where none has."""
    found = [(group, roofs(group), points(group)) for group in groups]
    found = [panel for panel in found if panel[1] and panel[2]]
    if not found:
        return None
    bodies = [max(_LEAST, _LINE * (len(placed) + len(bounds) + 1)) for _, bounds, placed in found]
    page = sheet(
        _WIDTH,
        sum(bodies) + (_HEAD + _FOOT) * len(found),
        f"Roofline: {heading}",
        "Work of a call over its compulsory traffic, against work over the median latency; hollow: not ok",
    )
    top = TOP
    for (group, bounds, placed), body in zip(found, bodies, strict=True):
        page.head(top, group.rows[0].record)
        axes = page.place(_LEFT, top + _HEAD, _WIDTH - _LEFT - _NAMES, body)
        _panel(axes, bounds, placed, backend_colours(group.rows))
        top += _HEAD + body + _FOOT
    return svg(page)


def points(group: Group) -> list[Point]:
    """Rows with numbers whose work and traffic are stated."""
    return [
        Point(record, record.flops / record.minimum_bytes, record.flops * 1e3 / record.latency.median_ms)
        for record in (entry.record for entry in group.rows)
        if record.latency and record.flops and record.minimum_bytes
    ]


def roofs(group: Group) -> list[Roof]:
    """By dtype, from the newest record that has measured ceilings, else from the datasheet of a known GPU."""
    records = sorted((entry.record for entry in group.rows), key=lambda record: record.created, reverse=True)
    measured = next((record for record in records if record.ceilings), None)
    if measured is not None:
        pairs = [(dtype, peak_flops(measured.ceilings, dtype)) for dtype in DTYPES]
        found = [
            Roof(dtype, peak, peak_bandwidth(measured.ceilings, _traffic(records, dtype)))
            for dtype, peak in pairs
            if peak
        ]
        return [roof for roof in found if roof.bytes_per_s]
    sheet_of = find_datasheet(records[0].host, records[0].variant.device)
    if sheet_of is None:
        return []
    return [Roof(dtype, sheet_of.flops[dtype], sheet_of.bytes_per_s) for dtype in DTYPES if dtype in sheet_of.flops]


def _traffic(records: Sequence[Record], dtype: str) -> int:
    """Bytes of a call in `dtype`, or of any where no row has it: which cache level bounds the roof."""
    own = [record.minimum_bytes for record in records if record.variant.dtype == dtype and record.minimum_bytes]
    return max(own or [record.minimum_bytes for record in records])


def _panel(axes: "Axes", bounds: Sequence[Roof], placed: Sequence[Point], colours: Mapping[str, str]) -> None:
    from matplotlib.ticker import EngFormatter, LogLocator

    ridges = [roof.ridge for roof in bounds]
    spans = [*ridges, *(point.intensity for point in placed)]
    low, high = min(spans) / 4, max(spans) * 4
    axes.set_xscale("log")
    axes.set_yscale("log")
    for roof in bounds:
        line = [low, roof.ridge, high]
        name = f"{roof.dtype} roof: {_si(roof.flops)}FLOP/s, {_si(roof.bytes_per_s)}B/s"
        axes.plot(
            line, [roof.at(place) for place in line], color=INK, linewidth=1.3, linestyle=DASHES.get(roof.dtype, "-"),
            label=name,
        )  # fmt: skip
    for point in placed:
        _point(axes, point, colours[point.record.variant.backend])
    axes.set_xlim(low, high)
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.yaxis.set_major_formatter(EngFormatter(sep=" "))
    axes.minorticks_off()
    axes.set_xlabel("FLOP a byte")
    axes.set_ylabel("FLOP/s")
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.02), labelspacing=0.25, handlelength=2.0)


def _point(axes: "Axes", point: Point, colour: str) -> None:
    record = point.record
    axes.plot(
        [point.intensity], [point.flops_per_s], color=colour, marker=MARKERS.get(record.variant.dtype, "o"),
        markersize=6.0, linewidth=0, markerfacecolor=colour if record.status == "ok" else "white",
        label=shorten(name_of(record), 34),
    )  # fmt: skip


def _si(value: float) -> str:
    """Three digits with a prefix, as in `14.6 G`."""
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}"
    return f"{value:.3g} "
