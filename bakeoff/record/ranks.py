"""Defines the report on the ranks of one run: spreads over ranks, waits, a straggler, scaling over world sizes.

Nothing here is stored with a run: it is computed from the ranks' session records whenever it is asked for.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from bakeoff.models.types import Scalar
from bakeoff.record.finding import Finding

ProblemCode = Literal[
    "missing",  # ranks without a file
    "torn",  # a file that is no complete session record
    "refused",  # a link, no regular file, too large, or with numbers that cannot be
    "duplicate",  # two files of one rank
    "foreign",  # a file of another run, or of no rank
    "failed",  # a rank whose session did not end well
    "ragged",  # ranks with different numbers of units
    "differs",  # ranks that disagree about what must be equal
    "dropped",  # a rank that left out phases to limit the cost of recording
    "shared-device",  # several ranks on one GPU
    "apart",  # ranks whose sessions do not overlap in time
]
Clock = Literal["host", "device"]
FoundBy = Literal["least wait in collectives", "own time of phases"]


@dataclass(frozen=True, slots=True)
class Problem:
    """A fault in the files of the ranks, or a difference between them. `code` is stable, `text` is for people."""

    code: ProblemCode
    text: str


@dataclass(frozen=True, slots=True)
class RankPart:
    """Time of one rank in one phase or collective, without nested ones."""

    name: str
    """Name of the phase; for a collective, the path of ranges within the unit, as in `denoise/all_reduce`."""
    ns: float
    """Nanoseconds per unit."""
    is_collective: bool


@dataclass(frozen=True, slots=True)
class RankRow:
    """Figures of one rank whose record was read. If the ranks have no units, times per unit are times per session."""

    rank: int
    file: str
    status: str
    host: str
    device: str
    """UUID of its GPU; "" on a CPU."""
    local_rank: int | None
    pid: int
    ns: int
    """Duration of its session."""
    units: int
    """Units of the kinds that the report counts."""
    frames: int
    units_ns: int
    unit_ns: float | None
    """Mean time of those units."""
    frames_per_s: float | None
    work_ns: float
    """Time per unit outside collectives."""
    collective_ns: float
    """Time per unit in collectives."""
    wait_ns: float | None
    """Waiting time per unit: time in collectives beyond that of the rank that spent the least there. None without
    collectives."""
    parts: tuple[RankPart, ...] = ()
    """Time in phases, in collectives and in no phase, by the report's clock."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Spread of one figure over ranks."""

    name: str
    """For example `unit`, `phase.denoise`, `wait` or `gpu.power.mean`."""
    unit: str
    least: float
    median: float
    greatest: float
    least_rank: int
    """Lowest rank that has the least value; `greatest_rank` likewise."""
    greatest_rank: int
    count: int
    """Number of ranks that have the figure."""
    skew: float | None
    """(greatest - median) / median; None if the median is not positive."""
    lacking: tuple[int, ...] = ()
    """Ranks that were read and lack the figure."""


@dataclass(frozen=True, slots=True)
class UnitSpread:
    """Spread of one unit's time, in milliseconds, over the ranks that kept this unit in full."""

    index: int
    ms: Spread


@dataclass(frozen=True, slots=True)
class RankValue:
    rank: int
    ns: float


@dataclass(frozen=True, slots=True)
class CollectiveWait:
    """Waiting time of each rank in one collective, per unit."""

    name: str
    """Path of ranges within the unit, as in `denoise/all_reduce`."""
    least_ns: float
    """Time of the rank that spent the least in it: an upper bound of the collective's own time."""
    waits: tuple[RankValue, ...]


@dataclass(frozen=True, slots=True)
class Straggler:
    """The rank that the others wait for."""

    rank: int
    found_by: FoundBy
    margin_ns: float
    """Most that it can cost per unit: how much less it waits than the median of the other ranks, or, without
    collectives, how much longer it works."""
    excess_ns: float
    """Its own work per unit minus the median of the other ranks' work; not positive if its work does not explain the
    waits."""
    cause: str
    """The phase that explains most of the excess; "" if it explains less than 80 %."""
    share: float | None
    """Share of the excess in the phase `largest`; above 1 if its other phases took less time than on other ranks."""
    largest: str
    """The phase that explains most of the excess, whether or not it counts as the cause."""


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Most memory in use on one GPU, as rank `seen_by` saw it. The figures of several ranks are not added up, because
    each rank sees the memory of the whole device."""

    device: str
    mib: float
    seen_by: int
    ranks: tuple[int, ...]
    """Ranks that run on it; empty if ranks only watched it."""


@dataclass(frozen=True, slots=True)
class RanksEnergy:
    """Energy of one device, counted once: the largest figure of any rank, that of rank `seen_by`."""

    device: str
    host: str
    mj: float
    seen_by: int
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SameFinding:
    """A finding of session records, and the ranks that have it."""

    ranks: tuple[int, ...]
    finding: Finding


@dataclass(frozen=True, slots=True)
class RanksConfig:
    """Facts that must be equal for two runs to be compared by world size."""

    name: str
    parallelism: Literal["model", "data"]
    tags: Mapping[str, Scalar] = field(default_factory=dict)
    frames_per_unit: float | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment of the lowest rank; if it differs between runs, the notes of `Scaling` name the difference."""


@dataclass(frozen=True, slots=True)
class RanksReport:
    """Report on all ranks of one run."""

    folder: str
    group: str
    config: RanksConfig
    world: int
    """Number of ranks as the records state it."""
    expected: int
    rows: tuple[RankRow, ...]
    """Ordered by rank."""
    missing: tuple[int, ...]
    """Expected ranks that no file names."""
    torn: tuple[str, ...]
    """Names of the files; `refused`, `duplicate` and `foreign` have names of files too."""
    refused: tuple[str, ...]
    duplicate: tuple[str, ...]
    foreign: tuple[str, ...]
    problems: tuple[Problem, ...]
    counted: str
    """Text that says which units the figures cover."""
    clock: Clock
    """Clock of phases and collectives."""
    frames_per_s: float | None
    """Frame rate of the run: that of the slowest rank if all ranks make one video, the sum if each makes its own."""
    frames_text: str
    """Description of how the rate was computed, or why it is unknown."""
    spreads: tuple[Spread, ...]
    units: tuple[UnitSpread, ...]
    waits: tuple[CollectiveWait, ...]
    straggler: Straggler | None
    straggler_text: str
    """Rank that the others wait for and why, or why none is named."""
    memory: tuple[DeviceMemory, ...]
    energy: tuple[RanksEnergy, ...]
    energy_mj: float | None
    """Energy of the GPUs that ranks run on; None if one of them is unknown."""
    findings: tuple[SameFinding, ...]

    @property
    def is_whole(self) -> bool:
        """Whether every expected rank and every file of a rank could be read."""
        return not (self.missing or self.torn or self.refused)


@dataclass(frozen=True, slots=True)
class ScalingPoint:
    """One of several runs that differ in world size alone."""

    folder: str
    world: int
    frames_per_s: float
    speedup: float
    """Ratio of its frames a second to those of the smallest world."""
    efficiency: float
    """Speed-up over the ratio of world sizes."""
    serial_share: float | None
    """Karp and Flatt (1990): (1/S - 1/p) / (1 - 1/p), with p the ratio of world sizes. None for the smallest world.
    Below zero the run scales better than its number of ranks."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """Runs of equal configuration and at least two world sizes, the smallest first."""

    base_world: int
    points: tuple[ScalingPoint, ...]
    notes: tuple[str, ...] = ()
    """Runs that were left out and why, and what differs between those compared."""
