"""Runs a mix's units on command, decides which are steady, notes what was compiled in them, and records their times."""

import select
import time
from array import array
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

import torch

from bakeoff.backends.backend import Engine
from bakeoff.backends.torch_internals import snapshot
from bakeoff.models.pipelines.pipeline import Key, Loop
from bakeoff.models.words import counted
from bakeoff.process.phases import Block, UnitStamp
from bakeoff.record.pipeline import Line, ProgramTime, Sustained, Units
from bakeoff.record.session import UnitKind
from bakeoff.trace.timeline import Segment
from bakeoff.worker.clocks.clock import now_ns
from bakeoff.worker.clocks.cpu_usage import CpuMeter
from bakeoff.worker.clocks.timing import agree, moved_counters, window_of
from bakeoff.worker.device import GpuWatch, held_bytes
from bakeoff.worker.failures import call_stage
from bakeoff.worker.pipeline.account import UnitSample
from bakeoff.worker.pipeline.clocks import UNATTRIBUTED, make_clock
from bakeoff.worker.pipeline.feeder import ProgramEngine
from bakeoff.worker.pipeline.runner import LoopRunner
from bakeoff.worker.reporter import Reporter, read_lines, wait_for_idle_threads

Counters = Callable[[], Sequence[Mapping[str, int]]]
"""Function that reads counters which change when anything is compiled or captured. It returns several mappings, from
the most specific, by `slot.program`, to one that only shows that something changed."""
_MOST_UNSETTLED = 20
"""Units with full windows after which the next one counts as steady even if times have not settled."""
_STAMPS, _STAMP_BLOCKS = 200, 15
_WATCH_S = 1.0
"""Seconds between two readings of the GPU in a sustained run."""


class UnitLog:
    """The units so far. A unit is steady once windows are full, nothing was compiled for a while, and the times of the
    last units agree, by the rule that ends the warm-up of a sweep's row."""

    def __init__(self, loop: Loop, counters: Counters, settle_ratio: float, span_ns: int = 0) -> None:
        """Units of one kind that begin within `span_ns` have one account, so that a long run does not take memory."""
        self._loop, self._counters, self._ratio, self._span_ns = loop, counters, settle_ratio, span_ns
        self._known = counters()
        self._full_ns: list[int] = []
        """Wall times of the units with full windows."""
        self._quiet_since = 0
        """Index in `_full_ns` of the first unit after the last compilation."""
        self._ready = False
        """True if the next unit with full windows is steady."""
        self.settled = True
        """False if times had not settled when the first unit was taken as steady."""
        self._spans: list[_Span] = []
        self._wall_ns, self._started_ns, self._frames, self._sessions, self._done_ns = (array("q") for _ in range(5))
        self.kinds: list[UnitKind] = []
        self.moved: dict[str, tuple[str, ...]] = {}
        """Unit's index in `samples` to what was compiled or captured in it, as in Units."""
        self.recompiled: tuple[str, ...] = ()
        """What was compiled in the first steady unit that compiled anything."""

    def add(self, sample: UnitSample, resuming: bool = False) -> UnitKind:
        """Add the unit that has just run, right after a pause or not, and return its kind."""
        moved = self._moved()
        if moved:
            self.moved[str(len(self.kinds))] = moved
        kind = self._kind(sample, resuming)
        self._note(sample, kind, bool(moved))
        if sample.unit >= self._first_full:
            self._full_ns.append(sample.wall_ns)
            if moved:
                self._quiet_since = len(self._full_ns)
            if kind in ("steady", "resuming") and moved and not self.recompiled:
                self.recompiled = moved
            self._ready = self._ready or self._has_settled()
        return kind

    def _note(self, sample: UnitSample, kind: UnitKind, moved: bool) -> None:
        self._wall_ns.append(sample.wall_ns)
        self._started_ns.append(sample.started_ns)
        self._frames.append(sample.frames)
        self._sessions.append(sample.session)
        self._done_ns.append(sample.done_ns)
        self.kinds.append(kind)
        last = self._spans[-1] if self._spans else None
        if last is None or moved or last.is_over(kind, sample.started_ns, self._span_ns):
            self._spans.append(last := _Span(kind, sample.started_ns, moved))
        last.add(sample)

    @property
    def _first_full(self) -> int:
        return max(self._loop.filling, len(self._loop.opening))

    def _moved(self) -> tuple[str, ...]:
        before, self._known = self._known, self._counters()
        return next(filter(None, map(moved_counters, before, self._known)), ())

    def _kind(self, sample: UnitSample, resuming: bool) -> UnitKind:
        if sample.unit < len(self._loop.opening):
            return "opening"
        if not self._ready or sample.unit < self._first_full:
            return "filling"
        return "resuming" if resuming else "steady"

    def _has_settled(self) -> bool:
        count = len(self._full_ns)
        if count - self._quiet_since >= 2 * window_of(self._full_ns) and agree(self._full_ns, self._ratio):
            return True
        self.settled = count < _MOST_UNSETTLED
        return not self.settled

    @property
    def steady(self) -> list[int]:
        """Wall times of the steady units in ns."""
        return [ns for ns, kind in zip(self._wall_ns, self.kinds, strict=True) if kind == "steady"]

    def typical_ns(self) -> int:
        """Return the median time of the steady units in ns, or of all units if none is steady; 0 without units."""
        walls = self.steady or self._wall_ns
        return round(median(walls)) if walls else 0

    def unattributed_share(self) -> float:
        """Return the share of the steady units' time that has no name."""
        nameless = sum(
            ns
            for span in self._spans
            for one, ns in span.segments.items()
            if span.kind == "steady" and one.kind == "unattributed"
        )
        return nameless / sum(self.steady) if self.steady else 0.0

    def units(self) -> Units | None:
        """Return the units as records store them; None if no unit ran."""
        if not self.kinds:
            return None
        return Units(
            wall_ns=tuple(self._wall_ns),
            started_ns=tuple(ns - self._started_ns[0] for ns in self._started_ns),
            frames=tuple(self._frames),
            kinds=tuple(self.kinds),
            sessions=tuple(self._sessions),
            lines=_lines(self._spans),
            beside=_lines(self._spans, beside=True),
            done_ns=tuple(self._done_ns) if any(self._done_ns) else (),
            programs=_programs(self._spans),
            copied_bytes=tuple(span.copied_bytes for span in self._spans),
            moved=self.moved,
            spans=tuple(span.units for span in self._spans) if self._span_ns else (),
        )


@dataclass(slots=True)
class _Span:
    """Account of a unit, or of several in a row."""

    kind: UnitKind
    started_ns: int
    moved: bool
    """Whether anything was compiled in its unit, which is then the only one."""
    units: int = 0
    segments: Counter[Segment] = field(default_factory=Counter)
    beside: Counter[Segment] = field(default_factory=Counter)
    """Those of the second lane."""
    calls: Counter[Key] = field(default_factory=Counter)
    copied_bytes: int = 0

    def is_over(self, kind: UnitKind, started_ns: int, span_ns: int) -> bool:
        return self.moved or kind != self.kind or started_ns - self.started_ns >= span_ns

    def add(self, sample: UnitSample) -> None:
        self.units += 1
        self.segments.update(sample.segments)
        self.beside.update(sample.beside)
        for key, count in sample.calls.items():
            self.calls[key] += count
        self.copied_bytes += sample.copied_bytes


def check_account(sample: UnitSample) -> None:
    """Raise RuntimeError, as an error of the lab, if the segments of a unit do not add up to its wall time."""
    for segments in filter(None, (sample.segments, sample.beside)):
        _check_sum(sample, segments)


def _check_sum(sample: UnitSample, segments: Mapping[Segment, int]) -> None:
    total = sum(segments.values())
    if total != sample.wall_ns:
        parts = {f"{one.line} {one.slot}.{one.program}": ns for one, ns in segments.items()}
        raise RuntimeError(f"unit {sample.unit} took {sample.wall_ns} ns, but its parts are {total} ns: {parts}")


_ORDER = ("phase", "glue", "copies", "idle", "unattributed")


def _lines(spans: Sequence[_Span], beside: bool = False) -> tuple[Line, ...]:
    """Return the lines of the account, or of that of the second lane."""
    lines: dict[tuple[str, str, str], list[Segment]] = {}
    counted_ns = [span.beside if beside else span.segments for span in spans]
    for segment in counted_ns[0]:
        lines.setdefault((segment.line, segment.kind, segment.slot), []).append(segment)
    made = [Line(parts[0].line, parts[0].kind, parts[0].slot, _sums(counted_ns, parts)) for parts in lines.values()]
    found = [line for line in made if any(line.ns) or not (line.kind == "phase" or beside)]  # others open sessions
    return tuple(sorted(found, key=lambda line: _ORDER.index(line.kind)))


def _programs(spans: Sequence[_Span]) -> tuple[ProgramTime, ...]:
    programs: dict[Key, list[Segment]] = {}
    for segment in spans[0].segments:
        if segment.program:
            programs.setdefault(Key(segment.slot, segment.program), []).append(segment)
    both = [span.segments + span.beside for span in spans]
    return tuple(
        ProgramTime(*key, tuple(span.calls[key] for span in spans), _sums(both, parts))
        for key, parts in programs.items()
        if any(key in span.calls for span in spans)
    )


def _sums(counted_ns: Sequence[Counter[Segment]], parts: Sequence[Segment]) -> tuple[int, ...]:
    return tuple(sum(ns[part] for part in parts) for ns in counted_ns)


class Pace:
    """When units of a sustained run are due to begin; the pace holds from the first steady unit on."""

    def __init__(self, how: Sustained) -> None:
        self._how = how
        self._before: deque[int] = deque(maxlen=how.buffer)
        """Frames before each of the last units."""
        self._frames = 0
        self._shown_ns: int | None = None
        """When the first of these units is shown; None until the buffer is full."""

    def begin_ns(self, last: UnitStamp) -> int:
        """Return when the unit after `last` is to begin, by the worker's clock; 0 if at once."""
        if not self._how.paced or (last.kind != "steady" and not self._before):
            return 0
        self._before.append(self._frames)
        self._frames += last.frames
        if len(self._before) < self._how.buffer:
            return 0
        if self._shown_ns is None:
            self._shown_ns = last.started_ns + last.wall_ns
        return self._shown_ns + round(self._before[0] * 1e9 / self._how.fps)


@dataclass(slots=True)
class TimedUnits:
    """Runs the units of a mix on command, and keeps their log."""

    runner: LoopRunner
    log: UnitLog
    watch: GpuWatch
    device: str
    report: Reporter
    cpu: CpuMeter = field(default_factory=CpuMeter)
    opened_ns: list[int] = field(default_factory=list)
    held_bytes: list[int] = field(default_factory=list)
    """Bytes in use after each steady unit."""
    problem: str = ""
    """Text on the first output that was not finite; "" if there was none."""
    judged: Callable[[], UnitSample] | None = None
    """Runs the next unit, with checks outside of its time; None: the runner does."""

    def serve(self, commands: int) -> None:
        """Run and report a turn for each line `unit N R` on the descriptor `commands`, until `stop` or end of input.

        A turn ends after R units, which do not count, and N that do, after one whose windows are not full or whose
        times have not settled, or with the session. Raises StageError if a program
        fails, and RuntimeError if the account of a unit does not add up.
        """
        idle_since = time.process_time()
        for line in read_lines(commands):
            if line == b"stop":
                return
            idle_cpu_s = time.process_time() - idle_since
            block = self.turn(*map(int, line.split()[1:]))
            self.watch.read()
            wait_for_idle_threads()
            idle_since = time.process_time()
            self.report.unit(replace(block, idle_cpu_s=idle_cpu_s))

    def sustain(self, commands: int, how: Sustained) -> None:
        """Run and report one unit after the other, from the first line on the descriptor `commands` to the next one.

        Raises what `serve` raises.
        """
        lines = read_lines(commands)
        if next(lines, b"stop") == b"stop":
            return
        pace, wait_s, read_s = Pace(how), 0.0, 0.0
        with self.cpu.interval():
            while not select.select([commands], [], [], wait_s)[0]:
                sessions = len(self.opened_ns)
                sample = self.next_unit()
                kind = self._note(sample)
                opened_ns = self.opened_ns[-1] if len(self.opened_ns) > sessions else 0
                stamp = UnitStamp(sample.started_ns, sample.wall_ns, sample.frames, kind, sample.session, opened_ns)
                self.report.stamp(stamp)
                if time.monotonic() - read_s > _WATCH_S:
                    self.watch.read()
                    read_s = time.monotonic()
                wait_s = max(0, pace.begin_ns(stamp) - now_ns()) / 1e9

    def turn(self, units: int, resuming: int = 0) -> Block:
        """Run at least one unit and at most `resuming + units`; the caller adds the idle CPU time to the block."""
        walls, resumed = list[int](), 0
        while True:
            with self.cpu.interval():
                sample = self.next_unit()
            kind = self._note(sample, len(walls) < resuming)
            walls.append(sample.wall_ns)
            resumed += kind == "resuming"
            counts = kind in ("steady", "resuming")
            if not counts or self.runner.at_end or len(walls) >= resuming + units:
                return Block(tuple(walls), 0.0, "steady" if counts else kind, resumed)

    def _note(self, sample: UnitSample, resuming: bool = False) -> UnitKind:
        """Add the unit that has just run to the log, and look at its outputs and at memory; return its kind."""
        kind = self.log.add(sample, resuming)
        self._look(sample)
        if kind == "steady":
            self.held_bytes.append(held_bytes(self.device))
        return kind

    def next_unit(self) -> UnitSample:
        """Run the next unit, in a new session if none is open or the last one is at its end."""
        if self.runner.at_end:
            self.report("opening")
            self.opened_ns.append(call_stage(self.runner.open))
        sample = call_stage(self.judged or self.runner.unit)
        check_account(sample)
        return sample

    def _look(self, sample: UnitSample) -> None:
        for name, value in self.runner.outputs.items():
            if not self.problem and not torch.isfinite(value).all():
                bad = int((~torch.isfinite(value)).sum())
                where = f"unit {sample.unit} of session {sample.session}"
                self.problem = (
                    f"{name}: {bad} of {counted(value.numel(), 'value is', 'values are')} not finite ({where})"
                )


def counters(engines: Mapping[Key, ProgramEngine]) -> Counters:
    """Return a function that reads the counters of compilations and captures.

    The function returns each engine's own count, then counters that several engines may share, then the number of
    graphs that dynamo captured.
    """

    def each(read: Callable[[Engine], object]) -> Mapping[str, int]:
        return {str(key): hash(read(one.engine)) for key, one in engines.items()}

    def read() -> Sequence[Mapping[str, int]]:
        return (
            each(lambda engine: engine.compilations()),
            each(lambda engine: tuple(sorted(engine.activity().items()))),
            {"torch.compile": snapshot().captured},
        )

    return read


def stamp_ns(device: str) -> int:
    """Return the median time of one mark of a unit's account, in nanoseconds."""
    return round(median(stamp_samples(device)))


def stamp_samples(device: str) -> tuple[int, ...]:
    """Return the nanoseconds of one mark, as the mean of each of several blocks of marks."""
    clock = make_clock(device, UNATTRIBUTED + 1)
    found = []
    for _ in range(_STAMP_BLOCKS):
        clock.begin()
        started = now_ns()
        for _ in range(_STAMPS):
            clock.mark(UNATTRIBUTED)
        found.append(round((now_ns() - started) / _STAMPS))
        clock.end()
    return tuple(found)
