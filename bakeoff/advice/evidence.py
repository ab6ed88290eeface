"""Input and output of the rules: facts from a profile and other records, in milliseconds per unit, and the advice."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Literal, NamedTuple

from bakeoff.models.component import Quantisation
from bakeoff.models.grouping import grouped
from bakeoff.models.pipelines import own_gains
from bakeoff.models.words import counted
from bakeoff.record.account import account_lines, steady
from bakeoff.record.comparable import computation_in, computation_of, may_divide
from bakeoff.record.floor import floor
from bakeoff.record.forecast import calls_ms
from bakeoff.record.pipeline import PipelineRecord, Profile, Ranking, SlotProgram
from bakeoff.record.store import Records, Stored, StoredPipeline
from bakeoff.record.verdict import LEAST_DIFFERENCE
from bakeoff.trace.table import ProfileTable, RankedRow, operators_scale, profile_table, ranked
from bakeoff.variant import Variant

Strength = Literal["information", "small", "notice", "strong"]
NOTICE, STRONG = 0.10, 0.20
"""Least gains with these strengths, as shares of a unit's time."""


def strength(gain_ms: float, unit_ms: float) -> Strength:
    """Return the strength of a gain by its share of a unit's time."""
    share = gain_ms / unit_ms if unit_ms else 0.0
    return "strong" if share >= STRONG else "notice" if share >= NOTICE else "small"


@dataclass(frozen=True, slots=True)
class Advice:
    """One recommendation."""

    code: str
    """The rule's code, stable for tests and links."""
    where: str
    """Phase, slot, program, rank or device; "" if it concerns the whole unit."""
    evidence: str
    """The numbers that made the rule fire."""
    says: str
    """Recommended action."""
    gain_ms: float | None
    """Upper bound of what it can gain, in milliseconds per unit; None if it has no such bound."""
    strength: Strength
    source: str = ""
    """Source of the fact behind it, such as an upstream issue."""


@dataclass(frozen=True, slots=True)
class PhaseFact:
    """A phase of a steady unit."""

    name: str
    ms: float
    busy_ms: float | None
    host_wait_ms: float | None
    """None on a CPU, or if nothing shows what runs inside the phase."""
    launches: float | None
    """Kernels or operators per unit."""


class RivalFact(NamedTuple):
    """Another variant for a slot, of the same precision class, which its records show to be faster."""

    slot: str
    now: str
    """The slot's present variant, such as `eager/fp32`."""
    rival: str
    now_ms: float
    """Sum over the slot's programs: calls per unit times the mean of the record, as a mix's time is promised."""
    rival_ms: float
    records: Sequence[str]
    """Record ids, those of the slot's present variant first."""


class FloorFact(NamedTuple):
    """The least time that a program's calls can take on the machine."""

    program: str
    """The program, as `slot.program`."""
    ms: float
    """Time of all its calls in a unit, as measured within the unit."""
    floor_ms: float
    bound: str
    """Limiting resource: `compute` or `traffic`."""
    record: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """All facts of one profile that rules may use."""

    unit: str
    """What a unit is: `frame`, `block` or `call`."""
    unit_ms: float
    """Mean over steady units."""
    frames: float
    """Video frames per unit."""
    frame_rate: float
    """Video frames per second that the model was made for; 0 if it was made for none."""
    phases: Sequence[PhaseFact] = ()
    glue_ms: float = 0.0
    unattributed_ms: float = 0.0
    copied_mib: float = 0.0
    """Inputs and state copied between buffers, in MiB per unit."""
    busy_ms: float | None = None
    """None if nothing shows what runs inside a phase."""
    ran: Sequence[RankedRow] = ()
    """The longest kernels; on a CPU, the longest operators by own time."""
    waits: Sequence[RankedRow] = ()
    """Calls that made the host wait for the device."""
    rivals: Sequence[RivalFact] = ()
    floors: Sequence[FloorFact] = ()
    own_gains: Sequence[tuple[str, str, float, str, str]] = ()
    """Code, phase, milliseconds per unit, evidence and recommendation of the pipeline's own rules."""
    compiled: str = ""
    """What was compiled in traced or steady units; "" for nothing."""
    slope_ms: tuple[float, float, float] | None = None
    """Change of the unit time from one steady unit to the next, with its 95 % interval."""
    steady_units: int = 0
    memory: tuple[float, str] | None = None
    """Peak use of the device's memory, as a share of all of it, and a text that says so."""
    device_findings: Sequence[tuple[str, str]] = ()
    """Code and text of the record's findings, for example that the GPU was throttled."""


_Way = tuple[str, Quantisation]
"""Backends and dtype as text, and their precision class."""
FEWEST = 6


def evidence_of(entry: StoredPipeline, records: Records) -> Evidence | None:
    """Return the facts of a record's profile; None if the record has no profile or no steady units."""
    record = entry.record
    table, profile, units = profile_table(record), record.measurement.profile, record.measurement.units
    if table is None or profile is None or units is None:
        return None
    chosen = steady(units)
    launches = {line.name: line.launches / profile.units for line in profile.lines}
    scale = operators_scale(profile, account_lines(record))
    between = {row.phase.kind: row.phase.ms for row in table.rows if row.phase.kind != "phase"}
    moved = (
        name
        for place in units.moved
        if units.kinds[int(place)] in ("steady", "resuming")
        for name in units.moved[place]
    )
    events = list(dict.fromkeys([*profile.compiled, *moved]))
    compiled = f"{counted(len(events), 'event')} of a compiler in steady units: {', '.join(events[:3])}"
    ran = profile.kernels if profile.kernels is not None else profile.operators
    calls = tuple(profile.synchronisations)
    waits = Ranking(calls, sum(each.ns for each in calls), len(calls))
    return Evidence(
        unit=record.unit,
        unit_ms=table.unit_ms,
        frames=round(mean(units.frames[place] for place in chosen)) if record.frame_rate else 0,
        frame_rate=record.frame_rate,
        phases=[
            PhaseFact(row.phase.name, row.phase.ms, row.busy_ms, row.host_wait_ms, launches.get(row.phase.name))
            for row in table.rows
            if row.phase.kind == "phase"
        ],
        glue_ms=between.get("glue", 0.0),
        unattributed_ms=between.get("unattributed", 0.0),
        copied_mib=mean(units.copied_bytes[place] for place in chosen) / 2**20,
        busy_ms=_busy(table, profile),
        ran=ranked(ran, profile.units, scale) if ran is not None else (),
        waits=ranked(waits, profile.units, scale),
        rivals=list(_rivals(record, records.current)),
        floors=list(_floors(record, records.current)),
        own_gains=_own_gains(record, table),
        compiled=compiled if events else "",
        slope_ms=slope([units.wall_ns[place] / 1e6 for place in chosen]),
        steady_units=len(chosen),
        memory=_memory(record),
        device_findings=[(finding.code, finding.text) for finding in record.measurement.findings],
    )


def _own_gains(record: PipelineRecord, table: ProfileTable) -> list[tuple[str, str, float, str, str]]:
    rules = own_gains(record.mix.pipeline)
    if rules is None:
        return []
    phases_ms = {row.phase.name: row.phase.ms for row in table.rows if row.phase.kind == "phase"}
    return list(rules(record.unit, table.unit_ms, phases_ms, record.sizes))


def _busy(table: ProfileTable, profile: Profile) -> float | None:
    if table.hidden_ms:
        return None
    return profile.busy_ns / profile.units / 1e6 if profile.kernels is not None else table.busy_ms


def _memory(record: PipelineRecord) -> tuple[float, str] | None:
    """Return the peak of the device's memory as a share of all of it, and a text; None if either is unknown."""
    memory, gpus = record.measurement.memory, record.host.gpus
    total = gpus[0].get("memory_bytes") if gpus else None
    if memory is None or not memory.device_peak_bytes or not isinstance(total, int) or not total:
        return None
    share = memory.device_peak_bytes / total
    return share, f"{share:.0%} of the device's memory at the peak"


def _called(record: PipelineRecord) -> Mapping[str, list[SlotProgram]]:
    """Return for each slot the programs that a steady unit calls."""
    return grouped((program.slot, program) for program in record.measurement.programs if record.calls.get(program.name))


def _rivals(record: PipelineRecord, stored: Sequence[Stored]) -> Iterator[RivalFact]:
    """Yield for each slot the fastest variant of its precision class that rows of one sweep show to be faster."""
    by_id = {entry.id: entry.record for entry in stored}
    for slot, programs in _called(record).items():
        ways: dict[_Way, dict[str, Stored]] = {}
        for program in programs:
            # A program may go by another name in the record that predicts it: `step29` is `step`.
            part = by_id.get(program.part)
            workloads = {program.variant.workload, *([part.variant.workload] if part is not None else [])}
            computation = computation_in(record, program)
            for entry in stored:
                other, variant = entry.record, entry.record.variant
                if (
                    other.status == "ok"
                    and other.latency is not None
                    and variant.workload in workloads
                    and other.machine.host == record.machine.host
                    and computation_of(other) == computation
                ):
                    way = _way(variant, other.quantisation)
                    ways.setdefault(way, {})[program.variant.workload] = entry  # the newest is the last
        names = {program.variant.workload for program in programs}
        whole = {way: found for way, found in ways.items() if set(found) == names}
        own = _way(programs[0].variant, programs[0].quantisation)
        if own not in whole:
            continue
        now = _total(whole[own], slot, record)
        others = {
            way: _total(found, slot, record)
            for way, found in whole.items()
            if way != own
            and way[1] == own[1]
            and all(may_divide(found[name].record, whole[own][name].record) for name in names)
        }
        faster = {way: times for way, times in others.items() if times[2] * (1 + LEAST_DIFFERENCE) < now[1]}
        if faster:
            best = min(faster, key=lambda way: faster[way][0])
            ids = [entry.id for way in (own, best) for entry in whole[way].values()]
            yield RivalFact(slot, own[0], best[0], now[0], faster[best][0], ids)


def _way(variant: Variant, quantisation: Quantisation) -> _Way:
    return f"{'+'.join(map(str, variant.backends))}/{variant.dtype}", quantisation


def _total(found: Mapping[str, Stored], slot: str, record: PipelineRecord) -> tuple[float, float, float]:
    """Return what a slot's records promise of a unit in ms, and their lower and upper ends of intervals."""
    calls = {workload: record.calls[f"{slot}.{workload}"] for workload in found}
    records = {workload: entry.record for workload, entry in found.items()}
    ends = [
        (calls[workload] * clock.low_ms, calls[workload] * clock.high_ms)
        for workload, each in records.items()
        if (clock := each.latency) is not None
    ]
    return calls_ms(records, calls), sum(low for low, _ in ends), sum(high for _, high in ends)


def _floors(record: PipelineRecord, stored: Sequence[Stored]) -> Iterator[FloorFact]:
    """Yield the floor of each program that a unit calls, from the record that predicts the program's time."""
    by_id = {entry.id: entry.record for entry in stored}
    units = record.measurement.units
    chosen = steady(units) if units is not None else []
    times = {
        (time.slot, time.program): mean(time.ns[place] for place in chosen) / 1e6
        for time in (units.programs if units is not None else ())
    }
    for programs in _called(record).values():
        for program in programs:
            part = by_id.get(program.part)
            least = floor(part) if part is not None else None
            inside = times.get((program.slot, program.variant.workload))
            if least is None or inside is None:
                continue
            name = program.name
            yield FloorFact(name, inside, least.ms * record.calls[name], least.bound, program.part)


def slope(times_ms: Sequence[float], places: Sequence[int] | None = None) -> tuple[float, float, float] | None:
    """Return Theil and Sen's slope per unit with its 95 % interval, which a few slow units do not decide.

    `places` are the numbers of the units, needed if some are left out. None for fewer than six units.
    """
    if len(times_ms) < FEWEST:
        return None
    from scipy.stats import theilslopes

    found = theilslopes(times_ms, range(len(times_ms)) if places is None else places, 0.95)
    return float(found[0]), float(found[2]), float(found[3])
