"""Session records of ranks made by hand, whose every figure is known."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from bakeoff.record.codec import encode_json
from bakeoff.record.monitor import DeviceEnergy, Monitored, Point, SeriesRecord
from bakeoff.record.session import (
    SESSION_SCHEMA,
    RangeKind,
    RangeTotal,
    RankFacts,
    SessionRecord,
    Span,
    UnitSpans,
    UnitTotals,
)

MS = 1_000_000
STARTED = 1_800_000_000 * 10**9
DECODE, COLLECTIVE, REST = 3, 1, 1
"""Milliseconds a unit; the collective's own, without waits."""


def facts(rank: int, world: int = 4, **changes: Any) -> RankFacts:
    made = RankFacts(
        group="run-1",
        rank=rank,
        world=world,
        host="host",
        device="",
        pid=1000 + rank,
        parallelism="model",
    )
    return replace(made, **changes)


def total(path: Sequence[str], kind: RangeKind, calls: int, ms: int) -> RangeTotal:
    """Own times follow from the totals when records are written."""
    return RangeTotal(tuple(path), kind, calls, ms * MS, ms * MS)


def record(
    rank: int = 0,
    denoise_ms: int = 5,
    wait_ms: int = 0,
    units: int = 10,
    frames: int = 12,
    world: int = 4,
    decode_ms: int = DECODE,
    **changes: Any,
) -> SessionRecord:
    """Equal steady units of denoise, a collective and decode; the collective takes 1 ms and what it waits."""
    unit_ms = denoise_ms + COLLECTIVE + wait_ms + decode_ms + REST
    made = SessionRecord(
        schema=SESSION_SCHEMA,
        name="toy",
        status="ok",
        started_at="2027-01-15T08:00:00Z",
        started_wall_ns=STARTED,
        ns=(units * unit_ms + 7) * MS,
        tags={},
        settings={},
        environment={"torch": "2.13.0"},
        ranges=(
            total((), "session", 1, units * unit_ms + 7),
            total(["unit"], "unit", units, units * unit_ms),
            total(["unit", "denoise"], "phase", units, units * denoise_ms),
            total(["unit", "denoise", "step"], "step", 4 * units, units * denoise_ms),
            total(["unit", "all_reduce"], "collective", units, units * (COLLECTIVE + wait_ms)),
            total(["unit", "decode"], "phase", units, units * decode_ms),
        ),
        units=(UnitTotals("steady", units, units * frames, 0, units * unit_ms * MS, unit_ms * MS, unit_ms * MS),),
        spans=tuple(
            UnitSpans(index, "steady", frames, index * unit_ms * MS, unit_ms * MS, ()) for index in range(units)
        ),
        rank=facts(rank, world),
    )
    return replace(made, **changes)


def lockstep(denoise_ms: Sequence[int], **arguments: Any) -> list[SessionRecord]:
    """Ranks that wait for the slowest one in the collective of each unit."""
    slowest = max(denoise_ms)
    return [record(rank, own, slowest - own, world=len(denoise_ms), **arguments) for rank, own in enumerate(denoise_ms)]


def span(name: str, kind: RangeKind, depth: int, start_ms: int, ms: int) -> Span:
    return Span(name, kind, depth, start_ms * MS, ms * MS)


def with_opening(made: SessionRecord, denoise_ms: int) -> SessionRecord:
    """The same after an opening unit with nothing but a long denoise in it."""
    opening = UnitTotals("opening", 1, 9, 0, denoise_ms * MS, denoise_ms * MS, denoise_ms * MS)
    kept = UnitSpans(0, "opening", 9, 0, denoise_ms * MS, (span("denoise", "phase", 1, 0, denoise_ms),))
    later = tuple(replace(unit, index=unit.index + 1) for unit in made.spans)
    grown = ((), ("unit",), ("unit", "denoise"))
    ranges = tuple(
        replace(each, total_ns=each.total_ns + denoise_ms * MS, calls=each.calls + bool(each.path))
        if each.path in grown
        else each
        for each in made.ranges
    )
    return replace(made, units=(opening, *made.units), spans=(kept, *later), ranges=ranges)


def curve(name: str, source: str, *values: float, unit: str = "MiB") -> SeriesRecord:
    return SeriesRecord(
        name, unit, source, tuple(Point(index * MS, value, value, value, 1) for index, value in enumerate(values))
    )


def watched(device: str, mib: float, joules: float) -> Monitored:
    return Monitored(
        series=(curve("gpu.memory", device, mib / 2, mib),), energy=(DeviceEnergy(device, joules * 1000, None),)
    )


def on(made: SessionRecord, **changes: Any) -> SessionRecord:
    """The same with other facts about its rank."""
    assert made.rank is not None
    return replace(made, rank=replace(made.rank, **changes))


def summed(made: SessionRecord) -> SessionRecord:
    """The same with own times that follow from the totals, as in a record that was made by a session."""
    own = {each.path: each.total_ns for each in made.ranges}
    for each in made.ranges:
        if each.path:
            own[each.path[:-1]] -= each.total_ns
    ranges = tuple(replace(each, own_ns=own[each.path]) for each in made.ranges)
    return replace(made, ranges=ranges, ns=next(each.total_ns for each in ranges if not each.path))


def encoded(made: SessionRecord) -> bytes:
    """A rank's file."""
    return encode_json(summed(made))


def write(folder: Path, records: Iterable[SessionRecord], leave_out: Sequence[int] = ()) -> Path:
    """Files named as ranks name them."""
    folder.mkdir(parents=True, exist_ok=True)
    for made in records:
        assert made.rank is not None
        if made.rank.rank not in leave_out:
            (folder / f"rank-{made.rank.rank:05}.session.json").write_bytes(encoded(made))
    return folder


def parallel(kind: Literal["model", "data"], records: Iterable[SessionRecord]) -> list[SessionRecord]:
    return [on(made, parallelism=kind) for made in records]
