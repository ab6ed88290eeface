"""Times of a rank by phase and collective, and each figure's spread over ranks.

Every nanosecond counts once: a phase's time is without the phases and collectives within it, so that waiting for other
ranks in a collective does not count as work. Steps belong to their phase; time in no phase is `unattributed`.
"""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from bakeoff.profile.ranks.reading import RankFile
from bakeoff.record.account import UNATTRIBUTED, pieces_of, pieces_of_steady
from bakeoff.record.monitor import SeriesRecord
from bakeoff.record.ranks import Clock, RankRow, Spread
from bakeoff.record.session import RangeTotal, SessionRecord

Times = dict[str, float]
"""Nanoseconds by name."""
_MS = 1e6


def parts_of(record: SessionRecord, clock: Clock, steady_alone: bool) -> tuple[Times, Times]:
    """Return the times of phases and of collectives over all units of a record; without units, those of the session.

    With `steady_alone`, they are those of its steady units by the host's clock; `tells_units_apart` must be true.
    """
    pieces = pieces_of_steady(record) if steady_alone else pieces_of(record, clock, whole=True)
    phases: Times = {}
    collectives: Times = {}
    for path, _, ns in sorted(pieces, key=lambda piece: len(piece[0])):
        depths = [depth for depth, (_, kind) in enumerate(path, 1) if kind != "step"]
        named = path[: depths[-1] if depths else 1]
        if named and named[-1][1] == "collective":
            name = "/".join(name for name, _ in named)
            collectives[name] = collectives.get(name, 0) + ns
        else:
            name = named[-1][0] if named else UNATTRIBUTED
            phases[name] = phases.get(name, 0) + ns
    if UNATTRIBUTED in phases:  # the last one
        phases[UNATTRIBUTED] = phases.pop(UNATTRIBUTED)
    return phases, collectives


def has_device_times(record: SessionRecord) -> bool:
    """Return whether units have phases or collectives, and the device's time of each of these is known."""
    within = [each for each in record.ranges if each.kind in ("phase", "collective") and _is_in_unit(record, each)]
    return bool(within) and all(each.device_ns is not None for each in within)


def _is_in_unit(record: SessionRecord, found: RangeTotal) -> bool:
    return any(each.kind == "unit" and found.path[: len(each.path)] == each.path for each in record.ranges)


def spreads_of(files: Sequence[RankFile], rows: Sequence[RankRow]) -> tuple[Spread, ...]:
    """Return least, median and greatest of each figure that any rank has, in the order in which they first occur."""
    values: dict[tuple[str, str], dict[int, float]] = {}
    for file, row in zip(files, rows, strict=True):
        for name, unit, value in _figures(file, row):
            values.setdefault((name, unit), {})[row.rank] = value
    return tuple(_spread(name, unit, ranks) for (name, unit), ranks in values.items())


def _spread(name: str, unit: str, values: Mapping[int, float]) -> Spread:
    least = min(values, key=lambda rank: (values[rank], rank))
    greatest = max(values, key=lambda rank: (values[rank], -rank))
    middle = median(values.values())
    return Spread(name, unit, values[least], middle, values[greatest], least, greatest, len(values))


def _figures(file: RankFile, row: RankRow) -> Iterator[tuple[str, str, float]]:
    """Yield name, unit and value of each figure of a rank."""
    if row.unit_ns is not None:
        yield "unit", "ms", row.unit_ns / _MS
    if row.frames_per_s is not None:
        yield "frames_per_s", "frames/s", row.frames_per_s
    yield "session", "ms", row.ns / _MS
    named = {**_prefixed("phase", row.phases), **_prefixed("collective", row.collectives)}
    if row.wait_ns is not None:
        named["wait"] = row.wait_ns
    yield from ((name, "ms a unit", ns / _MS) for name, ns in named.items())
    for word, ranges in (("stage", file.record.ranges), ("before", file.record.before)):
        for each in ranges:
            if each.kind == "stage" and not _is_in_unit(file.record, each):
                yield f"{word}.{'/'.join(each.path)}", "ms", each.total_ns / _MS
    for curve in _own_series(file.record, file.facts.device):
        if curve.mean is not None and curve.greatest is not None:
            yield f"{curve.name}.mean", curve.unit, curve.mean
            yield f"{curve.name}.greatest", curve.unit, curve.greatest


def _prefixed(word: str, times: Mapping[str, float]) -> Times:
    return {f"{word}.{name}": ns for name, ns in times.items()}


def _own_series(record: SessionRecord, device: str) -> Iterator[SeriesRecord]:
    """Yield the rank's series, without those of other GPUs that it sees and those of units and phases."""
    yield from (curve for curve in record.series if curve.name != "unit" and not curve.name.startswith("phase."))
    for curve in record.monitored.series if record.monitored else ():
        if not curve.name.startswith("gpu.") or curve.source == device:
            yield curve
