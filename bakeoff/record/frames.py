"""Figures of a pipeline's run, computed from the integer nanoseconds of its steady units and never stored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from bakeoff.record.pipeline import LineKind, PipelineRecord, Units
from bakeoff.record.statistics import summarise_ns
from bakeoff.record.verdict import FEWEST_FOR_INTERVAL, Word, pair_ratio

FEWEST_FOR_P99 = 100
"""Units: of fewer, the 99th percentile by nearest rank is the largest one."""
_BETWEEN: Mapping[LineKind, int] = {"phase": 0, "glue": 1, "copies": 2, "unattributed": 3}


@dataclass(frozen=True, slots=True)
class FrameFigures:
    """What a video frame costs in the steady units of a run."""

    units: int
    frames: int
    """Video frames of all these units."""
    ms_a_frame: float
    """Median over units of the wall time divided by the frames."""
    interval: tuple[float, float] | None
    """The 95 % interval of that median; None for fewer than six units."""
    p99_ms: float | None
    """99th percentile of milliseconds a frame, by nearest rank; None for fewer than 100 units."""
    frames_per_s: float
    """Frames over wall time, of all these units together."""
    units_per_s: float
    first_frame_ms: float | None
    """Opening of the first session and its first unit; None where the run lacks them."""
    real_time: float | None
    """Frames a second over the rate that the model was made for; None where the unit is a call and not a frame."""


@dataclass(frozen=True, slots=True)
class PhaseRow:
    """One line of the account, over all steady units."""

    name: str
    kind: LineKind
    slot: str
    calls: int | None
    """Calls of programs in a unit; None for lines without calls, and where the record does not tell."""
    ns: int
    """Total over the units."""
    ms: float
    """Mean a unit, in milliseconds."""
    thousandths: int
    """Share of the units' time; those of all rows add up to 1,000."""

    @property
    def share(self) -> str:
        return f"{self.thousandths / 10:.1f} %"


@dataclass(frozen=True, slots=True)
class LineDifference:
    """One line of the account in two mixes: mean milliseconds a unit."""

    name: str
    before_ms: float
    after_ms: float


@dataclass(frozen=True, slots=True)
class BeforeAfter:
    """Two mixes that took turns unit by unit."""

    word: Word
    """What the second mix is, held against the first."""
    ratio: float
    """Median over pairs of units of the first mix's time over the second's: above 1 where the second is faster."""
    interval: tuple[float, float] | None
    """The 95 % interval of that median; None for fewer than six pairs."""
    pairs: int
    lines: tuple[LineDifference, ...]
    """They add up to the difference of the mean units."""


def steady(units: Units) -> list[int]:
    """Positions of the units that figures are computed from: steady ones in which nothing was compiled or captured."""
    return [place for place, kind in enumerate(units.kinds) if kind == "steady" and str(place) not in units.moved]


def figures(record: PipelineRecord) -> FrameFigures | None:
    """Figures of the steady units; None where there is no such unit, or where they deliver no frames."""
    units = record.measurement.units
    chosen = steady(units) if units is not None else []
    if units is None or not any(units.frames[place] for place in chosen):
        return None
    wall_s = sum(units.wall_ns[place] for place in chosen) / 1e9
    frames = sum(units.frames[place] for place in chosen)
    samples = [units.wall_ns[place] / units.frames[place] for place in chosen if units.frames[place]]
    summary = summarise_ns([round(sample) for sample in samples])
    opened = record.measurement.opened_ns
    return FrameFigures(
        units=len(chosen),
        frames=frames,
        ms_a_frame=summary.median_ms,
        interval=(summary.low_ms, summary.high_ms) if len(samples) >= FEWEST_FOR_INTERVAL else None,
        p99_ms=nearest_rank(samples, 0.99) / 1e6 if len(samples) >= FEWEST_FOR_P99 else None,
        frames_per_s=frames / wall_s,
        units_per_s=len(chosen) / wall_s,
        first_frame_ms=(opened[0] + units.wall_ns[0]) / 1e6 if opened else None,
        real_time=frames / wall_s / record.frame_rate if record.frame_rate else None,
    )


def nearest_rank(values: Sequence[float], share: float) -> float:
    """The smallest of the values that at least `share` of them do not exceed. Raises ValueError without values."""
    if not values:
        raise ValueError("no values")
    return sorted(values)[max(0, ceil(round(share * len(values), 9)) - 1)]


def shares(parts: Sequence[int]) -> tuple[int, ...]:
    """Each part's share of their sum in thousandths; they add up to 1,000 (largest remainders are rounded up).

    All are 0 where the sum is 0.
    """
    total = sum(parts)
    if total == 0:
        return (0,) * len(parts)
    whole = [part * 1000 // total for part in parts]
    order = sorted(range(len(parts)), key=lambda place: (-(parts[place] * 1000 % total), place))
    for place in order[: 1000 - sum(whole)]:
        whole[place] += 1
    return tuple(whole)


def phases(record: PipelineRecord) -> tuple[PhaseRow, ...]:
    """The account of the steady units: their phases in the order of a unit, then glue, copies and what has no name."""
    units = record.measurement.units
    chosen = steady(units) if units is not None else []
    if units is None or not chosen:
        return ()
    met = [line for line in units.lines if line.kind != "phase" or any(line.ns[place] for place in chosen)]
    lines = sorted(met, key=lambda line: _BETWEEN[line.kind])
    totals = [sum(line.ns[place] for place in chosen) for line in lines]
    return tuple(
        PhaseRow(
            name=line.name,
            kind=line.kind,
            slot=line.slot,
            calls=record.phase_calls.get(line.name) or None,
            ns=total,
            ms=total / len(chosen) / 1e6,
            thousandths=share,
        )
        for line, total, share in zip(lines, totals, shares(totals), strict=True)
    )


def before_after(before: PipelineRecord, after: PipelineRecord) -> BeforeAfter | None:
    """Two mixes of one run held against each other; None where they did not take turns, or share no steady unit.

    The ratio and its interval come from the same quantity, the ratio of each pair of units. Both workers are one
    process each, so a difference of two processes of the same program (bakeoff.record.verdict) is part of it.
    """
    a, b = before.measurement.units, after.measurement.units
    together = before.run == after.run and before.how == after.how == "interleaved"
    if a is None or b is None or not together:
        return None
    pairs = sorted(set(steady(a)) & set(steady(b)))
    if not pairs:
        return None
    found = pair_ratio([a.wall_ns[place] for place in pairs], [b.wall_ns[place] for place in pairs])
    before_rows, after_rows = ({row.name: row for row in phases(record)} for record in (before, after))
    names = sorted({**before_rows, **after_rows}, key=lambda name: _place(name, before_rows, after_rows))
    return BeforeAfter(
        word=found.word,
        ratio=found.ratio,
        interval=found.interval,
        pairs=found.pairs,
        lines=tuple(LineDifference(name, _ms(before_rows.get(name)), _ms(after_rows.get(name))) for name in names),
    )


def _place(name: str, *rows: Mapping[str, PhaseRow]) -> int:
    """Phases first, in the order they come (sorting is stable)."""
    return next(_BETWEEN[found[name].kind] for found in rows if name in found)


def _ms(row: PhaseRow | None) -> float:
    return row.ms if row is not None else 0.0
