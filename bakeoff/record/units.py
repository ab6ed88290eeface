"""The account of units: every unit of a run in integer nanoseconds, line by line."""

from dataclasses import dataclass, field
from typing import Literal

LineKind = Literal["phase", "glue", "copies", "unattributed"]
UnitKind = Literal["opening", "filling", "steady"]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the account of a unit. The lines of a unit add up to its wall time exactly."""

    name: str
    """A phase's name, or `glue`, `copies`, `unattributed`."""
    kind: LineKind
    slot: str
    """The slot whose programs a phase calls; "" for the others."""
    ns: tuple[int, ...]
    """Of each unit, in order; 0 where a unit lacks the phase."""


@dataclass(frozen=True, slots=True)
class ProgramTime:
    """Time of the calls of one program, within the phases of their units."""

    slot: str
    program: str
    calls: tuple[int, ...]
    """In each unit."""
    ns: tuple[int, ...]
    """Of all its calls in each unit."""


@dataclass(frozen=True, slots=True)
class Units:
    """What was seen of every unit, in the order they ran; tuples have one entry a unit."""

    wall_ns: tuple[int, ...]
    started_ns: tuple[int, ...]
    """Start of the unit, from the start of the first one, by the worker's clock."""
    frames: tuple[int, ...]
    """Video frames delivered."""
    kinds: tuple[UnitKind, ...]
    """`opening` units differ in shape, `filling` ones run until windows are full and times have settled; figures are
    computed from `steady` ones."""
    sessions: tuple[int, ...]
    """Number of the session, from 0."""
    lines: tuple[Line, ...]
    programs: tuple[ProgramTime, ...]
    copied_bytes: tuple[int, ...]
    """Bytes of inputs and state that were copied between buffers."""
    moved: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Unit's number to what was compiled or captured in it, as `slot.program`."""
