"""Computes whether a mix held a frame rate over minutes, from the stamps of its units; nothing of it is stored.

A viewer shows frames at a fixed rate once a start buffer is full. Every deadline stays where it was, so that one slow
unit makes one late unit unless the mix falls behind.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from statistics import median
from typing import Final, get_args

from bakeoff.record.frames import nearest_rank
from bakeoff.record.pipeline import Caches, PipelineRecord, Start, Started, Sustained
from bakeoff.record.statistics import interval_ranks, quantile_ranks, summarise_ns

PERCENTILES: Final = {"median": (0.5, 1), "p90": (0.9, 10), "p99": (0.99, 100), "p99.9": (0.999, 1000)}
"""Share of units of each percentile, and the fewest units that it takes: with fewer, it is the slowest unit."""
Percentile = tuple[int, int | None, int | None]
"""A percentile of unit times in ns by nearest rank, which is one of the times that occurred, and the ends of its 95 %
interval by order statistics; None for an end that lies beyond the units that ran."""
MINUTE_NS, NEVER_NS = 60_000_000_000, 1 << 62
_FEWEST_IN_A_MINUTE = 6


@dataclass(frozen=True, slots=True)
class Stamp:
    """One unit on the time axis of a run, in nanoseconds from any start."""

    submit_ns: int
    """When it was begun."""
    ready_ns: int
    """When all its frames were there."""
    frames: int
    opened_ns: int = 0
    """Time to open its session, before it was begun; 0 if the session was open."""

    @property
    def ns(self) -> int:
        return self.ready_ns - self.submit_ns


@dataclass(slots=True)
class Viewer:
    """What a viewer has seen of the units so far; the playback starts once `how.buffer` units are ready.

    Unit i is due at the start of the playback plus the time of the frames of the units before it. Units of a paced run
    lie where they ran. Those of a saturating run lie end to end, with the time to open their session before the first
    of each session: between two units the lab checks outputs and draws inputs, which is not the mix's time.
    """

    how: Sustained
    units: list[Stamp] = field(default_factory=list)
    misses: int = 0
    """Units that were not ready when they were due."""
    least_buffer_ns: int = 0
    """Least time from the first unit's being ready to the start of the playback that would have made no unit late."""
    frames: int = 0
    _start_ns: int = 0

    def add(self, started_ns: int, wall_ns: int, frames: int, opened_ns: int) -> None:
        """Add the next unit; `opened_ns` is the time to open its session, 0 if one was open."""
        last_ns = self.units[-1].ready_ns if self.units else 0
        submit_ns = started_ns if self.how.paced else last_ns + opened_ns
        self.units.append(Stamp(submit_ns, submit_ns + wall_ns, frames, opened_ns))
        behind_ns = submit_ns + wall_ns - round(self.frames * 1e9 / self.how.fps)
        self.frames += frames
        self.least_buffer_ns = max(self.least_buffer_ns, behind_ns - self.units[0].ready_ns)
        if len(self.units) == self.how.buffer:
            self._start_ns = submit_ns + wall_ns
        elif len(self.units) > self.how.buffer:
            self.misses += behind_ns > self._start_ns


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of a sustained run, for a viewer at its rate."""

    fps: float
    units: int
    frames: int
    ns: int
    """From the beginning of the first unit to the end of the last one."""
    left_out: int
    """Units of the warm-up, before the first steady unit, which are in none of these figures."""
    misses: int
    least_buffer_ns: int
    made_fps: float
    """Frames a second of all units in their own time and that of opening their sessions, without the waits of a paced
    run."""
    last_third_fps: float
    """The same of the last third of the units, without the slowest of them if there are several: one slow unit does not
    say that a mix became slower."""
    percentiles: dict[str, Percentile | None]
    """By their names in PERCENTILES; None for too few units."""
    slowest_ns: int
    droop: tuple[float, float, float] | None
    """The median unit of the last minute over that of the second one, above 1 if units became slower, and the ends of
    its interval: from the 95 % intervals of both medians, so that it is rather too wide. None for a run of less than
    three minutes, or with fewer than six units in one of the two minutes."""

    @property
    def keeps_up(self) -> bool:
        """Whether the units make the frames of the rate, and their last third does. Otherwise the buffer that hides
        every late unit grows with the length of the run, and none is enough."""
        return min(self.made_fps, self.last_third_fps) >= self.fps


@dataclass(frozen=True, slots=True)
class FirstFrames:
    """Figures of a fresh process, for a viewer that is shown each unit as soon as the one before it was seen."""

    first_ns: int
    """Time from the start of the process to the first frame."""
    good_ns: int
    """Time to the first frame that is right, as all later ones are, and after which no unit is late; `NEVER_NS` if
    there is none, or fewer than six units or a third of them follow it."""
    good: int | None
    """Unit of that frame; None if there is none."""
    late: tuple[int, ...]
    """Units that took longer than the frames of the one before them are shown."""
    parts_ns: dict[str, int]
    """Parts of the time to the good frame, or to the first one if none is good; they add up to it."""


def first_frames(start: Start, fps: float) -> FirstFrames | None:
    """Return the figures of a fresh process; None if it made no frame."""
    shown = [unit for unit, count in enumerate(start.frames) if count]
    if not shown:
        return None
    ready = [start.wall_ns + ns for ns in accumulate((0, *start.units_ns[1:]))]
    late = [unit for last, unit in pairwise(shown) if (ready[unit] - ready[last]) * fps > start.frames[last] * 1e9]
    least = max([shown[0], *late, *(unit + 1 for unit in start.wrong)])
    left = [unit for unit in shown if unit >= least]
    good = left[0] if len(left) > max(_FEWEST_IN_A_MINUTE, len(shown) / 3) else None
    parts = {**start.parts_ns, "first calls": sum(start.units_ns[: shown[0] + 1])}
    parts["filling"] = 0 if good is None else ready[good] - ready[shown[0]]
    total_ns = ready[shown[0]] + parts["filling"]
    parts["rest"] = total_ns - sum(parts.values())
    return FirstFrames(ready[shown[0]], NEVER_NS if good is None else ready[good], good, tuple(late), parts)


def starts_of(record: PipelineRecord, caches: Caches) -> list[tuple[Start, FirstFrames]]:
    """Return the starts with these caches that made frames, those with the earliest good frame first."""
    fps = record.sustained.fps if record.sustained is not None else 0.0
    made = [(start, first_frames(start, fps)) for start in record.starts if start.caches == caches]
    found = [(start, figures) for start, figures in made if figures is not None]
    return sorted(found, key=lambda pair: (pair[1].good_ns, pair[1].first_ns))


def started(id: str, record: PipelineRecord) -> Started | None:
    """Return what the starts of a record measured; None if none made a frame."""
    own = {caches: found for caches in get_args(Caches) if (found := starts_of(record, caches))}
    good = {caches: percentile([made.good_ns for _, made in found], "median") for caches, found in own.items()}
    compiled = {caches: round(median(start.parts_ns["compile"] for start, _ in found)) for caches, found in own.items()}
    known = {caches: each for caches, each in good.items() if each is not None}
    return Started(id, known, compiled, record.shipped) if known else None


def first_ms(figures: Started | None) -> tuple[float, float | None, float | None] | None:
    """Return the time to the first good frame as `Forecast.first_ms` has it; an end that is not known is None."""
    median_ns, *ends = figures.good_ns[figures.caches] if figures is not None else (NEVER_NS, None, None)
    low, high = (None if ns is None or ns == NEVER_NS else ns / 1e6 for ns in ends)
    return None if median_ns == NEVER_NS else (median_ns / 1e6, low, high)


def viewer_of(record: PipelineRecord) -> Viewer | None:
    """Return what a viewer saw of a sustained run from its first steady unit on; None for another run."""
    units, how = record.measurement.units, record.sustained
    if units is None or how is None:
        return None
    viewer = Viewer(how)
    first = units.kinds.index("steady") if "steady" in units.kinds else len(units.kinds)
    for unit in range(first, len(units.kinds)):
        session, before = units.sessions[unit], units.sessions[max(first, unit - 1)]
        opened_ns = record.measurement.opened_ns[session] if session != before else 0
        viewer.add(units.started_ns[unit], units.wall_ns[unit], units.frames[unit], opened_ns)
    return viewer


def figures(record: PipelineRecord) -> Figures | None:
    """Return the figures of a sustained run; None if its steady units do not fill the buffer, or show no frame."""
    viewer = viewer_of(record)
    if viewer is None or len(viewer.units) < viewer.how.buffer or not viewer.frames:
        return None
    assert record.measurement.units is not None
    stamps = viewer.units
    third = sorted(stamps[2 * len(stamps) // 3 :], key=lambda stamp: stamp.ns + stamp.opened_ns)
    times = [stamp.ns for stamp in stamps]
    return Figures(
        fps=viewer.how.fps,
        units=len(stamps),
        frames=viewer.frames,
        ns=stamps[-1].ready_ns - stamps[0].submit_ns,
        left_out=len(record.measurement.units.kinds) - len(stamps),
        misses=viewer.misses,
        least_buffer_ns=viewer.least_buffer_ns,
        made_fps=_made_fps(stamps),
        last_third_fps=_made_fps(third[:-1] or third),
        percentiles={name: percentile(times, name) for name in PERCENTILES},
        slowest_ns=max(times),
        droop=droop(stamps),
    )


def _made_fps(stamps: Sequence[Stamp]) -> float:
    return sum(stamp.frames for stamp in stamps) * 1e9 / sum(stamp.ns + stamp.opened_ns for stamp in stamps)


def percentile(times_ns: Sequence[int], name: str) -> Percentile | None:
    """Return a percentile of PERCENTILES; None for too few units. Raises ValueError without times."""
    ordered, (share, fewest) = sorted(times_ns), PERCENTILES[name]
    if len(ordered) < fewest:
        return None
    ranks = interval_ranks(len(ordered)) if share == 0.5 else quantile_ranks(len(ordered), share)
    low, high = (ordered[rank] if rank is not None else None for rank in ranks)
    return round(nearest_rank(ordered, share)), low, high


def droop(units: Sequence[Stamp]) -> tuple[float, float, float] | None:
    """Return `Figures.droop` of these units."""
    first, last = units[0].submit_ns, units[-1].ready_ns
    if last - first < 3 * MINUTE_NS:
        return None
    second = [unit.ns for unit in units if MINUTE_NS <= unit.submit_ns - first < 2 * MINUTE_NS]
    final = [unit.ns for unit in units if last - unit.submit_ns <= MINUTE_NS]
    if min(len(second), len(final)) < _FEWEST_IN_A_MINUTE:
        return None
    early, late = map(summarise_ns, (second, final))
    return late.median_ms / early.median_ms, late.low_ms / early.high_ms, late.high_ms / early.low_ms
