"""Evidence that the rules read, in milliseconds a unit, and the advice that they give."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Strength = Literal["information", "small", "notice", "strong"]
NOTICE, STRONG = 0.10, 0.20
"""Shares of a unit."""


@dataclass(frozen=True, slots=True)
class Advice:
    """One recommendation."""

    code: str
    """The rule, stable for tests and links."""
    where: str
    """Phase, slot or program; "" where it is of the whole unit."""
    evidence: str
    """The numbers that made the rule fire."""
    says: str
    """Recommended action."""
    gain_ms: float | None
    """The most that it can gain, milliseconds a unit: an upper bound, not a promise. None: it has no such bound."""
    strength: Strength
    source: str = ""
    """Source of the fact behind it, such as an upstream issue."""


@dataclass(frozen=True, slots=True)
class PhaseFact:
    """A phase of a steady unit."""

    name: str
    slot: str
    calls: int | None
    ms: float
    busy_ms: float | None
    host_wait_ms: float | None
    """None on a CPU, and where nothing shows the inside."""
    launches: float | None
    """Kernels or operators a unit."""


@dataclass(frozen=True, slots=True)
class OperationFact:
    """A kernel or an operator within a phase."""

    name: str
    phase: str
    calls: float
    ms: float


@dataclass(frozen=True, slots=True)
class RivalFact:
    """Another variant that could fill a slot, of the same class of precision, shown faster by its records."""

    slot: str
    now: str
    """The slot's variant, as in `eager/fp32`."""
    rival: str
    now_ms: float
    """Calls of a unit times medians of the records."""
    rival_ms: float
    records: Sequence[str]
    """Ids, those of the slot's own variant first."""


@dataclass(frozen=True, slots=True)
class FloorFact:
    """The least time that a program's calls can take on the machine."""

    program: str
    """`slot.program`."""
    ms: float
    """Time of all its calls in a unit, as measured within it."""
    floor_ms: float
    bound: str
    """compute or traffic."""
    record: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """All facts of one profile that rules may use."""

    unit: str
    """frame, block or call."""
    unit_ms: float
    """Mean over steady units."""
    frames: int
    """Video frames a unit."""
    frame_rate: float
    """Video frames a second that the model was made for; 0: none."""
    phases: Sequence[PhaseFact]
    glue_ms: float
    unattributed_ms: float
    copied_mib: float
    busy_ms: float | None
    """None where the inside of a phase is hidden."""
    kernels: Sequence[OperationFact] = ()
    """On a GPU."""
    operators: Sequence[OperationFact] = ()
    """Own times on a CPU, where there are no kernels."""
    waits: Sequence[OperationFact] = ()
    """Calls that made the host wait for the device."""
    rivals: Sequence[RivalFact] = ()
    floors: Sequence[FloorFact] = ()
    sizes: Sequence[tuple[str, int]] = ()
    layers: Sequence[tuple[str, int]] = ()
    """Slot to the number of its layers, where its config states it."""
    compiled: Sequence[str] = ()
    """Programs compiled in traced or steady units."""
    slope_ms: tuple[float, float, float] | None = None
    """Change of the unit time from one steady unit to the next, with its 95 % interval."""
    steady_units: int = 0
    memory_share: float | None = None
    """Peak of the device's memory over all of it."""
    device_findings: Sequence[tuple[str, str]] = ()
    """Code and text of what the record found of the machine."""
    best_mix: tuple[str, float, str] | None = None
    """The fastest ok mix of the same subject in the records: its string, milliseconds a unit, record."""

    def size(self, name: str) -> int | None:
        return dict(self.sizes).get(name)


def strength(gain_ms: float, unit_ms: float) -> Strength:
    """Return the strength of a gain by its share of a unit."""
    share = gain_ms / unit_ms if unit_ms else 0.0
    return "strong" if share >= STRONG else "notice" if share >= NOTICE else "small"
