"""Compares the ranks of one run: spreads with the ranks they are of, waits, a straggler, scaling.

Nothing here is stored with a run: it is computed from the ranks' session records whenever it is asked for.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from bakeoff.models.types import Scalar
from bakeoff.record.schema import Finding

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
    """Time of one rank in one phase or collective, without those within it."""

    name: str
    """The phase; for a collective, the names from the unit in, as in `denoise/all_reduce`."""
    ns: float
    """A unit."""
    is_collective: bool


@dataclass(frozen=True, slots=True)
class RankRow:
    """One rank whose record was read. Times a unit are a session's where the ranks have no units."""

    rank: int
    file: str
    status: str
    host: str
    device: str
    """UUID of its GPU; "" on a CPU."""
    local_rank: int | None
    pid: int
    ns: int
    """Time of its session."""
    units: int
    """Units of the kinds that the report counts."""
    frames: int
    units_ns: int
    unit_ns: float | None
    """Mean of those units."""
    frames_per_s: float | None
    work_ns: float
    """A unit, without collectives."""
    collective_ns: float
    """A unit, in collectives."""
    wait_ns: float | None
    """A unit: time in collectives that the rank which spent the least time there did not need. None without any."""
    parts: tuple[RankPart, ...] = ()
    """Phases, collectives and what no phase has, by the report's clock."""


@dataclass(frozen=True, slots=True)
class Spread:
    """One figure over ranks."""

    name: str
    """For example `unit`, `phase.denoise`, `wait` or `gpu.power.mean`."""
    unit: str
    least: float
    median: float
    greatest: float
    least_rank: int
    """The lowest rank that has it; so `greatest_rank`."""
    greatest_rank: int
    count: int
    """Ranks that have the figure."""
    skew: float | None
    """(greatest - median) / median; None where the median is not positive."""
    lacking: tuple[int, ...] = ()
    """Ranks that were read and do not have it."""


@dataclass(frozen=True, slots=True)
class UnitSpread:
    """Time of the unit of one index over the ranks that kept it in full, in milliseconds."""

    index: int
    ms: Spread


@dataclass(frozen=True, slots=True)
class RankValue:
    rank: int
    ns: float


@dataclass(frozen=True, slots=True)
class CollectiveWait:
    """Waits in one collective, a unit."""

    name: str
    """Names of the ranges from the unit in, as in `denoise/all_reduce`."""
    least_ns: float
    """Time of the rank that spent the shortest in it: at most this is the collective itself."""
    waits: tuple[RankValue, ...]


@dataclass(frozen=True, slots=True)
class Straggler:
    """The rank that the others wait for."""

    rank: int
    found_by: FoundBy
    margin_ns: float
    """A unit: how much less it waits than the other ranks in their median, or how much longer it works where nothing is
    collective: the most that it can cost."""
    excess_ns: float
    """A unit: its own work over the median of the others'; not positive where its work does not explain it."""
    cause: str
    """The phase that explains most of the excess; "" if it explains less than 80 %."""
    share: float | None
    """Share of the excess in the phase that explains most; above 1 where others took less time than on other ranks."""
    largest: str
    """The phase that explains most, cause or not."""


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Most memory in use on one GPU, by whichever rank saw most: memory of a device is not added up over its ranks."""

    device: str
    mib: float
    seen_by: int
    ranks: tuple[int, ...]
    """Ranks that run on it; none where a rank only watched it."""


@dataclass(frozen=True, slots=True)
class RanksEnergy:
    """Energy of one device, once, however many ranks saw it."""

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
    """Environment of the lowest rank; where it differs, it is said."""


@dataclass(frozen=True, slots=True)
class RanksReport:
    """All ranks of one run."""

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
    """Names of files, as `refused`, `duplicate` and `foreign`."""
    refused: tuple[str, ...]
    duplicate: tuple[str, ...]
    foreign: tuple[str, ...]
    problems: tuple[Problem, ...]
    counted: str
    """Description of the units that the figures are of."""
    clock: Clock
    """Clock of phases and collectives."""
    frames_per_s: float | None
    """Rate of the run: of the slowest rank where all make one video, of all ranks together where each makes its own."""
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
    """Energy of the GPUs that ranks run on; None where one of them is unknown."""
    findings: tuple[SameFinding, ...]

    @property
    def is_whole(self) -> bool:
        """Whether every expected rank was read, and every file that a rank wrote."""
        return not (self.missing or self.torn or self.refused)


@dataclass(frozen=True, slots=True)
class ScalingPoint:
    """One run among those that differ in world size alone."""

    folder: str
    world: int
    frames_per_s: float
    speedup: float
    """Ratio of its frames a second to those of the smallest world."""
    efficiency: float
    """Speed-up over the ratio of world sizes."""
    serial_share: float | None
    """Karp and Flatt (1990): (1/S - 1/p) / (1 - 1/p), with p the ratio of world sizes. None of the smallest world.
    Below zero the run scales better than its number of ranks."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """Runs of equal configuration and at least two world sizes, the smallest first."""

    base_world: int
    points: tuple[ScalingPoint, ...]
    notes: tuple[str, ...] = ()
    """Runs that were left out and why, and what differs between those compared."""
