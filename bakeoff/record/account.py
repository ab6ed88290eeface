"""Breaks down the time of a pipeline's or a session's units by phase, and computes a session's rates and energy.

All of it is computed from a record and never stored. Each nanosecond counts once, so the lines add up to the units'
time exactly. In a session, time counts towards the innermost phase that it was spent in, and a step's time towards the
phase around the step. In a pipeline, calls count towards their phase, and the time between calls is glue and copies.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Literal

from bakeoff.record.monitor import DeviceEnergy
from bakeoff.record.pipeline import PipelineRecord, Units
from bakeoff.record.ranks import Clock
from bakeoff.record.session import LineKind, RangeKind, SessionRecord, UnitSpans
from bakeoff.record.statistics import trimmed

UNATTRIBUTED: Final = "unattributed"
RangePath = tuple[tuple[str, RangeKind], ...]
"""Name and kind of each nested range, from the outermost one within the unit inwards; empty for the unit itself."""
Piece = tuple[RangePath, int, int]
"""Path, number of calls and own time in nanoseconds: of a single range, or of all ranges with the same path."""
_BETWEEN: Final[tuple[LineKind, ...]] = ("glue", "copies", "idle", UNATTRIBUTED)


@dataclass(frozen=True, slots=True)
class AccountLine:
    """Time that one phase takes within the units."""

    name: str
    """Name of the phase; in a session, the path from the outermost phase to this one, as in `denoise / all_reduce`."""
    kind: LineKind
    calls: int
    """Calls over all units: of the phase in a session, of programs within the phase in a pipeline; 0 if unknown."""
    ns: int
    """Time over all units, without nested phases; negative if ranges of coroutines overlap."""
    thousandths: int
    """Share of the units' time in thousandths; the shares of all lines add up to 1,000."""
    units: int
    slot: str = ""
    """In a pipeline, the slot whose programs the phase calls; otherwise empty."""

    @property
    def ms(self) -> float:
        """Mean time per unit in milliseconds."""
        return self.ns / self.units / 1e6

    @property
    def unit_calls(self) -> int | None:
        """Calls in one unit of a pipeline, the same number in every unit; None if there are none."""
        return self.calls // self.units or None

    @property
    def share(self) -> str:
        return f"{self.thousandths / 10:.1f} %"


@dataclass(frozen=True, slots=True)
class Account:
    """Breakdown of the time of units into lines, the last of which is `unattributed`."""

    units: int
    ns: int
    of: Literal["all units", "kept steady units", "steady units"]
    """Units that the account covers: of a session, the steady ones, as its rates do, or all if none is steady. A
    session's ranges are totals over units of all kinds, from which the others are subtracted; if one of those was not
    kept in full, the account covers the steady units that were."""
    lines: tuple[AccountLine, ...]

    @property
    def unit_ms(self) -> float:
        """Mean time per unit in milliseconds."""
        return self.ns / self.units / 1e6


def account(record: PipelineRecord | SessionRecord) -> Account | None:
    """Return the account of a record's units; None if the record has no units to count."""
    if isinstance(record, PipelineRecord):
        units = record.measurement.units
        return account_of(units, record.phase_calls, steady(units)) if units is not None else None
    return _of_session(record)


def account_lines(record: PipelineRecord | SessionRecord) -> tuple[AccountLine, ...]:
    """Return the lines of a record's account; empty if the record has no units to count."""
    found = account(record)
    return found.lines if found is not None else ()


def place(kind: LineKind) -> int:
    """Return the sort key of a line's kind: phases come first, then glue, copies and unattributed time."""
    return _BETWEEN.index(kind) + 1 if kind in _BETWEEN else 0


def steady(units: Units) -> list[int]:
    """Return the indices of the units that figures are computed from: steady ones without compilation or capture."""
    return [place for place, kind in enumerate(units.kinds) if kind == "steady" and str(place) not in units.moved]


def middle(units: Units) -> list[int]:
    """Return the steady units without the fastest and the slowest twentieth, which are the machine's and not the mix's.

    Of a sustained run, whose account is not kept for each unit, return all.
    """
    chosen = steady(units)
    return chosen if units.spans else sorted(trimmed(chosen, units.wall_ns.__getitem__))


def shares(parts: Sequence[int]) -> tuple[int, ...]:
    """Return each part's share of the sum in thousandths. The shares add up to 1,000: the largest remainders are
    rounded up.

    If the sum is 0, all shares are 0.
    """
    total = sum(parts)
    if total == 0:
        return (0,) * len(parts)
    whole = [part * 1000 // total for part in parts]
    order = sorted(range(len(parts)), key=lambda place: (-(parts[place] * 1000 % total), place))
    for place in order[: 1000 - sum(whole)]:
        whole[place] += 1
    return tuple(whole)


def account_of(units: Units, phase_calls: Mapping[str, int], chosen: Sequence[int]) -> Account | None:
    """Return the account of some of a pipeline's steady units, with the calls of each phase in a unit; None of none."""
    if not chosen or not units.lines:
        return None
    entries = _entries(units, chosen)
    met = [line for line in units.lines if line.kind != "phase" or any(line.ns[entry] for entry in entries)]
    met.sort(key=lambda line: place(line.kind))
    totals = [sum(line.ns[entry] for entry in entries) for line in met]
    made = tuple(
        AccountLine(
            line.name,
            line.kind,
            phase_calls.get(line.name, 0) * len(chosen),
            total,
            share,
            len(chosen),
            line.slot,
        )
        for line, total, share in zip(met, totals, shares(totals), strict=True)
    )
    return Account(len(chosen), sum(totals), "steady units", made)


def _entries(units: Units, chosen: Sequence[int]) -> Sequence[int]:
    """Return the entries of the account that are of these units; those of a span are all chosen or none is."""
    if not units.spans:
        return chosen
    first, held = accumulate(units.spans, initial=0), set(chosen)
    return [entry for entry, (unit, _) in enumerate(zip(first, units.spans, strict=False)) if unit in held]


@dataclass(slots=True)
class _Total:
    kind: LineKind
    calls: int = 0
    ns: int = 0


def _of_session(record: SessionRecord) -> Account | None:
    steady = any(totals.kind == "steady" for totals in record.units)
    kept = [unit for unit in record.spans if unit.kind == "steady" and unit.is_whole]
    if steady and tells_units_apart(record):
        return _of_pieces(pieces_of_steady(record), "steady units")
    if kept:
        return _of_pieces([piece for unit in kept for piece in pieces_of_unit(unit)], "kept steady units")
    return _of_pieces(pieces_of(record), "all units")


def _of_pieces(found: Iterable[Piece], of: Literal["all units", "kept steady units", "steady units"]) -> Account | None:
    pieces = list(found)
    units = sum(calls for path, calls, _ in pieces if not path)
    return Account(units, sum(ns for *_, ns in pieces), of, _lines(pieces, units)) if units else None


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
    met = [(name, total) for name, total in totals.items() if total.calls or total.ns]
    rows = [*met, (UNATTRIBUTED, unattributed)]
    parts = shares([total.ns for _, total in rows])
    return tuple(
        AccountLine(name, total.kind, total.calls, total.ns, share, units)
        for (name, total), share in zip(rows, parts, strict=True)
    )


def _line_kind(kind: RangeKind) -> LineKind:
    return "stage" if kind == "session" or kind == "unit" else kind  # a unit within a unit is a stage of the outer one


def pieces_of(record: SessionRecord, clock: Clock = "host", whole: bool = False) -> Iterator[Piece]:
    """Yield a piece for each range within a unit, its path counted from the outermost unit around it.

    With `whole`, a session without units yields all its ranges. By the device's clock, a range whose device time is
    unknown yields nothing, and its time stays with the range around it.
    """
    whole = whole and all(each.kind != "unit" for each in record.ranges)
    inner: dict[tuple[str, ...], int] = {}
    for each in record.ranges:
        if each.path and each.device_ns is not None:
            inner[each.path[:-1]] = inner.get(each.path[:-1], 0) + each.device_ns
    kinds = {each.path: each.kind for each in sorted(record.ranges, key=lambda each: each.kind == "unit")}
    """Kind of each path. If two ranges with the same path differ in kind, nested ranges count for the unit."""
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


def pieces_of_steady(record: SessionRecord) -> Iterator[Piece]:
    """Yield the pieces of all units and, negative, those of units that are not steady.

    Their sums are those of the steady units, for which `tells_units_apart` must be true. A session without units yields
    all its ranges.
    """
    yield from pieces_of(record, whole=True)
    for unit in record.spans:
        if unit.kind != "steady":
            yield from ((path, -calls, -ns) for path, calls, ns in pieces_of_unit(unit))


def tells_units_apart(record: SessionRecord) -> bool:
    """Return whether every unit that is not steady was kept in full and can be subtracted from the totals."""
    kept = Counter(unit.kind for unit in record.spans if unit.is_whole)
    return all(kept[totals.kind] == totals.count for totals in record.units if totals.kind != "steady")


def pieces_of_unit(unit: UnitSpans) -> Iterator[Piece]:
    """Yield a piece for one kept unit and for each of its spans, with their own times."""
    ordered = sorted(unit.spans, key=lambda span: (span.start_ns, span.depth))
    inner = [0] * (len(ordered) + 1)
    """Time of the spans directly within each span; the last entry is that of the unit."""
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
    """Frames per second of the units' wall time; None without units, or if no unit states its frames."""
    bps: float | None
    """Units (blocks) per second of the same wall time; None without units."""
    of: Literal["steady", "all"]
    """`all` if no unit was steady; the rates then include opening, filling and compiling units."""


def rates(record: SessionRecord) -> Rates:
    """Return the rates of the steady units, or of all units if none is steady."""
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
    """Energy of one device over the session. Devices are not added up, because one RAPL domain may include another."""

    device: str
    joules: float | None
    """Energy by the device's own counter, or else by integrating its power; None if unknown."""
    watt_hours: float | None
    joules_a_frame: float | None
    """Energy of the whole session divided by the frames of all units; None without either."""
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
