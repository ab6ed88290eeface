"""Units, steps and notes of a session in bounded memory: totals by kind, the first and last units in full, series."""

from collections import deque
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from threading import RLock
from typing import NamedTuple

from bakeoff.monitor.series import Histogram, Series
from bakeoff.profile.plain import number, plain, whole
from bakeoff.profile.stages import Stage
from bakeoff.record.finding import Finding, SessionCode, new_finding
from bakeoff.record.monitor import Point, SeriesRecord
from bakeoff.record.session import Span, StepTotals, UnitKind, UnitSpans, UnitTotals

MOST_TEXTS = 6
"""Largest number of different texts of one code; further ones are counted with the first."""


class Notes:
    """Texts that become a session's findings, by code, and how often each occurred. Thread-safe."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._counts: dict[SessionCode, dict[str, int]] = {}

    def add(self, code: SessionCode, text: str, count: int = 1) -> None:
        with self._lock:
            texts = self._counts.setdefault(code, {})
            if text not in texts and len(texts) >= MOST_TEXTS:
                text = next(iter(texts))
            texts[text] = texts.get(text, 0) + count

    def has_room(self, held: Sized, most: int, what: str) -> bool:
        """Return whether a bounded collection takes one more; note that it does not."""
        if len(held) < most:
            return True
        self.add("left-out", f"{most} {what} are kept, not further ones")
        return False

    def take(self, earlier: "Notes") -> None:
        """Add the notes of an earlier collection."""
        for code, texts in earlier._counts.items():
            for text, count in texts.items():
                self.add(code, text, count)

    def findings(self) -> tuple[Finding, ...]:
        with self._lock:
            return tuple(
                new_finding(code, text if count == 1 else f"{text} ({count} times)")
                for code, texts in self._counts.items()
                for text, count in texts.items()
            )


FIRST_UNITS, LAST_UNITS = 3, 20
"""Numbers of first and last units that are kept in full."""
MOST_STEPS = 1_000
"""Largest number of different step indices."""
MOST_PHASE_SERIES = 24
_MOST_INDEX = 2**63
MOST_MS = 86_400_000.0
"""Largest time that a caller may have measured: a day, so that totals fit into 64 bits of nanoseconds."""
_RECENT = 20
"""Number of last units over which the live display computes rates."""
_PERCENTILES: Mapping[str, tuple[float, int]] = {
    "p50": (0.5, 1),
    "p90": (0.9, 10),
    "p99": (0.99, 100),
    "p99.9": (0.999, 1_000),
}
"""Share of each percentile, and the number of units that it needs: with fewer it would be the largest value."""


SpanTime = tuple[Stage, int, int]
"""A range that has ended: its stage, start and time in nanoseconds."""


class _Kept(NamedTuple):
    """A unit that is kept in full; times are in nanoseconds of the recording's clock."""

    number: int
    kind: UnitKind
    frames: int
    start_ns: int
    ns: int
    spans: Sequence[SpanTime]
    depth: int


@dataclass(slots=True)
class _Totals:
    count: int = 0
    frames: int = 0
    latents: int = 0
    wall_ns: int = 0
    least_ns: int = 0
    greatest_ns: int = 0
    times: Histogram = field(default_factory=Histogram)


@dataclass(slots=True)
class _Step:
    calls: int
    ns: int
    least_ns: int
    greatest_ns: int
    timestep: float | None


class UnitBook:
    """Units and steps of a session. Thread-safe."""

    def __init__(self, points: int, notes: Notes) -> None:
        """Series have at most `points` points."""
        self._lock = RLock()
        self._points, self._notes = points, notes
        self._totals: dict[UnitKind, _Totals] = {}
        self._first: list[_Kept] = []
        self._last: deque[_Kept] = deque(maxlen=LAST_UNITS)
        self._recent: deque[tuple[int, int]] = deque(maxlen=_RECENT)
        self._steps: dict[int, _Step] = {}
        self._series = Series(points)
        self._phases: dict[str, Series] = {}
        self.count = 0
        self.frames = 0

    def amount(self, what: str, value: object) -> int:
        """Return a unit's number of frames or latents, named by `what`.

        Note a value that is no whole number, and return 0.
        """
        found = whole(value)
        if found is None:
            self._notes.add("misused", f"{what} of a unit is {_shown(value)}; give a whole number from 0")
        return found or 0

    def nanoseconds(self, ms: object) -> int | None:
        """Return a time that the caller measured in nanoseconds; note a value that is none, and return None."""
        found = number(ms)
        if found is None or not 0 <= found <= MOST_MS:
            text = f"computation_time_ms is {_shown(ms)}; give a number of the host from 0 to {MOST_MS:g}"
            self._notes.add("misused", text)
            return None
        return round(found * 1e6)

    def add(
        self,
        kind: UnitKind,
        frames: int,
        latents: int,
        start_ns: int,
        ns: int,
        lines: Mapping[str, int] | None = None,
        spans: Sequence[SpanTime] = (),
        depth: int = 1,
    ) -> None:
        """Add a unit that has ended.

        `lines` are nanoseconds by phase, without the phases within it; `depth` is that of the unit among the ranges of
        the session.
        """
        with self._lock:
            totals = self._totals.get(kind)
            if totals is None:
                totals = self._totals[kind] = _Totals(least_ns=ns)
            totals.count += 1
            totals.frames += frames
            totals.latents += latents
            totals.wall_ns += ns
            totals.least_ns = min(totals.least_ns, ns)
            totals.greatest_ns = max(totals.greatest_ns, ns)
            totals.times.add(ns)
            kept = _Kept(self.count, kind, frames, start_ns, ns, spans, depth)
            (self._first if self.count < FIRST_UNITS else self._last).append(kept)
            self._recent.append((ns, frames))
            self.count += 1
            self.frames += frames
            self._series.add(start_ns, ns)
            for name, phase_ns in (lines or {}).items():
                self._phase(name, start_ns, phase_ns)

    def _phase(self, name: str, start_ns: int, ns: int) -> None:
        series = self._phases.get(name)
        if series is None:
            if not self._notes.has_room(self._phases, MOST_PHASE_SERIES, "phases' times by unit"):
                return
            series = self._phases[name] = Series(self._points)
        series.add(start_ns, ns)

    def add_step(self, index: object, timestep: object, ns: int, goes_on: bool = False) -> None:
        """Record a finished denoising step of `ns` nanoseconds.

        With `goes_on`, it continues a generator's earlier step: its time is added to the call's total but does not
        count towards the minimum and maximum.
        """
        place = index if type(index) is int and 0 <= index < _MOST_INDEX else whole(index)
        if place is None:
            self._notes.add("misused", f"index of a step is {_shown(index)}; give a whole number from 0")
            return
        at = timestep if timestep is None else number(timestep)
        if at is None and timestep is not None:
            text = (
                "a timestep is no number, or on a device, where reading it would wait; give one of timesteps.tolist()"
            )
            self._notes.add("misused", text)
        with self._lock:
            found = self._steps.get(place)
            if found is None:
                if not self._notes.has_room(self._steps, MOST_STEPS, "step indices"):
                    return
                found = self._steps[place] = _Step(0, 0, ns, ns, None)
            found.ns += ns
            if goes_on and found.calls:
                return
            found.calls += 1
            if ns < found.least_ns:  # min and max would cost a tenth of a range
                found.least_ns = ns
            elif ns > found.greatest_ns:
                found.greatest_ns = ns
            if at is not None:
                found.timestep = at

    def recent(self) -> tuple[float | None, float | None]:
        """Return frames and units per second over the last units; None for what is unknown."""
        with self._lock:
            wall_ns, frames = map(sum, zip(*self._recent, strict=True)) if self._recent else (0, 0)
            count = len(self._recent)
        if not wall_ns:
            return None, None
        return (frames * 1e9 / wall_ns if frames else None), count * 1e9 / wall_ns

    def totals(self) -> tuple[UnitTotals, ...]:
        """Return the totals of each kind of unit, in the order in which the kinds first occurred."""
        with self._lock:
            return tuple(
                UnitTotals(
                    kind=kind,
                    count=each.count,
                    frames=each.frames,
                    latents=each.latents,
                    wall_ns=each.wall_ns,
                    least_ns=each.least_ns,
                    greatest_ns=each.greatest_ns,
                    percentiles_ns=_percentiles(each),
                )
                for kind, each in self._totals.items()
            )

    def steps(self) -> tuple[StepTotals, ...]:
        with self._lock:
            return tuple(
                StepTotals(index, each.timestep, each.calls, each.ns, each.least_ns, each.greatest_ns)
                for index, each in sorted(self._steps.items())
            )

    def spans(self, session_ns: int) -> tuple[UnitSpans, ...]:
        """Return the units that were kept in full, with times from the session's start at `session_ns`."""
        with self._lock:
            return tuple(_unit_spans(unit, session_ns) for unit in (*self._first, *self._last))

    def series(self, session_ns: int) -> tuple[SeriesRecord, ...]:
        """Return the series of units' and phases' times in nanoseconds, from the session's start at `session_ns`."""
        with self._lock:
            if not self.count:
                return ()
            found = {"unit": self._series, **{f"phase.{name}": series for name, series in self._phases.items()}}
            return tuple(
                SeriesRecord(name, "ns", "process", shifted(series, session_ns)) for name, series in found.items()
            )


def shifted(series: Series, session_ns: int) -> tuple[Point, ...]:
    """Return a series' points with times from the session's start, at `session_ns` of the recording's clock."""
    return tuple(replace(point, t_ns=point.t_ns - session_ns) for point in series.points())


def _percentiles(totals: _Totals) -> dict[str, float]:
    found = {
        name: totals.times.percentile(share) for name, (share, least) in _PERCENTILES.items() if totals.count >= least
    }
    return {name: min(max(ns, totals.least_ns), totals.greatest_ns) for name, ns in found.items() if ns is not None}


def _unit_spans(unit: _Kept, session_ns: int) -> UnitSpans:
    ordered = sorted(unit.spans, key=lambda span: (span[1], span[0].depth))
    return UnitSpans(
        index=unit.number,
        kind=unit.kind,
        frames=unit.frames,
        start_ns=unit.start_ns - session_ns,
        ns=unit.ns,
        spans=tuple(
            Span(stage.name, stage.kind, max(1, stage.depth - unit.depth), start_ns - session_ns, ns)
            for stage, start_ns, ns in ordered
        ),
    )


def _shown(value: object) -> str:
    found, _ = plain(value)
    return f"{found!r:.80}"
