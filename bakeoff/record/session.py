"""Record of a user's session: ranges, units, steps, events and series, in bounded size.

Times are monotonic nanoseconds from the session's start, unless a field says otherwise. Rates, shares and advice are
computed from a record, never stored.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from bakeoff.models.types import Scalar
from bakeoff.models.words import counted
from bakeoff.record.finding import Finding
from bakeoff.record.monitor import Monitored, SeriesRecord

SESSION_SCHEMA = 1
GPU_MEMORY, MACHINE_CORES = "gpu_memory_mib", "cores_of_machine"
"""Keys of a record's environment for the memory of its GPU in MiB and the cores of the machine; `cores` are those that
the process may use."""
RangeKind = Literal["session", "stage", "unit", "phase", "step", "collective"]
"""`collective` is a phase that waits for other ranks."""
LineKind = Literal["stage", "phase", "collective", "step", "glue", "copies", "idle", "unattributed"]
"""Kind of an account's line: a range's kind, or that of the time between ranges."""
UnitKind = Literal["opening", "filling", "compiling", "resuming", "steady"]
"""`opening` units differ in shape, `filling` units run while a window fills, during `compiling` units a compiler's
counter moved, and `resuming` units of a mix that takes turns follow its pause. Rates are of `steady` units, if any."""


@dataclass(frozen=True, slots=True)
class RangeTotal:
    """Totals over all ranges with one path."""

    path: tuple[str, ...]
    """Names from the outermost range to this one; empty for the session itself."""
    kind: RangeKind
    calls: int
    total_ns: int
    """Host time, including nested ranges."""
    own_ns: int
    """Host time without nested ranges. The own times of a whole session add up to its `ns` exactly."""
    device_ns: int | None = None
    """Time between CUDA events at the start and the end; None without a CUDA device, or if no event was read."""


@dataclass(frozen=True, slots=True)
class UnitTotals:
    """Totals over all units of one kind."""

    kind: UnitKind
    count: int
    frames: int
    latents: int
    wall_ns: int
    """Sum of the units' durations."""
    least_ns: int
    greatest_ns: int
    percentiles_ns: Mapping[str, float] = field(default_factory=dict)
    """`p50`, `p90`, `p99`, `p99.9`, accurate to 0.1 %; a percentile that needs more units is absent."""


@dataclass(frozen=True, slots=True)
class Span:
    """One range within a unit that was kept in full."""

    name: str
    kind: RangeKind
    depth: int
    """1 for a phase of the unit."""
    start_ns: int
    """From the start of the session."""
    ns: int


MOST_SPANS = 200
"""Most ranges of a unit that are kept, in the order in which they ended; a unit with this many may have had more."""


@dataclass(frozen=True, slots=True)
class UnitSpans:
    """A unit whose ranges were kept. Of a long session, the first and the last units are kept."""

    index: int
    """From 0, over all units of the session."""
    kind: UnitKind
    frames: int
    start_ns: int
    ns: int
    spans: tuple[Span, ...]

    @property
    def is_whole(self) -> bool:
        """Whether none of its ranges was dropped."""
        return len(self.spans) < MOST_SPANS


@dataclass(frozen=True, slots=True)
class StepTotals:
    """Totals over all denoising steps with one index."""

    index: int
    timestep: float | None
    """Timestep of the last of these steps."""
    calls: int
    ns: int
    least_ns: int
    greatest_ns: int


@dataclass(frozen=True, slots=True)
class SessionEvent:
    """Something that happened at one time."""

    t_ns: int
    name: str
    data: Mapping[str, Scalar] = field(default_factory=dict)
    failed: bool = False
    """Whether its data could not be read; `data` then contains the error."""


@dataclass(frozen=True, slots=True)
class ModelParameters:
    """Size of a model that the pipeline uses, once for each name."""

    name: str
    count: int
    bytes: int | None
    """Size of the parameters; None if only their number was given."""
    dtype: str
    kind: str


@dataclass(frozen=True, slots=True)
class RecordingCost:
    """Cost of recording, as the session itself measured it."""

    range_ns: float
    """Time of one empty range on this machine: the median of several thousand."""
    ranges: int
    dropped: tuple[str, ...] = ()
    """Kinds of ranges that were left out after recording had cost more than the limit."""

    @property
    def ns(self) -> float:
        return self.range_ns * self.ranges


@dataclass(frozen=True, slots=True)
class RankFacts:
    """Identity of the process that made this record, among the ranks of a run."""

    group: str
    """The same in all ranks of one run."""
    rank: int
    world: int
    host: str
    device: str
    """UUID of the GPU; "" on a CPU."""
    pid: int
    parallelism: Literal["model", "data"]
    """`model`: one video by all ranks; `data`: each rank makes its own."""


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """Record of a whole session."""

    schema: int
    name: str
    status: str
    """`ok`, `failed: ValueError: ...` or `interrupted`."""
    started_at: str
    """UTC, ISO 8601."""
    started_wall_ns: int
    """Start in nanoseconds since the Unix epoch, by this rank's clock."""
    ns: int
    tags: Mapping[str, Scalar]
    settings: Mapping[str, Scalar]
    environment: Mapping[str, str]
    """Machine, devices, versions."""
    ranges: tuple[RangeTotal, ...]
    """Ranges of the session, each before the ranges nested in it."""
    before: tuple[RangeTotal, ...] = ()
    """Ranges of this process that ended before its first session."""
    units: tuple[UnitTotals, ...] = ()
    spans: tuple[UnitSpans, ...] = ()
    steps: tuple[StepTotals, ...] = ()
    events: tuple[SessionEvent, ...] = ()
    events_dropped: int = 0
    parameters: tuple[ModelParameters, ...] = ()
    series: tuple[SeriesRecord, ...] = ()
    """Unit times (`unit`), times of phases by unit (`phase.NAME`), and the user's own series; a monitor's series are in
    `monitored`."""
    monitored: Monitored | None = None
    cost: RecordingCost | None = None
    rank: RankFacts | None = None
    findings: tuple[Finding, ...] = ()


def violation(record: SessionRecord) -> str | None:
    """Return a sentence about the first inconsistency in a record; None if there is none."""
    return next(_violations(record), None)


def _violations(record: SessionRecord) -> Iterator[str]:
    if record.ns < 0:
        yield f"the session took {record.ns} ns"
    for each in (*record.ranges, *record.before):
        if each.calls < 0 or each.total_ns < 0:
            yield f"range {'/'.join(each.path) or 'session'} has {counted(each.calls, 'call')} of {each.total_ns} ns"
    total = sum(each.own_ns for each in record.ranges)
    if record.ranges and total != record.ns:
        yield f"the ranges add up to {total} ns, but the session took {record.ns} ns"
    for units in record.units:
        if units.count <= 0 or units.wall_ns < 0 or units.frames < 0:
            count, frames = counted(units.count, f"{units.kind} unit"), counted(units.frames, "frame")
            yield f"{count} of {frames} took {units.wall_ns} ns"
    for kept in record.spans:
        if kept.ns < 0 or any(span.ns < 0 or span.depth < 1 for span in kept.spans):
            yield f"unit {kept.index} has a span of negative length or depth"
    for step in record.steps:
        if step.calls <= 0:
            yield f"step {step.index} has {counted(step.calls, 'call')}"
    for series in (*record.series, *(record.monitored.series if record.monitored is not None else ())):
        if any(point.count <= 0 for point in series.points):
            yield f"series {series.name} has a point of no samples"
