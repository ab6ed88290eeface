"""Computes frame times and rates of a pipeline's run from its steady units; they are never stored."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from bakeoff.record.account import account_lines, steady
from bakeoff.record.pipeline import PipelineRecord
from bakeoff.record.statistics import FEWEST_FOR_P99, summarise_ns
from bakeoff.record.verdict import FEWEST_FOR_INTERVAL, PairRatio, pair_ratio

FROM_OPENING = "with opening, first units"


@dataclass(frozen=True, slots=True)
class FrameFigures:
    """Cost of a video frame in the steady units of a run."""

    units: int
    frames: int
    """Video frames of all these units."""
    ms_a_frame: float
    """Median over units of the wall time per frame."""
    interval: tuple[float, float] | None
    """The 95 % interval of that median; None for fewer than six units."""
    p99_ms: float | None
    """99th percentile of milliseconds a frame, by nearest rank; None for fewer than 100 units."""
    frames_per_s: float
    """Frames of all these units divided by their wall time."""
    units_per_s: float
    first_frame_ms: float | None
    """Time to open the first session and run its units up to the first with frames; None without the opening."""
    real_time: float | None
    """Frames a second divided by the rate that the model was made for; None if the unit is a call and not a frame."""


def figures(record: PipelineRecord) -> FrameFigures | None:
    """Return the figures of the steady units; None if there is no such unit, or if these units deliver no frames."""
    units = record.measurement.units
    chosen = steady(units) if units is not None else []
    if units is None or not any(units.frames[place] for place in chosen):
        return None
    wall_s = sum(units.wall_ns[place] for place in chosen) / 1e9
    frames = sum(units.frames[place] for place in chosen)
    samples = [units.wall_ns[place] / units.frames[place] for place in chosen if units.frames[place]]
    summary = summarise_ns([round(sample) for sample in samples])
    opened = record.measurement.opened_ns
    first = next(place for place, count in enumerate(units.frames) if count)
    return FrameFigures(
        units=len(chosen),
        frames=frames,
        ms_a_frame=summary.median_ms,
        interval=(summary.low_ms, summary.high_ms) if len(samples) >= FEWEST_FOR_INTERVAL else None,
        p99_ms=nearest_rank(samples, 0.99) / 1e6 if len(samples) >= FEWEST_FOR_P99 else None,
        frames_per_s=frames / wall_s,
        units_per_s=len(chosen) / wall_s,
        first_frame_ms=(opened[0] + sum(units.wall_ns[: first + 1])) / 1e6 if opened else None,
        real_time=frames / wall_s / record.frame_rate if record.frame_rate else None,
    )


def scopes(record: PipelineRecord) -> dict[str, float]:
    """Return video frames a second by line of a steady unit's account, of the line and all before it: the last is of
    whole units. `FROM_OPENING` is of the first session with its opening and all its units but those after a pause.

    Empty without figures, and for a call, which makes no frames.
    """
    found, units, opened = figures(record), record.measurement.units, record.measurement.opened_ns
    if found is None or found.real_time is None or units is None:
        return {}
    rates, ns = dict[str, float](), 0
    for line in account_lines(record):
        ns += line.ns
        rates[line.name] = found.frames * 1e9 / max(ns, 1)
    first = [
        place
        for place, (session, kind) in enumerate(zip(units.sessions, units.kinds, strict=True))
        if session == units.sessions[0] and kind != "resuming"
    ]
    wall_ns = sum(units.wall_ns[place] for place in first)
    if opened:
        rates[FROM_OPENING] = sum(units.frames[place] for place in first) * 1e9 / (opened[0] + wall_ns)
    return rates


def nearest_rank(values: Sequence[float], share: float) -> float:
    """Return a percentile by nearest rank: the smallest value that at least `share` of the values do not exceed.

    Raises ValueError without values.
    """
    if not values:
        raise ValueError("no values")
    return sorted(values)[max(0, ceil(round(share * len(values), 9)) - 1)]


def before_after(before: PipelineRecord, after: PipelineRecord) -> PairRatio | None:
    """Compare two mixes of one run; None if they did not take turns or have no steady unit in common.

    The ratio and its interval come from the same quantity, the ratio of each pair of units. Each mix ran in a single
    process, so the ratio includes the difference that two processes of the same program have (bakeoff.record.verdict).
    """
    a, b = before.measurement.units, after.measurement.units
    together = before.run == after.run and before.how == after.how == "interleaved"
    if a is None or b is None or not together:
        return None
    pairs = sorted(set(steady(a)) & set(steady(b)))
    if not pairs:
        return None
    return pair_ratio([a.wall_ns[place] for place in pairs], [b.wall_ns[place] for place in pairs])
