"""The median of each variant by date: what got faster when, by what, and how far sweeps of the same code differ."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from bakeoff.record.basis import backends_of, basis_of
from bakeoff.record.schema import Record, Status
from bakeoff.record.store import Stored
from bakeoff.report.figures.style import Style, styles
from bakeoff.report.figures.vega import FAINT, Figure, Spec, filled, intervals, lines, looks, name_text, points, rounded
from bakeoff.report.format import minute
from bakeoff.report.groups import name_of

_NAMED = 2
"""Backends and libraries that a change names at most."""
_DATE = "[utcFormat(datum.value, '%b %d'), utcFormat(datum.value, '%H:%M')]"


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    when: str
    """Minute (UTC) of the first record of its sweep."""
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
class Change:
    """What differs in a sweep from the one before it."""

    when: str
    what: str


@dataclass(frozen=True, slots=True)
class History:
    sweeps: tuple[str, ...]
    """Minute (UTC) of each sweep's first record, in order."""
    series: tuple[HistorySeries, ...]
    """Those that have figures in a sweep."""
    changes: tuple[Change, ...]


def history(rows: Sequence[Stored]) -> History | None:
    """The records of a group in all their sweeps; None where fewer than two sweeps have figures."""
    ordered = sorted((entry.record for entry in rows), key=lambda record: record.created)
    sweeps: dict[str, list[Record]] = {}
    by_name: dict[str, list[Record]] = {}
    for record in ordered:
        sweeps.setdefault(record.sweep, []).append(record)
        by_name.setdefault(name_of(record), []).append(record)
    if len({record.sweep for record in ordered if record.latency is not None}) < 2:
        return None
    when = {sweep: minute(records[0].created) for sweep, records in sweeps.items()}
    style = styles(ordered)
    series = tuple(
        HistorySeries(name, style[name], tuple(_point(record, when[record.sweep]) for record in records))
        for name, records in by_name.items()
        if any(record.latency is not None for record in records)
    )
    return History(tuple(when.values()), series, tuple(_changes(list(sweeps.values()))))


def _point(record: Record, when: str) -> HistoryPoint:
    figures = record.latency
    if figures is None:
        return HistoryPoint(when, record.status, None, None, None)
    return HistoryPoint(when, record.status, figures.median_ms, figures.low_ms, figures.high_ms)


def _changes(sweeps: Sequence[Sequence[Record]]) -> Iterator[Change]:
    for before, after in pairwise(sweeps):
        what = _change(before[-1], after[0], before, after)
        if what:
            yield Change(minute(after[0].created), what)


def _change(last: Record, first: Record, before: Sequence[Record], after: Sequence[Record]) -> str:
    """In words: code of the component, of the measuring side, of backends in both, and versions of libraries."""
    old, new = basis_of(last), basis_of(first)
    found = ["component"] if old.component != new.component else []
    found += ["measuring code"] if old.instrument != new.instrument else []
    ours, theirs = (
        {name: source for record in records for name, source in backends_of(record).items()}
        for records in (before, after)
    )
    found += _some(sorted(name for name in ours.keys() & theirs.keys() if ours[name] != theirs[name]), "backends")
    had = dict(old.versions)
    found += _some([f"{name} {version}" for name, version in new.versions if had.get(name) != version], "libraries")
    return ", ".join(found)


def _some(names: Sequence[str], kind: str) -> list[str]:
    """The names, or how many of them there are where they are many."""
    return list(names) if len(names) <= _NAMED else [f"{len(names)} {kind}"]


def figure(found: History | None) -> Figure | None:
    """A line for each variant by date, and a mark where something changed. None where `found` is."""
    if found is None:
        return None
    caption = (
        "median latency of each variant with its 95 % interval, by date (UTC); hollow: not ok, cross: no figures; "
        "dotted: what changed since the sweep before"
    )
    styles = {series.name: series.style for series in found.series}
    data = [
        {
            "name": name_text(series.name),
            "when": _time(point.when),
            "status": point.status,
            "fill": filled(series.style, point.status),
            **({"ms": 0, "failed": True} if point.median_ms is None else _figures(point)),
        }
        for series in found.series
        for point in series.points
    ]
    x: Spec = {
        "field": "when", "type": "temporal", "title": None, "scale": {"type": "utc"},
        "axis": {"tickCount": 6, "grid": False, "labelOverlap": True, "labelExpr": _DATE},
    }  # fmt: skip
    y: Spec = {"field": "ms", "type": "quantitative", "title": "median ms a call", "scale": {"zero": True}}
    look = looks(styles)
    timed = [{"filter": "!datum.failed"}]
    changes = [{"when": _time(change.when), "what": name_text(change.what)} for change in found.changes]
    tooltip = [{"field": "name"}, {"field": "ms"}, {"field": "status"}]
    changed = [
        {
            "data": {"values": changes},
            "mark": {"type": "rule", "color": FAINT, "strokeDash": [2, 3], "strokeWidth": 1},
            "encoding": {"x": x, "tooltip": [{"field": "what"}]},
        },
        {
            "data": {"values": changes},
            "mark": {
                "type": "text", "angle": 270, "align": "right", "baseline": "bottom", "dx": -4, "dy": -2,
                "fontSize": 9, "color": FAINT, "limit": 200,
            },
            "encoding": {"x": x, "y": {"value": 0}, "text": {"field": "what"}},
        },
    ]  # fmt: skip
    series = [
        {"transform": timed, **lines({"x": x, "y": y, **look})},
        {"transform": timed, **intervals(x, y, look)},
        {"transform": timed, **points({"x": x, "y": y, **look, "tooltip": tooltip}, size=36)},
    ]
    crosses = {
        "transform": [{"filter": "datum.failed"}],
        "mark": {"type": "point", "shape": "M-1,-1L1,1M-1,1L1,-1", "size": 40, "opacity": 1},
        "encoding": {"x": x, "y": y, "stroke": look["stroke"]},
    }
    layers = [*(changed if changes else []), *series, *([crosses] if any("failed" in point for point in data) else [])]
    return Figure("history", "History", caption, {"height": 300, "data": {"values": data}, "layer": layers})


def _time(when: str) -> str:
    return f"{when.replace(' ', 'T')}:00Z"


def _figures(point: HistoryPoint) -> Spec:
    found = {"ms": point.median_ms, "low": point.low_ms, "high": point.high_ms}
    return {key: rounded(value) for key, value in found.items() if value is not None}
