"""Figures of kept units over time, with the ranges within them below one another."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bakeoff.models.words import counted
from bakeoff.record.session import UnitKind
from bakeoff.report.figures.style import BETWEEN, colours
from bakeoff.report.format import duration, shorten
from bakeoff.report.html.counters import Mark, marks
from bakeoff.report.html.drawing import Bar, Tick, time_ticks
from bakeoff.report.sessions import ReportEvent, ReportUnit, SessionReport

WIDTH, ROW = 960.0, 24.0
_TALL = 20.0
_MOST_UNITS, _MOST_BARS, _MOST_ROWS = 24, 1_200, 5
_ROOM = 8.0
"""For each digit of a unit's number."""


@dataclass(frozen=True, slots=True)
class UnitBar:
    """A unit on its row."""

    x: float
    width: float
    kind: UnitKind
    text: str
    """Its number, where there is room for it."""
    title: str


@dataclass(frozen=True, slots=True)
class Panel:
    """A stretch of units that follow one another."""

    heading: str
    height: float
    units: tuple[UnitBar, ...]
    bars: tuple[Bar, ...]
    times: tuple[Tick, ...]
    marks: tuple[Mark, ...]


def panels(report: SessionReport, colour_of: Mapping[str, str]) -> list[Panel]:
    """The first kept units, and the last ones where they do not follow on those; at most 24 each."""
    kept = sorted(report.kept, key=lambda unit: unit.index)
    first = _run(kept)[:_MOST_UNITS]
    last = _run(kept[: len(first) - 1 if first else None : -1])[:_MOST_UNITS][::-1]
    return [_panel(units, report.events, colour_of) for units in (first, last) if units]


def colours_of(report: SessionReport) -> dict[str, str]:
    """A colour for each name of a range within units, those of the account first."""
    lines = report.account.lines if report.account is not None else ()
    named = (line.name.rpartition(" / ")[2] for line in lines if line.kind != "unattributed")
    names = list(dict.fromkeys([*named, *(span.name for unit in report.kept for span in unit.spans)]))
    return {**colours(names), **BETWEEN}


def _run(units: Sequence[ReportUnit]) -> Sequence[ReportUnit]:
    """Those at the beginning whose numbers follow one another, up or down."""
    end = next(
        (place for place in range(1, len(units)) if abs(units[place].index - units[place - 1].index) != 1), len(units)
    )
    return units[:end]


def _panel(units: Sequence[ReportUnit], events: Sequence[ReportEvent], colour_of: Mapping[str, str]) -> Panel:
    start = min(unit.start_ms for unit in units)
    end = max(unit.start_ms + unit.ms for unit in units)
    scale = WIDTH / (end - start) if end > start else 0.0
    deepest = min(_MOST_ROWS, max((span.depth for unit in units for span in unit.spans), default=0))
    while deepest > 1 and sum(span.depth <= deepest for unit in units for span in unit.spans) > _MOST_BARS:
        deepest -= 1
    numbers = f"unit {units[0].index}" if len(units) == 1 else f"units {units[0].index} to {units[-1].index}"
    return Panel(
        heading=f"{numbers}: {duration(end - start)}, from {duration(start)} after the start",
        height=ROW * (deepest + 1),
        units=tuple(_unit(unit, start, scale) for unit in units),
        bars=tuple(_bars(units, start, scale, deepest, colour_of))[:_MOST_BARS],
        times=time_ticks(start, end, WIDTH) if scale else (),
        marks=marks(events, start, end, WIDTH),
    )


def _unit(unit: ReportUnit, start_ms: float, scale: float) -> UnitBar:
    width, number = round(unit.ms * scale, 1), str(unit.index)
    frames = f", {counted(unit.frames, 'frame')}" if unit.frames else ""
    return UnitBar(
        x=round((unit.start_ms - start_ms) * scale, 1),
        width=width,
        kind=unit.kind,
        text=number if width > _ROOM * (len(number) + 1) else "",
        title=f"unit {number}, {unit.kind}{frames}, {unit.ms:.3f} ms",
    )


def _bars(
    units: Sequence[ReportUnit], start_ms: float, scale: float, deepest: int, colour_of: Mapping[str, str]
) -> Iterator[Bar]:
    for unit in units:
        for span in unit.spans:
            if span.depth > deepest:
                continue
            x, width = round((span.start_ms - start_ms) * scale, 1), max(0.3, round(span.ms * scale, 1))
            title = f"{shorten(span.name, 40)}, {span.ms:.3f} ms"
            yield Bar(x, ROW * span.depth, width, _TALL, colour_of[span.name], title)
