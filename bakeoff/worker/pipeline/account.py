"""Accounts for the time of each unit: every nanosecond belongs to a call, a phase, copies, glue, or has no name."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from bakeoff.models.errors import BakeoffError
from bakeoff.models.pipelines.pipeline import Key, Loop
from bakeoff.trace.timeline import Segment
from bakeoff.worker.pipeline.clocks import UNATTRIBUTED, UnitClock, make_clock


@dataclass(frozen=True, slots=True)
class UnitSample:
    """Times and counts of one unit that ran."""

    session: int
    unit: int
    """Number within the session, from 0."""
    frames: int
    wall_ns: int
    started_ns: int
    """Start by the worker's clock, in ns from an arbitrary origin."""
    segments: Mapping[Segment, int]
    """Nanoseconds of each segment; they add up to `wall_ns`."""
    calls: Mapping[Key, int]
    copied_bytes: int
    beside: Mapping[Segment, int] = field(default_factory=dict)
    """The same of the second lane, if there is one."""
    done_ns: int = 0
    """When within the unit the second lane was done; 0 without one."""


class Account:
    """Attributes a unit's time to segments by the marks of a clock, and counts its calls and copied bytes."""

    def __init__(self, loop: Loop, device: str, idle: bool = False, graph: bool = False) -> None:
        """Number the segments of the loop's first units; later units can have no others.

        With `idle`, there is one for waiting for another lane, with `graph` one for replays of a unit.
        """
        self.segments = {Segment("unattributed", "unattributed"): UNATTRIBUTED}
        """Segment to its number, which is its place."""
        self.copies, self.glue = self._number(Segment("copies", "copies")), self._number(Segment("glue", "glue"))
        self._between = {"": self.glue}
        """Phase to the segment of its time outside of calls: glue, or the phase's own if it makes no calls."""
        for unit in loop.units:
            for call in unit.calls:
                self._number(Segment(call.phase, "phase", *call.key))
                self._between[call.phase] = self.glue
            for phase in unit.phases:
                if phase not in self._between:
                    self._between[phase] = self._number(Segment(phase, "phase"))
        self.idle = self._number(Segment("idle", "idle")) if idle else UNATTRIBUTED
        self.graph = self._number(Segment("graph", "phase")) if graph else UNATTRIBUTED
        self.clock = make_clock(device, len(self.segments))
        self._phase, self._started_ns, self.calls, self.copied_bytes = "", 0, Counter[Key](), 0

    def _number(self, segment: Segment) -> int:
        return self.segments.setdefault(segment, len(self.segments))

    def begin(self) -> None:
        """Begin a unit."""
        self.calls, self.copied_bytes = Counter(), 0
        self._started_ns = self.clock.begin()

    def end(self, session: int, unit: int, frames: int) -> UnitSample:
        """End the unit and return its times and counts."""
        self.clock.mark(self.glue)
        wall_ns, ns = self.clock.end()
        segments = dict(zip(self.segments, ns, strict=True))
        return UnitSample(session, unit, frames, wall_ns, self._started_ns, segments, self.calls, self.copied_bytes)

    @contextmanager
    def timed_by(self, make: Callable[[UnitClock, int], UnitClock]) -> Iterator[None]:
        """Within this context, time units by another clock.

        `make` returns that clock, given the present clock and the number of segments.
        """
        own = self.clock
        self.clock = make(own, len(self.segments))
        try:
            yield
        finally:
            self.clock = own

    @property
    def between(self) -> int:
        """The segment of what the present phase does between calls."""
        return self._between[self._phase]

    def mark_between(self) -> None:
        """Attribute the time since the last mark to what the present phase does between calls."""
        self.clock.mark(self.between)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Within this context, time belongs to the phase. Raises BakeoffError if the first units had none such."""
        if name not in self._between:
            text = f"phase '{name}': the first units have none of that name; let every unit have the same phases"
            raise BakeoffError(text, "bad-user-code")
        self.mark_between()
        outer, self._phase = self._phase, name
        try:
            yield
        finally:
            self.mark_between()
            self._phase = outer

    def segment_of(self, slot: str, key: Key) -> int:
        """Return the segment of a program's call in the present phase, which outside of phases is called `slot`.

        Raises BakeoffError if the first units did not make that call in this phase.
        """
        phase = self._phase or slot
        segment = self.segments.get(Segment(phase, "phase", *key))
        if segment is None:
            text = f"{key} is called in phase '{phase}', which the first units did not do"
            raise BakeoffError(f"{text}; let every unit make the same calls in the same phases", "bad-user-code")
        return segment
