"""Account of the time of a pipeline's or a session's units: computed from the record and never stored.

Each nanosecond counts once, and the lines add up to the units' time exactly. In a session it counts for the innermost
phase that it ran in, and steps count for the phase that they are in; in a pipeline calls count for their phase, and
what is between them is glue and copies. Rates and energy of a session are here too.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from bakeoff.record.monitor import DeviceEnergy
from bakeoff.record.pipeline import PipelineRecord, Units
from bakeoff.record.ranks import Clock
from bakeoff.record.session import LineKind, RangeKind, SessionRecord, UnitSpans

UNATTRIBUTED: Final = "unattributed"
RangePath = tuple[tuple[str, RangeKind], ...]
"""Name and kind of each range from the unit in; empty for the unit itself."""
Piece = tuple[RangePath, int, int]
"""Path, calls and own time in nanoseconds of one range, or of all with this path."""
_MOST_OTHERS = 0.01
_BETWEEN: Final[tuple[LineKind, ...]] = ("glue", "copies", UNATTRIBUTED)


@dataclass(frozen=True, slots=True)
class AccountLine:
    """Time that one phase takes of the units."""

    name: str
    """The phase; in a session, names from the outermost phase in, as in `denoise / all_reduce`."""
    kind: LineKind
    calls: int
    """In a session those of the phase, in a pipeline those of programs within it, over all units; 0 where unknown."""
    ns: int
    """Without the phases within it, over all units; negative where ranges of coroutines overlap."""
    thousandths: int
    """Share of the units' time; those of all lines add up to 1,000."""
    units: int
    slot: str = ""
    """In a pipeline, the slot whose programs it calls."""

    @property
    def ms(self) -> float:
        """Mean a unit."""
        return self.ns / self.units / 1e6

    @property
    def unit_calls(self) -> int | None:
        """Calls in a unit of a pipeline, which are as many in each; None where there are none."""
        return self.calls // self.units or None

    @property
    def share(self) -> str:
        return f"{self.thousandths / 10:.1f} %"


@dataclass(frozen=True, slots=True)
class Account:
    """The lines of some units; `unattributed` is the last one."""

    units: int
    ns: int
    of: Literal["all units", "kept steady units", "steady units"]
    """A session's ranges are totals over all kinds of units. Where others than steady ones take more than 1 % of the
    time, the account is of those steady ones that were kept in full."""
    lines: tuple[AccountLine, ...]

    @property
    def unit_ms(self) -> float:
        """Mean time of these units."""
        return self.ns / self.units / 1e6


def account(record: PipelineRecord | SessionRecord) -> Account | None:
    """Return the account of a record's units; None without units."""
    return _of_pipeline(record) if isinstance(record, PipelineRecord) else _of_session(record)


def account_lines(record: PipelineRecord | SessionRecord) -> tuple[AccountLine, ...]:
    """Return the lines of the account; none without units."""
    found = account(record)
    return found.lines if found is not None else ()


def place(kind: LineKind) -> int:
    """Phases come first, in the order of a unit, then what is between them."""
    return _BETWEEN.index(kind) + 1 if kind in _BETWEEN else 0


def steady(units: Units) -> list[int]:
    """Positions of the units that figures are computed from: steady ones in which nothing was compiled or captured."""
    return [place for place, kind in enumerate(units.kinds) if kind == "steady" and str(place) not in units.moved]


def shares(parts: Sequence[int]) -> tuple[int, ...]:
    """Each part's share of their sum in thousandths; they add up to 1,000 (largest remainders are rounded up).

    All are 0 where the sum is 0.
    """
    total = sum(parts)
    if total == 0:
        return (0,) * len(parts)
    whole = [part * 1000 // total for part in parts]
    order = sorted(range(len(parts)), key=lambda place: (-(parts[place] * 1000 % total), place))
    for place in order[: 1000 - sum(whole)]:
        whole[place] += 1
    return tuple(whole)


def _of_pipeline(record: PipelineRecord) -> Account | None:
    units = record.measurement.units
    chosen = steady(units) if units is not None else []
    if units is None or not chosen:
        return None
    met = [line for line in units.lines if line.kind != "phase" or any(line.ns[unit] for unit in chosen)]
    met.sort(key=lambda line: place(line.kind))
    totals = [sum(line.ns[unit] for unit in chosen) for line in met]
    made = tuple(
        AccountLine(
            line.name,
            line.kind,
            record.phase_calls.get(line.name, 0) * len(chosen),
            total,
            share,
            len(chosen),
            line.slot,
        )
        for line, total, share in zip(met, totals, shares(totals), strict=True)
    )
    return Account(len(chosen), sum(totals), "steady units", made)


@dataclass(slots=True)
class _Total:
    kind: LineKind
    calls: int = 0
    ns: int = 0


def _of_session(record: SessionRecord) -> Account | None:
    steady = [unit for unit in record.spans if unit.kind == "steady" and unit.is_whole]
    others_ns = sum(totals.wall_ns for totals in record.units if totals.kind != "steady")
    if steady and others_ns > _MOST_OTHERS * sum(totals.wall_ns for totals in record.units):
        pieces = [piece for unit in steady for piece in pieces_of_unit(unit)]
        return Account(len(steady), sum(unit.ns for unit in steady), "kept steady units", _lines(pieces, len(steady)))
    pieces = list(pieces_of(record))
    units = sum(calls for path, calls, _ in pieces if not path)
    return Account(units, sum(ns for *_, ns in pieces), "all units", _lines(pieces, units)) if units else None


def _lines(pieces: Iterable[Piece], units: int) -> tuple[AccountLine, ...]:
    totals: dict[str, _Total] = {}
    unattributed = _Total(UNATTRIBUTED)
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
        AccountLine(name, total.kind, total.calls, total.ns, share, units)
        for (name, total), share in zip(rows, parts, strict=True)
    )


def _line_kind(kind: RangeKind) -> LineKind:
    return "stage" if kind == "session" or kind == "unit" else kind  # a unit within a unit is a stage of the outer one


def pieces_of(record: SessionRecord, clock: Clock = "host", whole: bool = False) -> Iterator[Piece]:
    """Each range within an outermost unit; with `whole`, of a session without units all its ranges.

    By the device's clock those whose time is not known belong to what they are in.
    """
    whole = whole and all(each.kind != "unit" for each in record.ranges)
    inner: dict[tuple[str, ...], int] = {}
    for each in record.ranges:
        if each.path and each.device_ns is not None:
            inner[each.path[:-1]] = inner.get(each.path[:-1], 0) + each.device_ns
    kinds = {each.path: each.kind for each in sorted(record.ranges, key=lambda each: each.kind == "unit")}
    """Two ranges of one path differ in kind; what is within them counts for the unit."""
    for each in record.ranges:
        above = [each.path[:length] for length in range(1, len(each.path))]
        path = [(prefix[-1], kinds.get(prefix, "stage")) for prefix in above]
        path += [(each.path[-1], each.kind)] if each.path else []
        unit = next((place for place, (_, kind) in enumerate(path) if kind == "unit"), None)
        if unit is None and not whole:
            continue
        within = tuple(path[unit + 1 :] if unit is not None else path)
        if clock == "host":
            yield within, each.calls, each.own_ns
        elif each.device_ns is not None:
            yield within, each.calls, each.device_ns - (inner.pop(each.path, 0) if kinds[each.path] == each.kind else 0)


def pieces_of_unit(unit: UnitSpans) -> Iterator[Piece]:
    """The same of one unit that was kept."""
    ordered = sorted(unit.spans, key=lambda span: (span.start_ns, span.depth))
    inner = [0] * (len(ordered) + 1)
    """Time of the spans directly within each; the last is the unit's."""
    open_spans: list[int] = []
    paths: list[RangePath] = []
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
    """Energy by the device's own counter, else the integral of its power; None is unknown."""
    watt_hours: float | None
    joules_a_frame: float | None
    """Over the frames of all units, and all time of the session."""
    source: Literal["counter", "integral", ""]


def energies(record: SessionRecord) -> tuple[Energy, ...]:
    """Return the energy of each device that the monitor watched."""
    frames = sum(totals.frames for totals in record.units)
    return tuple(_energy(each, frames) for each in (record.monitored.energy if record.monitored is not None else ()))


def _energy(energy: DeviceEnergy, frames: int) -> Energy:
    if energy.mj is None:
        return Energy(energy.device, None, None, None, "")
    joules = energy.mj / 1000
    source: Literal["counter", "integral"] = "counter" if energy.counter_mj is not None else "integral"
    return Energy(energy.device, joules, joules / 3600, joules / frames if frames else None, source)
