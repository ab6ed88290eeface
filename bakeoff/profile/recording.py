"""`Recording`: everything recorded of a session, or of the time before one, while it runs."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import RLock
from time import perf_counter_ns
from typing import Any, Literal

from bakeoff.models.types import Scalar
from bakeoff.models.words import counted
from bakeoff.monitor.series import Series
from bakeoff.profile.analyzer import DiffusionAnalyzer
from bakeoff.profile.counts import Counts
from bakeoff.profile.plain import error_text, number, plain, plain_data, text
from bakeoff.profile.ranges import ENDED, NOTHING, OPEN, CountedStep, Nothing, Range, Step, Unit
from bakeoff.profile.stages import Stage, StageTree, clean, within
from bakeoff.profile.torch_state import DeviceClock
from bakeoff.profile.units import Notes, UnitBook, shifted
from bakeoff.record.finding import Finding
from bakeoff.record.monitor import SeriesRecord
from bakeoff.record.session import ModelParameters, RangeKind, RangeTotal, SessionEvent

NVTX = "BAKEOFF_NVTX"
MOST_SAMPLED = 64
"""Largest number of series that the user samples."""
AskedKind = Literal["opening", "filling", "steady"]
MOST_EVENTS = 2_000
MOST_MODELS = 256


class Recording:
    """Ranges, units, events, models and series of a session. Thread-safe; its methods never raise."""

    def __init__(
        self,
        now: Callable[[], int] = perf_counter_ns,
        points: int = 2_000,
        analyzer: DiffusionAnalyzer | None = None,
    ) -> None:
        """Times are read from `now`; series have at most `points` points."""
        self.now = now
        self.lock = RLock()  # of a thread that is in it already: a signal's handler or a finaliser may open ranges
        self.tree = StageTree()
        self.notes = Notes()
        self.units = UnitBook(points, self.notes)
        self.events = EventLog(now)
        self.models = Models(self.notes)
        self.counts = Counts(self, analyzer or DiffusionAnalyzer())
        self.count = 0
        """Number of ranges that have ended."""
        self.device: DeviceClock | None = None
        self.annotates = True
        """Whether ranges are opened in torch's profiler too."""
        self.nvtx = os.environ.get(NVTX) == "1"
        self.check: Callable[[], None] = lambda: None
        """Called each time that a fixed number of ranges has ended."""
        self.has_stages = self.has_units = self.has_phases = self.has_steps = self.has_models = True
        self.heir: Callable[[], Recording] | None = None
        """Returns the recording that ranges go to after the end."""
        self._points = points
        self._sampled: dict[str, tuple[Series, str]] = {}
        self.root = Range(self, "session", "")
        self.root.stage = self.tree.root
        self.root.line = None

    def begin(self) -> int:
        """Start the session; return the clock's time in nanoseconds."""
        self.root.started_ns = started = self.now()
        self.tree.root.open, self.tree.root.ns = 1, -started
        self.root.state = OPEN
        return started

    def end(self) -> int:
        """End the session; return the clock's time in nanoseconds.

        Ranges opened later go to the recording from `heir`.
        """
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
        """Return a range that records nothing or, after the session's end, one in the recording from `heir`."""
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
        """Add a value at the present time to the user's series of this name."""
        t_ns, name, found = self.now(), clean(name), number(value)
        if self.is_ended:
            if self.heir is not None:
                self.heir().notes.add("misused", f"samples of '{name}' came after their session had ended")
            return
        if found is None:
            shown, _ = plain(value)
            self.notes.add("misused", f"sample of '{name}' is {shown!r:.80}; give a finite number of the host")
            return
        with self.lock:
            entry = self._sampled.get(name)
            if entry is None:
                if len(self._sampled) >= MOST_SAMPLED:
                    self.notes.add("left-out", f"{MOST_SAMPLED} series are kept, not further ones")
                    return
                entry = self._sampled[name] = Series(self._points), clean(unit)
            entry[0].add(t_ns, found)

    def series(self) -> tuple[SeriesRecord, ...]:
        """Return the series of units, of phases and of the user, with times from the session's start."""
        started = self.root.started_ns
        with self.lock:
            own = [
                SeriesRecord(name, unit, "user", shifted(series, started))
                for name, (series, unit) in self._sampled.items()
            ]
        return (*self.units.series(started), *own)

    def totals(self) -> tuple[RangeTotal, ...]:
        """Return the totals of all ranges up to now, without the root."""
        with self.lock:
            return within(self.tree.root, self.now())

    def take(self, earlier: "Recording") -> None:
        """Add the events, models, notes and counts of the recording of the time before the session."""
        earlier.counts.tell_as_earlier(self)
        self.events.take(earlier.events)
        self.models.take(earlier.models)
        self.notes.take(earlier.notes)
        if earlier.units.count:
            units = counted(earlier.units.count, "unit")
            text = f"{units} ran outside sessions: their times are kept, as ranges, but no frames"
            self.notes.add("misused", text)


class EventLog:
    """Events in order of time; the first 2,000 are kept, further ones only counted. Thread-safe."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._lock = RLock()
        self._events: list[tuple[int, str, dict[str, Scalar], bool]] = []
        self.dropped = 0

    def add(self, name: str, data: Mapping[Any, object], failed: bool = False) -> None:
        """Add an event at the present time.

        It is marked as failed if its data have NaN or an infinity, or with `failed`.
        """
        t_ns = self._now()
        with self._lock:
            if len(self._events) >= MOST_EVENTS:
                self.dropped += 1
                return
        kept, good = plain_data(data)
        with self._lock:
            self._events.append((t_ns, clean(name), kept, failed or not good))

    def take(self, earlier: "EventLog") -> None:
        """Put the events of an earlier log before these."""
        with self._lock:
            together = earlier._events + self._events
            self._events = together[:MOST_EVENTS]
            self.dropped += earlier.dropped + len(together) - len(self._events)

    def events(self, session_ns: int) -> tuple[SessionEvent, ...]:
        """Return the events with times from the session's start at `session_ns`; earlier events have negative times."""
        with self._lock:
            return tuple(SessionEvent(t_ns - session_ns, name, data, bad) for t_ns, name, data, bad in self._events)


class Models:
    """Sizes of models by name; recording a name again replaces it. Thread-safe."""

    def __init__(self, notes: Notes) -> None:
        self._lock = RLock()
        self._notes = notes
        self._models: dict[str, ModelParameters] = {}

    def add(self, name: str, module_or_count: object, kind: str) -> None:
        """Record the parameters of a torch module, each once, or a number of parameters."""
        try:
            found = _measured(clean(name), module_or_count, clean(kind))
        except Exception as error:  # noqa: BLE001  # a module that cannot be measured must not end the pipeline
            self._notes.add("misused", f"parameters of '{clean(name)}' cannot be read: {error_text(error)}")
            return
        with self._lock:
            if found.name in self._models or len(self._models) < MOST_MODELS:
                self._models[found.name] = found
            else:
                self._notes.add("left-out", f"{MOST_MODELS} models are kept, not further ones")

    def take(self, earlier: "Models") -> None:
        """Add the models of an earlier collection whose names are new."""
        with self._lock:
            self._models = {**earlier._models, **self._models}

    def models(self) -> tuple[ModelParameters, ...]:
        with self._lock:
            return tuple(self._models.values())


def _measured(name: str, module_or_count: Any, kind: str) -> ModelParameters:
    """Return the size of a model: number, bytes and dtypes of a module's parameters, or a given number.

    Raises TypeError or ValueError for a value that is neither a module nor a whole number from 0.
    """
    if not hasattr(module_or_count, "parameters"):
        if type(module_or_count) is not int or not 0 <= module_or_count < 2**63:
            raise ValueError(f"{text(repr(module_or_count))[:80]} is neither a torch module nor a whole number from 0")
        return ModelParameters(name, module_or_count, None, "", kind)
    by_dtype: dict[str, int] = {}
    count = size = 0
    for parameter in {id(each): each for each in module_or_count.parameters()}.values():
        elements = int(parameter.numel())
        dtype = str(parameter.dtype).removeprefix("torch.")
        by_dtype[dtype] = by_dtype.get(dtype, 0) + elements
        count += elements
        size += elements * int(parameter.element_size())
    dtypes = sorted(by_dtype, key=lambda dtype: (-by_dtype[dtype], dtype))
    return ModelParameters(name, count, size, ", ".join(dtypes), kind)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State of a running session at one moment."""

    name: str
    ns: int
    """Time since the session's start."""
    units: int
    frames: int
    frames_per_s: float | None
    """Rate over the last 20 units, as is `units_per_s`; None without units, or if none of them has frames."""
    units_per_s: float | None
    phases: Mapping[str, int]
    """Nanoseconds by phase so far, with a phase's steps but without phases within it; ranges outside units count
    too."""
    unattributed_ns: int
    """Time in no phase: `phases` and this add up to `ns`."""
    findings: tuple[Finding, ...]
    latest: Mapping[str, float]
    """Last value of each series of the monitor; empty without one."""


def take_snapshot(name: str, recording: Recording, latest: Mapping[str, float]) -> Snapshot:
    with recording.lock:
        now = recording.now()
        phases: dict[str, int] = {}
        _add(recording.tree.root, now, "", phases)
        ns = recording.tree.root.total_ns(now)
    frames_per_s, units_per_s = recording.units.recent()
    return Snapshot(
        name=name,
        ns=ns,
        units=recording.units.count,
        frames=recording.units.frames,
        frames_per_s=frames_per_s,
        units_per_s=units_per_s,
        unattributed_ns=phases.pop("", 0),
        phases=phases,
        findings=recording.notes.findings(),
        latest=latest,
    )


def _add(stage: Stage, now: int, line: str, phases: dict[str, int]) -> None:
    """Add the own times of a stage and all within it to `phases`; steps and units count for the range around them."""
    if stage.kind not in ("session", "unit", "step"):
        line = stage.name
    phases[line] = phases.get(line, 0) + stage.own_ns(now)
    for child in list(stage.children.values()):
        _add(child, now, line, phases)
