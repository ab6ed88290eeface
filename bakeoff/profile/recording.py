"""`Recording`: everything recorded of a session, or of the time before one, while it runs."""

from collections.abc import Callable, Mapping
from threading import RLock
from time import perf_counter_ns
from typing import Any, Literal

from bakeoff.models.words import counted
from bakeoff.monitor.series import Series
from bakeoff.profile.plain import error_text, number, plain, plain_data, text
from bakeoff.profile.ranges import ENDED, NOTHING, OPEN, CountedStep, Nothing, Range, Step, Unit
from bakeoff.profile.stages import StageTree, clean, within
from bakeoff.profile.torch_state import DeviceClock, compiled
from bakeoff.profile.units import Notes, UnitBook, shifted
from bakeoff.record.monitor import SeriesRecord
from bakeoff.record.session import ModelParameters, RangeTotal, SessionEvent, UnitKind

LEAST_NS = 10_000_000
"""Cost of recording below which a session keeps all its levels of ranges, whatever their share of its time."""
MOST_SAMPLED = 64
"""Largest number of series that the user samples."""
AskedKind = Literal["opening", "filling", "steady"]
MOST_EVENTS = 2_000
MOST_MODELS = 256


class Recording:
    """Ranges, units, events, models and series. Its methods may be called from any thread and any coroutine.

    They never raise: what cannot be recorded becomes a finding of the record. After the end they record nothing.
    """

    def __init__(self, now: Callable[[], int] = perf_counter_ns, points: int = 2_000) -> None:
        """Times are read from `now`; series have at most `points` points."""
        self.now = now
        self.lock = RLock()  # of a thread that is in it already: a signal's handler or a finaliser may open ranges
        self.tree = StageTree()
        self.notes = Notes()
        self.units = UnitBook(points, self.notes)
        self.count = 0
        """Number of ranges that have ended."""
        self.range_ns = 0.0
        """Cost of an empty range in nanoseconds."""
        self.overhead_limit = 1.0
        """Largest share of the time that ranges may cost."""
        self.dropped: list[str] = []
        """Kinds of ranges that were left out after recording had cost more than the limit."""
        self._counted_from = self._counted_from_ns = 0
        """Number of ranges and time when the session began, or when a level was last dropped."""
        self.device_clock: DeviceClock | None = None
        self.annotates = True
        """Whether ranges are opened in torch's profiler too."""
        self.has_stages = self.has_units = self.has_phases = self.has_steps = self.has_models = True
        self.events: list[SessionEvent] = []
        """The first 2,000, with times of the clock."""
        self.events_dropped = 0
        self.models: dict[str, ModelParameters] = {}
        self.metadata: dict[str, Mapping[str, Any]] = {}
        """The newest metadata of each stage."""
        self._points = points
        self._sampled: dict[str, tuple[Series, str]] = {}
        self._compiled = compiled()
        self.root = Range(self, "session", "")
        self.root.stage = self.tree.root
        self.root.line = None

    def begin(self) -> int:
        """Start the session; return the clock's time in nanoseconds."""
        self.root.started_ns = self._counted_from_ns = started = self.now()
        self.tree.root.open, self.tree.root.ns = 1, -started
        self.root.state = OPEN
        return started

    def end(self) -> int:
        """End the session; return the clock's time in nanoseconds."""
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

    def check_cost(self) -> None:
        """Leave out the finest level of ranges, first steps, then phases, if ranges have cost more than the limit."""
        now = self.now()
        with self.lock:
            cost_ns, ns = (self.count - self._counted_from) * self.range_ns, max(1, now - self._counted_from_ns)
            if cost_ns < LEAST_NS or cost_ns <= self.overhead_limit * ns:
                return
            if self.has_steps:
                self.has_steps, dropped = False, "step"
            elif self.has_phases:
                self.has_phases, dropped = False, "phase"
            else:
                return
            self._counted_from, self._counted_from_ns = self.count, now
            self.dropped.append(dropped)
        self.notes.add(
            "left-out",
            f"recording cost {cost_ns / ns:.1%} of the time (a range {self.range_ns / 1e3:.1f} us), more than "
            f"overhead_limit {self.overhead_limit:.1%}: ranges of kind {dropped} are left out from then on; open fewer "
            "of them",
        )

    def stage(self, name: str, repeats: bool = False) -> Range | Nothing:
        """Return a range for any named part, such as loading or the encoding of a prompt.

        With `repeats`, here and below, it continues a call that was counted already, as of a generator.
        """
        return Range(self, "stage", name, repeats) if self.has_stages else NOTHING

    def phase(self, name: str, repeats: bool = False) -> Range | Nothing:
        """Return a range for a phase, a part of a unit."""
        return Range(self, "phase", name, repeats) if self.has_phases else NOTHING

    def collective(self, name: str, repeats: bool = False) -> Range | Nothing:
        """Return a range for a phase that waits for other ranks."""
        return Range(self, "collective", name, repeats) if self.has_phases else NOTHING

    def step(self, index: object = None, timestep: object = None, repeats: bool = False) -> Range | Nothing:
        """Return a range for one denoising step.

        Without an index, steps are counted from 0 within the range around them. A timestep on a device is not recorded,
        because reading it would wait for the device.
        """
        if not self.has_steps:
            return NOTHING
        made = (Step if index is not None else CountedStep)(self, "step", "step", repeats)
        made.index, made.timestep = index, timestep
        return made

    def unit(self, frames: object = 0, latents: object = 0, kind: object = "steady") -> Range | Nothing:
        """Return a range for one unit of work, such as a block of frames.

        `kind` marks units that differ from the steady ones, from which rates are computed: `opening` or `filling`. A
        unit in which torch compiled is `compiling`, whatever is asked.
        """
        return Unit(self, frames, latents, kind) if self.has_units else NOTHING

    def measured_unit(self, ms: object, frames: int, latents: object) -> None:
        """Record a unit that ended now and took `ms` milliseconds, as the caller measured."""
        ns = self.units.nanoseconds(ms)
        if ns is None or not self.has_units:
            return
        before, self._compiled = self._compiled, compiled()
        kind: UnitKind = "compiling" if self._compiled > before else "steady"
        self.units.add(kind, frames, self.units.amount("latents", latents), self.now() - ns, ns)

    def event(self, name: str, /, **data: object) -> None:
        """Record an event that happened now. Data that are no plain values are kept as their `repr`."""
        self.log(name, data)

    def log(self, name: str, data: Mapping[Any, object], failed: bool = False) -> None:
        """Record an event; it is marked as failed with `failed`, or if its data have NaN or an infinity."""
        t_ns, full = self.now(), len(self.events) >= MOST_EVENTS
        kept, good = ({}, True) if full else plain_data(data)
        with self.lock:
            if len(self.events) >= MOST_EVENTS:
                self.events_dropped += 1
            else:
                self.events.append(SessionEvent(t_ns, clean(name), kept, failed or not good))

    def parameters(self, name: str, module_or_count: object, kind: str = "") -> None:
        """Record the size of a model, given as a torch module or as the number of its parameters."""
        if not self.has_models:
            return
        try:
            found = _measured(clean(name), module_or_count, clean(kind))
        except Exception as error:  # noqa: BLE001  # a module that cannot be measured must not end the pipeline
            self.notes.add("misused", f"parameters of '{clean(name)}' cannot be read: {error_text(error)}")
            return
        with self.lock:
            if found.name in self.models or self.notes.has_room(self.models, MOST_MODELS, "models"):
                self.models[found.name] = found

    def sample(self, name: str, value: object, unit: str = "") -> None:
        """Add a value to a series of the pipeline's own, such as the length of a queue."""
        t_ns, name, found = self.now(), clean(name), number(value)
        if found is None:
            shown, _ = plain(value)
            self.notes.add("misused", f"sample of '{name}' is {shown!r:.80}; give a finite number of the host")
            return
        with self.lock:
            entry = self._sampled.get(name)
            if entry is None:
                if not self.notes.has_room(self._sampled, MOST_SAMPLED, "series"):
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
        """Add the events, models and notes of the recording of the time before the session."""
        with self.lock:
            together = earlier.events + self.events
            self.events = together[:MOST_EVENTS]
            self.events_dropped += earlier.events_dropped + len(together) - len(self.events)
            self.models = {**earlier.models, **self.models}
        self.notes.take(earlier.notes)
        outside = {"unit": earlier.units.count, "step": sum(each.calls for each in earlier.units.steps())}
        if any(outside.values()):
            text = " and ".join(counted(count, word) for word, count in outside.items() if count)
            self.notes.add("misused", f"{text} ran outside sessions: their ranges are kept, but no rates")


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
