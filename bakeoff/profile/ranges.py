"""Ranges: context managers that time a named part of a session, such as a stage, phase, unit or step.

`__enter__` and `__exit__` are what recording costs a pipeline, so each is one long function instead of several.
"""

from contextlib import ExitStack
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from bakeoff.profile.plain import error_text, plain
from bakeoff.profile.stages import Stage
from bakeoff.profile.torch_state import annotate, compiled, is_profiling
from bakeoff.profile.units import SpanTime
from bakeoff.record.session import MOST_SPANS, RangeKind, UnitKind

if TYPE_CHECKING:
    from bakeoff.profile.recording import Recording

_CHECK_EVERY = 64
NEW, OPEN, ENDED = 0, 1, 2
UNKNOWN = object()
"""Index of a step whose time is not kept by index."""

innermost: ContextVar["Range | None"] = ContextVar("bakeoff_range", default=None)
"""The range that was entered last in this context; it may have ended."""


class Range:
    """A named range of time, to be used once: entering it again records nothing."""

    __slots__ = (
        "above",
        "began",
        "inner_ns",
        "kind",
        "line",
        "marks",
        "name",
        "ns",
        "outer",
        "recording",
        "repeats",
        "stage",
        "started_ns",
        "state",
        "steps",
        "unit",
    )
    stage: Stage
    line: "Range | None"
    """The range that gets its time in the account of its unit: for a step its phase; None if it is the range itself."""
    above: "Range"
    outer: "Range | None"
    steps: int
    """Number of steps without an index within it; unset before the first, because setting it would slow down every
    range."""

    def __init__(self, recording: "Recording", kind: RangeKind, name: str, repeats: bool = False) -> None:
        """With `repeats`, the range continues a call that was counted before and does not count as another."""
        self.recording, self.kind, self.name, self.repeats = recording, kind, name, repeats
        self.state: int = NEW
        self.unit: Unit | None = None
        self.outer = None
        self.marks: ExitStack | None = None
        self.began: Any = None
        self.inner_ns = self.ns = self.started_ns = 0

    def __enter__(self) -> "Range":
        recording = self.recording
        if self.state:
            recording.notes.add("misused", f"range '{self.name}' was entered again; make one for each use")
            return self
        parent = innermost.get()
        while parent is not None and parent.state != OPEN:
            parent = parent.outer
        self.outer = parent
        while parent is not None and parent.recording is not recording:
            parent = parent.outer
        if parent is None:
            parent = recording.root
        above = parent.line or parent
        unit = parent.unit
        self.above, self.unit = above, unit
        self.line = above if self.kind == "step" and above is not unit else None
        try:
            stage = parent.stage.children[self.kind, self.name]
        except (KeyError, TypeError):
            with recording.lock:
                stage = recording.tree.child(parent.stage, self.kind, self.name)
            self.name = stage.name
        self.stage = stage
        innermost.set(self)
        if recording.annotates and is_profiling():
            self._annotate()
        if recording.device_clock is not None:
            self.began = recording.device_clock.mark()
        self.state = OPEN
        self.started_ns = started = recording.now()
        with recording.lock:
            stage.open += 1
            stage.ns -= started
        return self

    def __exit__(self, *_: object) -> None:
        recording = self.recording
        ended = recording.now()
        if self.state != OPEN:
            return
        self.ns = ns = ended - self.started_ns
        self.state = ENDED
        stage, unit = self.stage, self.unit
        with recording.lock:
            stage.open -= 1
            stage.ns += ended
            if not self.repeats:
                stage.calls += 1
            recording.count = count = recording.count + 1
            if unit is not None and unit.state == OPEN:
                if len(unit.spans) < MOST_SPANS:
                    unit.spans.append((stage, self.started_ns, ns))
                if self.line is None:
                    self.above.inner_ns += ns
                    unit.lines[self.name] = unit.lines.get(self.name, 0) + ns - self.inner_ns
        innermost.set(self.outer)
        if recording.device_clock is not None:
            recording.device_clock.took(stage, self.began, recording.device_clock.mark())
            self.began = None
        if self.marks is not None:
            self._end_marks()
        if not count % _CHECK_EVERY:
            recording.check_cost()

    def _annotate(self) -> None:
        try:
            self.marks = annotate(self.name)
        except Exception as error:  # noqa: BLE001  # a profiler that fails must not end the pipeline
            self.recording.notes.add("misused", f"torch could not open a range: {error_text(error)}")

    def _end_marks(self) -> None:
        try:
            if self.marks is not None:
                self.marks.close()
        except Exception as error:  # noqa: BLE001  # as above
            self.recording.notes.add("misused", f"torch could not end a range: {error_text(error)}")


class Step(Range):
    """A denoising step. `index` and `timestep` are set after it is made, which is faster than in a constructor."""

    __slots__ = ("index", "timestep")
    index: object
    timestep: object

    def __exit__(self, *_: object) -> None:
        was_open = self.state == OPEN
        Range.__exit__(self)
        if was_open and self.index is not UNKNOWN:
            at = None if self.timestep is UNKNOWN else self.timestep
            self.recording.units.add_step(self.index, at, self.ns, self.repeats)


class CountedStep(Step):
    """A step without a given index; it is counted within the range around it."""

    __slots__ = ()

    def __enter__(self) -> "CountedStep":
        if self.state:
            Range.__enter__(self)
            return self
        Range.__enter__(self)
        with self.recording.lock:
            count = getattr(self.above, "steps", 0)
            self.index = place = max(0, count - 1) if self.repeats else count
            self.above.steps = place + 1
        return self


class Unit(Range):
    """One unit of work, such as a block of frames. The phases within it account for its time."""

    __slots__ = ("_compiled", "asked", "frames", "is_unit", "latents", "lines", "spans")

    def __init__(self, recording: "Recording", frames: object, latents: object, kind: object) -> None:
        super().__init__(recording, "unit", "unit")
        self.frames, self.latents, self.asked = frames, latents, kind
        self.spans: list[SpanTime] = []
        """The ended ranges within it, as tuples, because Range objects would form a reference cycle with the unit."""
        self.lines: dict[str, int] = {}
        """Nanoseconds by phase, without the phases within it."""
        self.is_unit = True
        """Set to False before the end if there was no unit of work, as when a generator ends."""

    def __enter__(self) -> "Unit":
        if self.state == NEW:
            self._compiled = compiled()
        Range.__enter__(self)
        if self.unit is not None and self.unit is not self:
            self.recording.notes.add("misused", f"unit within unit '{self.unit.name}'; it counts as a phase")
        elif self.state == OPEN:
            self.unit = self
        return self

    def __exit__(self, *_: object) -> None:
        is_outermost, was_open = self.unit is self, self.state == OPEN
        if is_outermost:
            self.unit = None  # it is no part of its own account
            self.repeats = not self.is_unit
        Range.__exit__(self)
        if is_outermost and was_open and self.is_unit:
            self._finish()

    def _finish(self) -> None:
        recording = self.recording
        shown, _ = plain(self.asked)
        asked: UnitKind | None = next((known for known in ("opening", "filling", "steady") if known == shown), None)
        if asked is None:
            text = f"a unit's kind is {shown!r:.80}; give opening, filling or steady"
            recording.notes.add("misused", text)
        units = recording.units
        units.add(
            kind="compiling" if compiled() > self._compiled else asked or "steady",
            frames=units.amount("frames", self.frames),
            latents=units.amount("latents", self.latents),
            start_ns=self.started_ns,
            ns=self.ns,
            lines=self.lines,
            spans=self.spans,
            depth=self.stage.depth,
        )
        if recording.device_clock is not None:
            recording.device_clock.read()


def open_range() -> Range | None:
    """Return the innermost range of this context that has not ended."""
    found = innermost.get()
    while found is not None and found.state != OPEN:
        found = found.outer
    return found


class Nothing:
    """A range that records nothing; `NOTHING` is the only one."""

    __slots__ = ()

    def __enter__(self) -> "Nothing":
        return self

    def __exit__(self, *_: object) -> None:
        return None


NOTHING = Nothing()
