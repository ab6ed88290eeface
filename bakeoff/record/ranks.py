"""Defines the report on the ranks of one run: a row a rank, figures over ranks, and the straggler.

Nothing here is stored with a run: it is computed from the ranks' session records whenever it is asked for.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from bakeoff.models.types import Scalar

ProblemCode = Literal[
    "missing",  # ranks without a file
    "unreadable",  # a link, no regular file, or no complete record of a rank
    "left-out",  # a file of another run or of no rank, or a second file of one rank
    "failed",  # a rank whose session did not end well
    "differs",  # ranks with other numbers of units than most
    "dropped",  # a rank that left out phases to limit the cost of recording
    "shared-device",  # several ranks on one GPU
]
Clock = Literal["host", "device"]
FoundBy = Literal["least wait in collectives", "own time of phases"]


@dataclass(frozen=True, slots=True)
class Problem:
    """A fault in the files of the ranks, or a difference between them. `code` is stable, `text` is for people."""

    code: ProblemCode
    text: str


@dataclass(frozen=True, slots=True)
class RankRow:
    """Figures of one rank whose record was read. If the ranks have no units, times per unit are times per session."""

    rank: int
    file: str
    status: str
    host: str
    device: str
    """UUID of its GPU; "" on a CPU."""
    ns: int
    """Duration of its session."""
    units: int
    """Units of the kinds that the report counts."""
    frames: int
    unit_ns: float | None
    """Mean time of those units."""
    frames_per_s: float | None
    phases: Mapping[str, float]
    """Nanoseconds per unit by phase, without nested ones, and in no phase, by the report's clock."""
    collectives: Mapping[str, float]
    """The same by collective, named by the path of ranges within the unit, as in `denoise/all_reduce`."""
    waits: Mapping[str, float]
    """By collective that other ranks have too, its nanoseconds per unit beyond those of the rank with the least."""

    @property
    def work_ns(self) -> float:
        """Time per unit outside collectives."""
        return sum(self.phases.values())

    @property
    def wait_ns(self) -> float | None:
        """Waiting time per unit in all collectives; None without collectives."""
        return sum(self.waits.values()) if self.waits else None


@dataclass(frozen=True, slots=True)
class Spread:
    """Spread of one figure over the ranks that have it."""

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
class RanksReport:
    """Report on all ranks of one run."""

    folder: str
    group: str
    name: str
    parallelism: Literal["model", "data"]
    tags: Mapping[str, Scalar]
    environment: Mapping[str, str]
    """Environment of the lowest rank, as are name, parallelism and tags."""
    world: int
    """Number of ranks as the records state it."""
    rows: tuple[RankRow, ...]
    """Ordered by rank."""
    missing: tuple[int, ...]
    """Ranks that no file names."""
    unreadable: tuple[str, ...]
    """Names of files."""
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
    straggler: Straggler | None
    straggler_text: str
    """Rank that the others wait for, why, and what to look for; or why none is named."""
    findings: Mapping[str, tuple[int, ...]]
    """Findings of the ranks' own records, as `code: text`, and the ranks that have each."""

    @property
    def is_whole(self) -> bool:
        """Whether every rank and every file of a rank could be read."""
        return not (self.missing or self.unreadable)
