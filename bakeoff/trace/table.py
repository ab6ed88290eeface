"""The table of a profile: the time of each line of a unit, and how much of it the device was busy.

Spans come from the timed units, which are not traced; the busy part of them comes from the traced units.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bakeoff.record.account import AccountLine, account_lines, shares
from bakeoff.record.pipeline import LineTrace, NamedTime, PipelineRecord, Profile, ProgramSight, Ranking

TOLERANCE = 0.02
"""Share of a span by which traced busy time may exceed it; beyond that, the trace contradicts the timed units."""
OTHERS = "others"


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """One line of the account of a steady unit; times are means in milliseconds per unit."""

    phase: AccountLine
    busy_ms: float | None = None
    """None if nothing shows what runs inside the line."""
    idle_ms: float | None = None
    """Span minus busy time; None if the busy time is unknown or the trace contradicts the span."""
    host_wait_ms: float | None = None
    """Part of the idle time in which the host had not launched the next kernel yet. The parts are None if causes are
    unknown, as on a CPU, where operators run on the calling thread."""
    gap_ms: float | None = None
    """Short pauses between queued kernels."""
    other_ms: float | None = None
    inconsistent: bool = False
    """Whether the traced units were busy in this line for longer than a timed unit spends in it."""
    told_by: str = ""
    """Tracers that saw what runs inside: `torch.profiler`, or the tracer of a traced build; "" if none did."""


@dataclass(frozen=True, slots=True)
class ProfileTable:
    """All lines of a profiled unit; their shares add up to 100.0 %."""

    rows: tuple[ProfileRow, ...]
    unit_ms: float
    busy_ms: float
    """Sum over the rows whose busy time is known and does not contradict their span."""
    idle_ms: float
    hidden_ms: float
    """Sum of the spans of rows whose busy time is unknown or contradicts the span."""
    cores: float
    """Mean number of busy cores in the traced units: CPU time over wall time."""
    overlap_ms: float | None
    """Time that calls overlap: with a synchronisation at each border, a unit takes so much longer. None on a CPU."""


def profile_table(record: PipelineRecord) -> ProfileTable | None:
    """Return the table of a record's profile; None if the record has no profile or no steady units."""
    profile = record.measurement.profile
    rows = account_lines(record)
    if profile is None or not rows:
        return None
    traced = {(line.name, line.kind): line for line in profile.lines}
    sights = {f"{sight.slot}.{sight.program}": sight for sight in profile.programs}
    made = tuple(_row(row, traced.get((row.name, row.kind)), profile, sights) for row in rows)
    unit_ms = sum(row.ms for row in rows)
    stepped = profile.stepped_ns
    return ProfileTable(
        rows=made,
        unit_ms=unit_ms,
        busy_ms=sum(row.busy_ms for row in made if row.busy_ms is not None and not row.inconsistent),
        idle_ms=sum(row.idle_ms for row in made if row.idle_ms is not None),
        hidden_ms=sum(row.phase.ms for row in made if row.idle_ms is None),
        cores=profile.cpu_ns / profile.wall_ns if profile.wall_ns else 0.0,
        overlap_ms=sum(stepped) / len(stepped) / 1e6 - unit_ms if stepped else None,
    )


def _row(row: AccountLine, line: LineTrace | None, profile: Profile, sights: Mapping[str, ProgramSight]) -> ProfileRow:
    """Return a line's row: busy time from the traced build or traced units, idle time as the rest of its span."""
    if line is None:
        return ProfileRow(row, 0.0, row.ms)
    called = [sights[name] for name in line.programs if name in sights]
    if any(sight.sight == "hidden" for sight in called):
        return ProfileRow(row)
    own = [sight for sight in called if sight.sight == "in its own build"]
    tellers = ", ".join(dict.fromkeys(sight.tracer for sight in called)) or "torch.profiler"
    if own:
        total = sum(sight.total_ns for sight in own)
        busy_ms = row.ms * sum(min(sight.named_ns, sight.total_ns) for sight in own) / total if total else 0.0
        return ProfileRow(row, busy_ms, row.ms - busy_ms, told_by=tellers)
    if profile.kernels is None:  # on a CPU profiling lengthens the operators themselves, so that only a share holds
        share = min(1.0, line.busy_ns / line.span_ns) if line.span_ns else 0.0
        return ProfileRow(row, row.ms * share, row.ms * (1 - share), told_by=tellers)
    busy_ms = line.busy_ns / profile.units / 1e6
    if busy_ms > row.ms * (1 + TOLERANCE):
        return ProfileRow(row, busy_ms, inconsistent=True, told_by=tellers)
    idle_ms = max(0.0, row.ms - busy_ms)
    return ProfileRow(row, busy_ms, idle_ms, *_split(idle_ms, line), told_by=tellers)


def _split(idle_ms: float, line: LineTrace) -> tuple[float, float, float]:
    """Split the idle time of a timed unit in the proportions of the traced units, which are idle for longer."""
    total = line.host_wait_ns + line.gap_ns + line.other_ns
    if not total:
        return 0.0, 0.0, idle_ms
    return idle_ms * line.host_wait_ns / total, idle_ms * line.gap_ns / total, idle_ms * line.other_ns / total


@dataclass(frozen=True, slots=True)
class RankedRow:
    """A row of a ranking, such as a kernel or an operator, with its calls and milliseconds per unit."""

    name: str
    line: str
    calls: float
    ms: float
    thousandths: int
    """Share of the time of all kernels, or of all operators; the shares of a table add up to 1,000."""


def operators_scale(profile: Profile, rows: Sequence[AccountLine]) -> dict[str, float]:
    """Return the factors from traced to timed operator times on a CPU, by line, with the key "" for all lines together.

    Profiling lengthens operators as much as their line. It does not lengthen kernels, so there are no factors on a GPU.
    """
    if profile.kernels is not None:
        return {}
    spans = {line.name: line.span_ns / profile.units / 1e6 for line in profile.lines}
    total = sum(spans.values())
    scale = {row.name: row.ms / spans[row.name] for row in rows if spans.get(row.name)}
    return scale | ({"": sum(row.ms for row in rows) / total} if total else {})


def scaled(rows: Sequence[NamedTime], scale: Mapping[str, float]) -> list[NamedTime]:
    """Return the rows with their times multiplied by the factor of their line, or by 1 if `scale` lacks the line."""
    return [replace(row, ns=round(row.ns * scale.get(row.line, 1.0))) for row in rows]


def ranked(ranking: Ranking, units: int, scale: Mapping[str, float]) -> tuple[RankedRow, ...]:
    """Return the rows of a ranking, the longest first, and a last row for all names that it does not list, if any.

    `units` is the number of traced units, and `scale` the result of `operators_scale`.
    """
    others = []
    if left := ranking.names - len(ranking.top):
        ns = ranking.total_ns - sum(row.ns for row in ranking.top)
        others.append(NamedTime(f"{left} {OTHERS}" if left > 1 else "1 other", "", 0, ns))
    rows = [*sorted(scaled(ranking.top, scale), key=lambda row: -row.ns), *scaled(others, scale)]
    return _ranked_rows(rows, units)


def _ranked_rows(rows: Sequence[NamedTime], units: int) -> tuple[RankedRow, ...]:
    return tuple(
        RankedRow(row.name, row.line, row.calls / units, row.ns / units / 1e6, share)
        for row, share in zip(rows, shares([row.ns for row in rows]), strict=True)
    )


def own_kernels(sights: Sequence[ProgramSight], calls: Mapping[str, int]) -> tuple[RankedRow, ...]:
    """Return the kernels of programs that only a traced build shows, those with the most time per unit first.

    A kernel's time is its time in one call of the traced build, times the calls in a unit, which `calls` has by
    `slot.program`. The last row is the kernel time that the traced builds do not list.
    """
    found, total = [], 0
    for sight in sights:
        if sight.sight != "in its own build":
            continue
        count = calls.get(f"{sight.slot}.{sight.program}", 0)
        total += sight.named_ns * count
        found += [
            NamedTime(kernel.name, f"{sight.slot}.{sight.program}", round(kernel.calls * count), kernel.ns * count)
            for kernel in sight.kernels
            if count
        ]
    found.sort(key=lambda row: -row.ns)
    listed = sum(row.ns for row in found)
    rows = [*found, *([NamedTime(OTHERS, "", 0, total - listed)] if total > listed else [])]
    return _ranked_rows(rows, 1)
