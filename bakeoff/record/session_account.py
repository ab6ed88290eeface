"""Where the time of a session's units goes, its rates and its energy, computed from its record and never stored.

Of the account each nanosecond counts once, for the innermost phase that it ran in; steps count for the phase that they
are in. The lines add up to the units' time.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from bakeoff.record.frames import shares
from bakeoff.record.monitor import DeviceEnergy
from bakeoff.record.session import RangeKind, SessionRecord, UnitSpans

LineKind = Literal["stage", "phase", "collective", "step", "unattributed"]
UNATTRIBUTED = "unattributed"
_MOST_OTHERS = 0.01
_Path = tuple[tuple[str, RangeKind], ...]
"""Name and kind of each range from the unit in; empty for the unit itself."""


@dataclass(frozen=True, slots=True)
class AccountLine:
    """What one phase takes of the units."""

    name: str
    """Names from the outermost phase in, as in `denoise / all_reduce`."""
    kind: LineKind
    calls: int
    ns: int
    """Without the phases within it, over all units; negative where ranges of coroutines overlap."""
    thousandths: int
    """Share of the units' time; those of all lines add up to 1,000."""


@dataclass(frozen=True, slots=True)
class Account:
    """The lines of some units of a session; `unattributed` is the last one."""

    units: int
    ns: int
    of: Literal["all units", "kept steady units"]
    """Ranges are totals over all kinds of units. Where others than steady ones take more than 1 % of the time, the
    account is of those steady ones that were kept in full."""
    lines: tuple[AccountLine, ...]

    @property
    def unit_ms(self) -> float:
        """Mean time of these units."""
        return self.ns / self.units / 1e6


@dataclass(slots=True)
class _Total:
    kind: LineKind
    calls: int = 0
    ns: int = 0


def account(record: SessionRecord) -> Account | None:
    """The account of a session's units; None of a session without units."""
    steady = [unit for unit in record.spans if unit.kind == "steady" and unit.is_whole]
    others_ns = sum(totals.wall_ns for totals in record.units if totals.kind != "steady")
    if steady and others_ns > _MOST_OTHERS * sum(totals.wall_ns for totals in record.units):
        pieces = [piece for unit in steady for piece in _of_spans(unit)]
        return Account(len(steady), sum(unit.ns for unit in steady), "kept steady units", _lines(pieces))
    pieces = list(_of_ranges(record))
    units = sum(calls for path, calls, _ in pieces if not path)
    return Account(units, sum(ns for *_, ns in pieces), "all units", _lines(pieces)) if units else None


def _lines(pieces: Iterable[tuple[_Path, int, int]]) -> tuple[AccountLine, ...]:
    totals: dict[str, _Total] = {}
    unattributed = _Total("unattributed")
    for path, calls, own_ns in pieces:
        if not path:
            unattributed.calls += calls
            unattributed.ns += own_ns
            continue
        named = [each for each in path if each[1] != "step"] or path[:1]
        found = totals.setdefault(" / ".join(name for name, _ in named), _Total(_line_kind(named[-1][1])))
        found.ns += own_ns
        if named[-1] is path[-1]:
            found.calls += calls
    rows = [*totals.items(), (UNATTRIBUTED, unattributed)]
    parts = shares([total.ns for _, total in rows])
    return tuple(
        AccountLine(name, total.kind, total.calls, total.ns, share)
        for (name, total), share in zip(rows, parts, strict=True)
    )


def _line_kind(kind: RangeKind) -> LineKind:
    return "stage" if kind == "session" or kind == "unit" else kind  # a unit within a unit is a stage of the outer one


def _of_ranges(record: SessionRecord) -> Iterator[tuple[_Path, int, int]]:
    """Path, calls and own time of each range within an outermost unit."""
    kinds = {each.path: each.kind for each in sorted(record.ranges, key=lambda each: each.kind == "unit")}
    """Two ranges of one path differ in kind; what is within them counts for the unit."""
    for each in record.ranges:
        above = [each.path[:length] for length in range(1, len(each.path))]
        path = [(prefix[-1], kinds.get(prefix, "stage")) for prefix in above]
        path += [(each.path[-1], each.kind)] if each.path else []
        unit = next((place for place, (_, kind) in enumerate(path) if kind == "unit"), None)
        if unit is not None:
            yield tuple(path[unit + 1 :]), each.calls, each.own_ns


def _of_spans(unit: UnitSpans) -> Iterator[tuple[_Path, int, int]]:
    """The same of one unit that was kept."""
    ordered = sorted(unit.spans, key=lambda span: (span.start_ns, span.depth))
    inner = [0] * (len(ordered) + 1)
    """Time of the spans directly within each; the last is the unit's."""
    open_spans: list[int] = []
    paths: list[_Path] = []
    for place, span in enumerate(ordered):
        del open_spans[max(0, span.depth - 1) :]
        above = open_spans[-1] if open_spans else -1
        inner[above] += span.ns
        paths.append((*(paths[above] if open_spans else ()), (span.name, span.kind)))
        open_spans.append(place)
    yield (), 1, unit.ns - inner[-1]
    for place, span in enumerate(ordered):
        yield paths[place], 1, span.ns - inner[place]


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates over the wall time of units; what lies between units does not count."""

    fps: float | None
    """Frames of these units over their wall time; None without units, and where none tells its frames."""
    bps: float | None
    """Units (blocks) over the same time; None without units."""
    of: Literal["steady", "all"]
    """`all` where no unit was steady: opening, filling and compiling units are then among them."""


def rates(record: SessionRecord) -> Rates:
    """Rates of the steady units, or of all units where none is steady."""
    steady = [totals for totals in record.units if totals.kind == "steady" and totals.count]
    chosen = steady or list(record.units)
    wall_ns = sum(totals.wall_ns for totals in chosen)
    frames = sum(totals.frames for totals in chosen)
    count = sum(totals.count for totals in chosen)
    return Rates(
        fps=frames * 1e9 / wall_ns if wall_ns and frames else None,
        bps=count * 1e9 / wall_ns if wall_ns and count else None,
        of="steady" if steady else "all",
    )


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy of one device over the session. Devices are not added up: a domain may hold another one."""

    device: str
    joules: float | None
    """By the device's own counter, else the integral of its power; None is unknown."""
    watt_hours: float | None
    joules_a_frame: float | None
    """Over the frames of all units, and all time of the session."""
    source: Literal["counter", "integral", ""]


def energies(record: SessionRecord) -> tuple[Energy, ...]:
    """Of each device that the monitor watched."""
    frames = sum(totals.frames for totals in record.units)
    return tuple(_energy(each, frames) for each in (record.monitored.energy if record.monitored is not None else ()))


def _energy(energy: DeviceEnergy, frames: int) -> Energy:
    if energy.mj is None:
        return Energy(energy.device, None, None, None, "")
    joules = energy.mj / 1000
    source: Literal["counter", "integral"] = "counter" if energy.counter_mj is not None else "integral"
    return Energy(energy.device, joules, joules / 3600, joules / frames if frames else None, source)
