"""Time of one rank by phase and by collective, in which every nanosecond counts once.

A phase's time is without the phases and collectives within it, so that waiting for other ranks in a collective is not
taken for work. Steps belong to their phase; what no phase has is `unattributed`.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from bakeoff.record.ranks import Clock
from bakeoff.record.session import RangeKind, SessionRecord, UnitSpans

UNATTRIBUTED = "unattributed"
_NAMED: tuple[RangeKind, ...] = ("stage", "phase", "collective", "unit")
"""A unit within a unit counts as a phase."""
_Path = tuple[str, ...]
_Totals = dict[_Path, tuple[RangeKind, int]]
"""Kind and nanoseconds by the names from the unit in; the unit itself has no names."""


@dataclass(slots=True)
class Parts:
    """Nanoseconds of one rank by name."""

    work: dict[str, float] = field(default_factory=dict)
    collectives: dict[str, float] = field(default_factory=dict)
    """By names from the unit in, as in `denoise/all_reduce`."""

    def over(self, units: int) -> "Parts":
        """The same for each of so many units."""
        return Parts(
            {name: ns / units for name, ns in self.work.items()},
            {name: ns / units for name, ns in self.collectives.items()},
        )


def parts_of(record: SessionRecord, clock: Clock, steady_alone: bool) -> Parts:
    """All units of a record together, or its steady ones alone (see `tells_units_apart`); without units the session."""
    totals = _within_units(record, clock)
    if steady_alone:
        for unit in record.spans:
            if unit.kind != "steady":
                _subtract(totals, unit)
    return _split(totals)


def tells_units_apart(record: SessionRecord) -> bool:
    """Whether every unit that is not steady was kept in full, so that its time can be subtracted from the totals."""
    kept = Counter(unit.kind for unit in record.spans if unit.is_whole)
    return all(kept[totals.kind] == totals.count for totals in record.units if totals.kind != "steady")


def has_device_times(record: SessionRecord) -> bool:
    """Whether the device's time is known of every phase and collective within units, of which there are some."""
    units = _unit_paths(record)
    times = [
        each.device_ns for each in record.ranges if each.kind in ("phase", "collective") and _depth(units, each.path)
    ]
    return bool(times) and None not in times


def _unit_paths(record: SessionRecord) -> set[_Path]:
    return {each.path for each in record.ranges if each.kind == "unit"}


def _depth(units: set[_Path], path: _Path) -> int:
    """How many names of a path reach to its unit; 0 outside units."""
    return next((depth for depth in range(1, len(path) + 1) if path[:depth] in units), 0)


def _within_units(record: SessionRecord, clock: Clock) -> _Totals:
    units = _unit_paths(record)
    totals: _Totals = {}
    for each in record.ranges:
        depth = _depth(units, each.path)
        ns = each.total_ns if clock == "host" else each.device_ns
        if ns is not None and (depth or not units):
            path = each.path[depth:]
            totals[path] = (each.kind, totals.get(path, (each.kind, 0))[1] + ns)
    return totals


def _subtract(totals: _Totals, unit: UnitSpans) -> None:
    _take(totals, (), unit.ns)
    path: _Path = ()
    for span in sorted(unit.spans, key=lambda span: (span.start_ns, span.depth)):
        path = (*path[: max(span.depth - 1, 0)], span.name)
        _take(totals, path, span.ns)


def _take(totals: _Totals, path: _Path, ns: int) -> None:
    if path in totals:
        kind, before = totals[path]
        totals[path] = (kind, before - ns)


def _split(totals: _Totals) -> Parts:
    """Each named range's time without the named ones within it; they add up to the unit's time."""
    own: dict[_Path, float] = {}
    for path in sorted(totals, key=len):
        kind, ns = totals[path]
        above = _nearest(own, path)
        if path and kind not in _NAMED and (kind != "step" or above):
            continue
        if path and above in own:
            own[above] -= ns
        own[path] = ns
    parts = Parts()
    for path, left in own.items():
        is_collective = bool(path) and totals[path][0] == "collective"
        into = parts.collectives if is_collective else parts.work
        name = "/".join(path) if is_collective else path[-1] if path else UNATTRIBUTED
        into[name] = into.get(name, 0) + left
    return parts


def _nearest(own: Mapping[_Path, float], path: _Path) -> _Path:
    """The longest path above this one that has a time; the unit's, which is empty, where there is none."""
    return next((path[:depth] for depth in range(len(path) - 1, 0, -1) if path[:depth] in own), ())
