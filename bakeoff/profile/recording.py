"""Everything that is recorded of a session, or of the time before one, while it runs."""

import os
from collections.abc import Callable, Mapping
from threading import RLock
from time import perf_counter_ns
from typing import Literal

from bakeoff.models.words import counted
from bakeoff.monitor.series import Series
from bakeoff.profile.device_clock import DeviceClock
from bakeoff.profile.events import EventLog, Models
from bakeoff.profile.notes import Notes
from bakeoff.profile.plain import number, plain
from bakeoff.profile.ranges import ENDED, NOTHING, OPEN, CountedStep, Nothing, Range, Step, Unit
from bakeoff.profile.stages import StageTree, clean, within
from bakeoff.profile.units import UnitBook, shifted
from bakeoff.record.monitor import SeriesRecord
from bakeoff.record.session import RangeKind, RangeTotal

NVTX = "BAKEOFF_NVTX"
MOST_SAMPLED = 64
"""Series of the user's own."""
AskedKind = Literal["opening", "filling", "steady"]


class Recording:
    """Ranges, units, events, models and series. Thread-safe; its methods never raise."""

    def __init__(self, now: Callable[[], int] = perf_counter_ns, points: int = 2_000) -> None:
        """Times are read from `now`; series have at most `points` points."""
        self.now = now
        self.lock = RLock()  # of a thread that is in it already: a signal's handler or a finaliser may open ranges
        self.tree = StageTree()
        self.notes = Notes()
        self.units = UnitBook(points, self.notes)
        self.events = EventLog(now)
        self.models = Models(self.notes)
        self.count = 0
        """Ranges that have ended."""
        self.device: DeviceClock | None = None
        self.annotates = True
        """Whether ranges are opened in torch's profiler too."""
        self.nvtx = os.environ.get(NVTX) == "1"
        self.check: Callable[[], None] = lambda: None
        """Called every so many ranges."""
        self.has_stages = self.has_units = self.has_phases = self.has_steps = self.has_models = True
        self.heir: Callable[[], Recording] | None = None
        """What ranges go to after the end."""
        self._points = points
        self._sampled: dict[str, tuple[Series, str]] = {}
        self.root = Range(self, "session", "")
        self.root.stage = self.tree.root
        self.root.line = None

    def begin(self) -> int:
        """Start the session's time; returns the clock."""
        self.root.started_ns = started = self.now()
        self.tree.root.open, self.tree.root.ns = 1, -started
        self.root.state = OPEN
        return started

    def end(self) -> int:
        """End the session's time; returns the clock. Ranges that are opened from now on go to `heir`."""
        ended = self.now()
        self.has_stages = self.has_units = self.has_phases = self.has_steps = self.has_models = False
        self.root.state = ENDED
        self.root.ns = ended - self.root.started_ns
        self.tree.root.open = 0
        self.tree.root.ns += ended
        return ended

    @property
    def is_open(self) -> bool:
        return self.root.state == OPEN

    @property
    def is_ended(self) -> bool:
        return self.root.state == ENDED

    def stage(self, name: str, repeats: bool = False) -> Range | Nothing:
        return Range(self, "stage", name, repeats) if self.has_stages else self._later("stage", name, repeats)

    def phase(self, name: str, repeats: bool = False) -> Range | Nothing:
        return Range(self, "phase", name, repeats) if self.has_phases else self._later("phase", name, repeats)

    def collective(self, name: str, repeats: bool = False) -> Range | Nothing:
        return Range(self, "collective", name, repeats) if self.has_phases else self._later("collective", name, repeats)

    def step(self, index: object = None, timestep: object = None, repeats: bool = False) -> Range | Nothing:
        if not self.has_steps:
            return self._later("step", "step", repeats)
        made = (Step if index is not None else CountedStep)(self, "step", "step", repeats)
        made.index, made.timestep = index, timestep
        return made

    def unit(self, frames: object = 0, latents: object = 0, kind: object = "steady") -> Range | Nothing:
        return Unit(self, frames, latents, kind) if self.has_units else self._later("unit", "unit", False)

    def _later(self, kind: RangeKind, name: str, repeats: bool) -> Range | Nothing:
        """A range of a kind that is left out, or after the end: then it is of the time before the next session."""
        if not self.is_ended or self.heir is None:
            return NOTHING
        return Range(self.heir(), kind, name, repeats)

    def event(self, name: str, data: Mapping[str, object], failed: bool = False) -> None:
        if self.is_ended and self.heir is not None:
            self.heir().events.add(name, data, failed)
        else:
            self.events.add(name, data, failed)

    def parameters(self, name: str, module_or_count: object, kind: str) -> None:
        if self.has_models:
            self.models.add(name, module_or_count, kind)
        elif self.is_ended and self.heir is not None:
            self.heir().models.add(name, module_or_count, kind)

    def sample(self, name: str, value: object, unit: str) -> None:
        """A value of a series of the user's own, now."""
        t_ns, name, found = self.now(), clean(name), number(value)
        if self.is_ended:
            if self.heir is not None:
                self.heir().notes.add("wrong-value", f"samples of '{name}' came after their session had ended")
            return
        if found is None:
            shown, _ = plain(value)
            self.notes.add("wrong-value", f"sample of '{name}' is {shown!r:.80}; give a finite number of the host")
            return
        with self.lock:
            entry = self._sampled.get(name)
            if entry is None:
                if len(self._sampled) >= MOST_SAMPLED:
                    self.notes.add("series-left-out", f"{MOST_SAMPLED} series are kept, not further ones as '{name}'")
                    return
                entry = self._sampled[name] = Series(self._points), clean(unit)
            entry[0].add(t_ns, found)

    def series(self) -> tuple[SeriesRecord, ...]:
        """Of units, phases and the user, with times from the start."""
        started = self.root.started_ns
        with self.lock:
            own = [
                SeriesRecord(name, unit, "user", shifted(series, started))
                for name, (series, unit) in self._sampled.items()
            ]
        return (*self.units.series(started), *own)

    def totals(self) -> tuple[RangeTotal, ...]:
        """All ranges until now, without the root."""
        with self.lock:
            return within(self.tree.root, self.now())

    def take(self, earlier: "Recording") -> None:
        """Put events and models of the time before the session with those of the session."""
        self.events.take(earlier.events)
        self.models.take(earlier.models)
        self.notes.take(earlier.notes)
        if earlier.units.count:
            units = counted(earlier.units.count, "unit")
            text = f"{units} ran outside sessions: their times are kept, as ranges, but no frames"
            self.notes.add("units-outside", text)
