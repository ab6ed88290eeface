"""Figures of quantities over a session: the mean as a line within the band from least to greatest."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite

from bakeoff.models.words import counted
from bakeoff.report.format import duration, shorten
from bakeoff.report.html.drawing import Tick, round_numbers, time_ticks
from bakeoff.report.sessions import ReportEvent, ReportSeries

HEIGHT = 120.0
_MOST_MARKS, _SOURCE = 100, 20
_FROM_ZERO = 0.7
"""An axis begins at zero where the least value is below this share of the greatest."""


@dataclass(frozen=True, slots=True)
class Mark:
    """An event on a time axis."""

    x: float
    title: str
    label: str
    """The name where there is room for it."""
    failed: bool


@dataclass(frozen=True, slots=True)
class Chart:
    """One series, drawn; without points that can be drawn only its numbers."""

    name: str
    unit: str
    source: str
    numbers: str
    band: str
    """A path around all values."""
    line: str
    """A path along the means."""
    dot: tuple[float, float] | None
    """A single point."""
    ticks: tuple[Tick, ...]
    times: tuple[Tick, ...]
    marks: tuple[Mark, ...]
    width: float


def chart(series: ReportSeries, session_ms: float, width: float, events: Sequence[ReportEvent]) -> Chart:
    """A series over the whole session."""
    low, high = _limits(series)
    points = series.points if isfinite(high - low) and high > low and session_ms > 0 else ()
    x = [round(min(max(point.t_ms / session_ms, 0.0), 1.0) * width, 1) for point in points]

    def y(value: float) -> float:
        return round(HEIGHT * (1 - (value - low) / (high - low)), 1)

    means = [f"{at} {y(point.mean)}" for at, point in zip(x, points, strict=True)]
    over = [f"{at} {y(point.greatest)}" for at, point in zip(x, points, strict=True)]
    under = [f"{at} {y(point.least)}" for at, point in zip(x, points, strict=True)]
    several = len(points) > 1
    return Chart(
        name=series.name,
        unit=series.unit,
        source=shorten(series.source, _SOURCE),
        numbers=_numbers(series),
        band=f"M{'L'.join([*over, *reversed(under)])}Z" if several and over != under else "",
        line=f"M{'L'.join(means)}" if several else "",
        dot=(x[0], y(points[0].mean)) if len(points) == 1 else None,
        ticks=tuple(Tick(y(value), f"{value:.6g}") for value in (round_numbers(low, high, 4) if points else ())),
        times=time_ticks(0.0, session_ms, width, round(width / 100)),
        marks=marks(events, 0.0, session_ms, width),
        width=width,
    )


def marks(events: Iterable[ReportEvent], start_ms: float, end_ms: float, width: float) -> tuple[Mark, ...]:
    """The events within a stretch of time; a name is shown where it does not cover the one before."""
    found: list[Mark] = []
    free = 0.0
    for event in sorted(events, key=lambda event: event.t_ms):
        if not start_ms <= event.t_ms <= end_ms or end_ms <= start_ms or len(found) == _MOST_MARKS:
            continue
        x = round((event.t_ms - start_ms) / (end_ms - start_ms) * width, 1)
        label = shorten(event.name, 20)
        shown = x >= free and x + 6 * len(label) <= width
        free = x + 6 * len(label) + 8 if shown else free
        title = f"{shorten(event.name, 60)}{' failed' if event.failed else ''} at {duration(event.t_ms)}"
        found.append(Mark(x, title, label if shown else "", event.failed))
    return tuple(found)


def _limits(series: ReportSeries) -> tuple[float, float]:
    """Ends of the vertical axis."""
    if series.least is None or series.greatest is None:
        return 0.0, 0.0
    low, high = series.least, series.greatest
    if 0 <= low <= _FROM_ZERO * high:
        return 0.0, high * 1.05
    room = 0.05 * (high - low) or abs(high) * 0.05 or 1.0
    return low - room, high + room


def _numbers(series: ReportSeries) -> str:
    if series.least is None or series.mean is None or series.greatest is None:
        return "no samples"
    least, mean, greatest = (f"{value:.5g}" for value in (series.least, series.mean, series.greatest))
    return f"{least} to {greatest}, mean {mean}, {counted(series.count, 'sample', form=',')}"
