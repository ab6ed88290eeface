"""The median of each variant from sweep to sweep: what got faster when, and how far sweeps of the same code differ."""

from collections.abc import Sequence
from dataclasses import dataclass

from bakeoff.record.schema import Record, Status
from bakeoff.record.store import Stored
from bakeoff.report.figures.style import Style, styles
from bakeoff.report.format import minute
from bakeoff.report.groups import name_of

_LARGEST_STEP, _LARGEST_WIDTH = 0.08, 0.5
"""On the x axis, where two sweeps are 1 apart: between neighbouring variants of a sweep, and over all of them."""


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    x: float
    """The sweep's index, moved a little aside so that the variants of a sweep do not hide each other."""
    status: Status
    median_ms: float | None
    """None where the record has no figures."""
    low_ms: float | None
    high_ms: float | None


@dataclass(frozen=True, slots=True)
class HistorySeries:
    name: str
    style: Style
    points: tuple[HistoryPoint, ...]


@dataclass(frozen=True, slots=True)
class History:
    sweeps: tuple[str, ...]
    """Minute (UTC) of each sweep's first record, in order."""
    series: tuple[HistorySeries, ...]


def history(rows: Sequence[Stored]) -> History | None:
    """The records of a group in all their sweeps; None where fewer than two sweeps have figures."""
    ordered = sorted((entry.record for entry in rows), key=lambda record: record.created)
    sweeps: dict[str, str] = {}
    by_name: dict[str, list[Record]] = {}
    for record in ordered:
        sweeps.setdefault(record.sweep, minute(record.created))
    for entry in rows:
        by_name.setdefault(name_of(entry.record), []).append(entry.record)
    if len({record.sweep for record in ordered if record.latency is not None}) < 2:
        return None
    index = {sweep: number for number, sweep in enumerate(sweeps)}
    style = styles(entry.record for entry in rows)
    step = min(_LARGEST_STEP, _LARGEST_WIDTH / len(by_name))
    series = [
        HistorySeries(
            name,
            style[name],
            tuple(_point(record, index[record.sweep] + step * (number - (len(by_name) - 1) / 2)) for record in records),
        )
        for number, (name, records) in enumerate(by_name.items())
    ]
    return History(tuple(sweeps.values()), tuple(series))


def _point(record: Record, x: float) -> HistoryPoint:
    figures = record.latency
    if figures is None:
        return HistoryPoint(x, record.status, None, None, None)
    return HistoryPoint(x, record.status, figures.median_ms, figures.low_ms, figures.high_ms)
