"""Computes whether a mix held a frame rate over minutes, from the stamps of its units; nothing of it is stored.

A viewer shows frames at a fixed rate once a start buffer is full. By the policy `late`, every deadline stays where it
was, so that one slow unit makes one late unit; by the policy `stall`, the playback pauses until a unit is there, which
moves all later deadlines.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from bakeoff.models.words import counted
from bakeoff.record.frames import nearest_rank
from bakeoff.record.monitor import DeviceEnergy, Monitored
from bakeoff.record.pipeline import PipelineRecord
from bakeoff.record.statistics import interval_ranks, quantile_ranks, summarise_ns

RATES = (16.0, 24.0, 30.0, 60.0)
"""Frames a second for which every run is looked at."""
FEWEST_OF: dict[float, int] = {0.5: 1, 0.9: 10, 0.99: 100, 0.999: 1000}
"""Fewest units for each percentile: with fewer, the nearest rank is the slowest unit."""
MINUTE_NS = 60_000_000_000
_FEWEST_IN_A_MINUTE = 6


@dataclass(frozen=True, slots=True)
class Stamp:
    """One unit on the time axis of a run, in nanoseconds from any start."""

    submit_ns: int
    """When it was begun."""
    ready_ns: int
    """When all its frames were there."""
    frames: int

    @property
    def ns(self) -> int:
        return self.ready_ns - self.submit_ns


@dataclass(slots=True)
class Timeline:
    """Lays units on a time axis, one after the other.

    Units of a paced run lie where they ran. Those of a saturating run lie end to end, with the time to open their
    session before the first of each session: between two units the lab checks outputs and draws inputs, which is not
    the mix's time.
    """

    paced: bool
    _ready_ns: int = 0

    def add(self, started_ns: int, wall_ns: int, frames: int, opened_ns: int) -> Stamp:
        """Return the stamp of the next unit; `opened_ns` is the time to open its session, 0 if one was open."""
        submit_ns = started_ns if self.paced else self._ready_ns + opened_ns
        self._ready_ns = submit_ns + wall_ns
        return Stamp(submit_ns, self._ready_ns, frames)


@dataclass(slots=True)
class Viewer:
    """What a viewer at one frame rate has seen of the units so far; the playback starts once `buffer` units are ready.

    Unit i is due at the start of the playback plus the frames of the units before it over `fps`.
    """

    fps: float
    buffer: int = 1
    units: int = 0
    misses: int = 0
    """Units that were not ready when they were due, by the policy `late`."""
    stalls: int = 0
    """Pauses of the playback, by the policy `stall`."""
    longest_stall_ns: int = 0
    stalled_ns: int = 0
    """Time of all pauses."""
    least_buffer_ns: int = 0
    """Least time from the first unit's being ready to the start of the playback that would have made no unit late."""
    waited_ns: int = 0
    """Time from being ready to being shown, summed over the units, by the policy `stall`."""
    _frames: int = 0
    _first_ns: int = 0
    _start_ns: int = 0
    _early: list[int] = field(default_factory=list)
    """For each unit before the start of the playback, when it was ready less its frames' time before it."""

    @property
    def miss_share(self) -> float:
        return self.misses / self.units

    @property
    def latency_ns(self) -> int:
        """Mean time that a unit waits before it is shown."""
        return round(self.waited_ns / self.units)

    def add(self, stamp: Stamp) -> None:
        if not self.units:
            self._first_ns = stamp.ready_ns
        ready_ns = stamp.ready_ns - round(self._frames * 1e9 / self.fps)
        self.units, self._frames = self.units + 1, self._frames + stamp.frames
        self.least_buffer_ns = max(self.least_buffer_ns, ready_ns - self._first_ns)
        if self.units <= self.buffer:
            self._early.append(ready_ns)
            if self.units == self.buffer:
                self._start_ns = stamp.ready_ns
                self.waited_ns = sum(self._start_ns - early_ns for early_ns in self._early)
            return
        late_ns = ready_ns - self._start_ns
        self.misses += late_ns > 0
        stall_ns = max(0, late_ns - self.stalled_ns)
        self.stalls += stall_ns > 0
        self.longest_stall_ns = max(self.longest_stall_ns, stall_ns)
        self.stalled_ns += stall_ns
        self.waited_ns += self.stalled_ns - late_ns


@dataclass(frozen=True, slots=True)
class Percentile:
    """A percentile of unit times by nearest rank, which is one of the times that occurred."""

    share: float
    ns: int | None
    """None for too few units."""
    low_ns: int | None
    """Lower end of its 95 % interval by order statistics; None if that lies beyond the units that ran."""
    high_ns: int | None
    needs: int
    """Fewest units for this percentile."""


@dataclass(frozen=True, slots=True)
class Droop:
    """The median unit of the last minute over that of the second one: above 1 if units became slower."""

    ratio: float
    low: float
    """Lower end of its interval, from the 95 % intervals of both medians, so that it is rather too wide."""
    high: float


@dataclass(frozen=True, slots=True)
class FrameEnergy:
    """Energy of one device over a run; None for what is unknown."""

    device: str
    watts: float | None
    joules_a_frame: float | None
    net_joules_a_frame: float | None
    """Without the energy that the device takes when idle, measured before the run."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of a sustained run, apart from those of a viewer."""

    units: int
    frames: int
    ns: int
    """From the beginning of the first unit to the end of the last one."""
    busy_ns: int
    """Time of all units and of opening their sessions, without the waits of a paced run."""
    left_out: int
    """Units of the warm-up, before the first steady unit, which are in none of these figures."""
    percentiles: tuple[Percentile, ...]
    slowest_ns: int
    jitter_ns: int | None
    """99th percentile less the median; None for too few units."""
    longest_gap_ns: int
    """Longest time from one unit's being ready to the next one's."""
    last_third_fps: float
    """Frames a second of the last third of the units, in their own time as `busy_ns` is, without the slowest of them if
    there are several: one slow unit does not say that a mix became slower."""
    droop: Droop | None
    """None for a run of less than three minutes, or with fewer than six units in one of the two minutes."""
    reopened: int
    """Sessions that were opened after the first unit."""
    reopened_ns: int
    energy: tuple[FrameEnergy, ...]
    loops_in_memory: int | None
    """How often the run's peak memory fits into that of the device or the host: an estimate; None if unknown."""

    @property
    def frames_per_s(self) -> float:
        return self.frames / (self.ns / 1e9)

    @property
    def busy_fps(self) -> float:
        return self.frames * 1e9 / self.busy_ns

    def keeps_up(self, fps: float) -> bool:
        """Return whether the units make at least `fps` frames a second, and their last third does. Otherwise the buffer
        that hides every late unit grows with the length of the run, and none is enough."""
        return min(self.busy_fps, self.last_third_fps) >= fps


def stamps(record: PipelineRecord) -> list[Stamp]:
    """Return the units of a sustained run from the first steady one on, on the time axis of the run."""
    units = record.measurement.units
    if units is None or record.sustained is None or "steady" not in units.kinds:
        return []
    first, line = units.kinds.index("steady"), Timeline(record.sustained.paced)
    opened = _opened_ns(record, first)
    columns = zip(units.started_ns[first:], units.wall_ns[first:], units.frames[first:], opened, strict=True)
    return [line.add(started_ns, wall_ns, frames, opened_ns) for started_ns, wall_ns, frames, opened_ns in columns]


def _opened_ns(record: PipelineRecord, first: int) -> list[int]:
    """Return for each unit from `first` on the time to open the session that begins with it, 0 within a session."""
    assert record.measurement.units is not None
    sessions, opened = record.measurement.units.sessions[first:], record.measurement.opened_ns
    known = (opened[after] if after != before else 0 for before, after in pairwise(sessions))
    return [0, *known]


def view(units: Sequence[Stamp], fps: float, buffer: int = 1) -> Viewer:
    """Return what a viewer sees who starts once `buffer` units are ready.

    Raises ValueError for a rate that is not above 0, or if the units do not fill the buffer.
    """
    if fps <= 0 or not 1 <= buffer <= len(units):
        raise ValueError(f"{counted(len(units), 'unit')}, {fps} frames a second, a buffer of {buffer}")
    viewer = Viewer(fps, buffer)
    for unit in units:
        viewer.add(unit)
    return viewer


def figures(record: PipelineRecord) -> Figures | None:
    """Return the figures of a sustained run; None if no unit of it was steady."""
    found = stamps(record)
    units = record.measurement.units
    if not found or units is None:
        return None
    times = [stamp.ns for stamp in found]
    left_out = len(units.kinds) - len(found)
    opened = _opened_ns(record, left_out)
    reopened = [ns for ns in opened if ns]
    third = last_third(found)
    ends = sorted((stamp.ns + ns, stamp.frames) for stamp, ns in zip(third, opened[-len(third) :], strict=True))
    kept = ends[:-1] or ends
    percentiles = {share: percentile(times, share) for share in FEWEST_OF}
    middle, high = percentiles[0.5].ns, percentiles[0.99].ns
    return Figures(
        units=len(found),
        frames=sum(stamp.frames for stamp in found),
        ns=found[-1].ready_ns - found[0].submit_ns,
        busy_ns=sum(times) + sum(reopened),
        left_out=left_out,
        percentiles=tuple(percentiles.values()),
        slowest_ns=max(times),
        jitter_ns=high - middle if high is not None and middle is not None else None,
        longest_gap_ns=longest_gap_ns(found),
        last_third_fps=sum(frames for _, frames in kept) * 1e9 / sum(ns for ns, _ in kept),
        droop=droop(found),
        reopened=len(reopened),
        reopened_ns=sum(reopened),
        energy=tuple(_energies(record, sum(units.frames))),
        loops_in_memory=_loops_in_memory(record),
    )


def percentile(times_ns: Sequence[int], share: float) -> Percentile:
    """Return a percentile of FEWEST_OF by nearest rank, with its interval. Raises ValueError without times."""
    ordered, needs = sorted(times_ns), FEWEST_OF[share]
    if len(ordered) < needs:
        return Percentile(share, None, None, None, needs)
    ranks = interval_ranks(len(ordered)) if share == 0.5 else quantile_ranks(len(ordered), share)
    low, high = (ordered[rank] if rank is not None else None for rank in ranks)
    return Percentile(share, round(nearest_rank(ordered, share)), low, high, needs)


def longest_gap_ns(units: Sequence[Stamp]) -> int:
    """Return the longest time from one unit's being ready to the next one's; 0 for fewer than two units."""
    return max((after.ready_ns - before.ready_ns for before, after in pairwise(units)), default=0)


def last_third(units: Sequence[Stamp]) -> Sequence[Stamp]:
    """Return the last third of the units, rounded up."""
    return units[2 * len(units) // 3 :]


def droop(units: Sequence[Stamp]) -> Droop | None:
    """Compare the last minute with the second one; None for runs of less than three minutes, in which the two are not
    apart, or with fewer than six units in one of them."""
    first, last = units[0].submit_ns, units[-1].ready_ns
    if last - first < 3 * MINUTE_NS:
        return None
    second = [unit.ns for unit in units if MINUTE_NS <= unit.submit_ns - first < 2 * MINUTE_NS]
    final = [unit.ns for unit in units if last - unit.submit_ns <= MINUTE_NS]
    if min(len(second), len(final)) < _FEWEST_IN_A_MINUTE:
        return None
    early, late = map(summarise_ns, (second, final))
    return Droop(late.median_ms / early.median_ms, late.low_ms / early.high_ms, late.high_ms / early.low_ms)


def _energies(record: PipelineRecord, frames: int) -> Iterator[FrameEnergy]:
    seen, idle = record.monitored, record.sustained and record.sustained.idle
    idle_watts = {each.device: _watts(each, idle) for each in idle.energy} if idle else {}
    for each in seen.energy if seen is not None else ():
        watts, idle_w = _watts(each, seen), idle_watts.get(each.device)
        gross = each.mj / 1e3 / frames if each.mj is not None and frames else None
        share = 1 - idle_w / watts if watts and idle_w is not None else None
        yield FrameEnergy(each.device, watts, gross, gross * share if gross is not None and share is not None else None)


def _watts(energy: DeviceEnergy, seen: Monitored | None) -> float | None:
    """Return a device's mean power over the time that was watched; None if its energy is unknown."""
    cost = seen.cost if seen is not None else None
    return energy.mj / (cost.wall_ns / 1e6) if energy.mj is not None and cost is not None and cost.wall_ns else None


def _loops_in_memory(record: PipelineRecord) -> int | None:
    memory = record.measurement.memory
    if memory is None or not memory.peak_bytes:
        return None
    on_device = memory.meter == "device"
    sizes = [gpu.get("memory_bytes") for gpu in record.host.gpus[:1]] if on_device else [record.host.memory_bytes]
    return sizes[0] // memory.peak_bytes if sizes and isinstance(sizes[0], int) else None
