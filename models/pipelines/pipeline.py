"""`Pipeline`, the base class of loops around networks, and `Loop`, the description of one without torch.

Authors subclass `Pipeline`; a mix of variants fills its slots. `Loop` describes a pipeline with its preset and options
applied. It is made by running the first units once (bakeoff/worker/pipeline/describe.py), and the parent process plans
and reports from it alone.
"""

import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

from bakeoff.models.component import Signal
from bakeoff.models.errors import no_such
from bakeoff.models.options import OptionValue, read_options, written_option
from bakeoff.models.types import Scalar

UnitName = Literal["frame", "block", "call"]
OPENING = -1
"""Stands for the opening of a session in place of a unit's number."""


class Key(NamedTuple):
    """Names of a slot and of one of its programs, a workload that the loop calls."""

    slot: str
    program: str

    def __str__(self) -> str:
        return f"{self.slot}.{self.program}"


@dataclass(frozen=True, slots=True)
class NoOptions:
    """Options of a pipeline that has none."""


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A component of this lab that fills a slot."""

    component: str
    """Name in the table of components, or package.module:SPEC."""
    preset: str
    batch: int = 1


class Pipeline:
    """Base class of a loop that makes units (frames, blocks) in turn; each takes a state and returns the next one.

    An object is one preset with its options. State is a tree (dicts, lists, tuples) of tensors, and all that passes
    from one unit to the next: units must not keep anything elsewhere. `run.SLOT` calls the module of a slot, or the
    engine that a mix puts there. See docs/pipelines.md.
    """

    name: ClassVar[str] = ""
    """Name in mixes and tables; "": that of the file, as in `mine`, or `mine.Other` if the class is not called Loop."""
    summary: ClassVar[str] = ""
    credit: ClassVar[str] = ""
    unit_name: ClassVar[UnitName] = "frame"
    rate: ClassVar[float] = 0.0
    """Video frames a second that the model was made for; 0 if it delivers none."""
    max_units: ClassVar[int | None] = None
    """Units after which a session must be opened anew (the end of a position table); None: no limit."""
    filling: ClassVar[int] = 0
    """Number of units until a session's windows are full and its cost is final."""
    Options: ClassVar[type] = NoOptions
    """Frozen dataclass of numbers, text, booleans and Literals; raises BakeoffError (`bad-option`) for wrong values."""
    presets: ClassVar[Mapping[str, str]] = {"default": ""}
    """Names of the presets, each with a note for tables, or "" if it is the published size."""
    default_preset: ClassVar[Mapping[str, str]] = {}
    """Default preset by device; the first preset for a device without an entry."""
    signals: ClassVar[Mapping[str, Signal]] = {}
    """Outputs that are pictures or audio: they are also compared by PSNR or SNR."""
    code: ClassVar[str] = ""
    """package.module:Class of the subclass with the methods, if this class has only the facts, without torch."""

    def __init_subclass__(cls) -> None:
        # neither is that of the class above it, whose loop may be another one
        cls.name, cls.code = vars(cls).get("name", cls.__name__.lower()), vars(cls).get("code", "")

    def __init__(self, preset: str, options: Any) -> None:
        self.preset, self.options = preset, options

    def modules(self) -> Mapping[str, Any]:
        """Return the module of each slot: a torch.nn.Module in the state that is to be measured, or a BuiltIn."""
        raise NotImplementedError

    def frames(self, unit: int) -> int:
        """Return the number of video frames that unit `unit` of a session delivers."""
        return 1

    def given(self, unit: int, draw: Any) -> Any:
        """Return the external inputs of a unit, or of the opening of a session: noise, actions, conditions.

        They are made before the unit's time begins. `draw(name, shape, kind)` gives the same values in every mix.
        """
        return {}

    def start(self, given: Any, run: Any) -> Any:
        """Return the state with which a session starts."""
        return {}

    def step(self, state: Any, given: Any, run: Any) -> tuple[Any, Mapping[str, Any]]:
        """Run one unit; return its new state, and its outputs by name."""
        raise NotImplementedError

    def sizes(self) -> Mapping[str, int]:
        """Return facts to print beside every number, such as the number of denoising steps."""
        return {}

    @classmethod
    def preset_of(cls, name: str, device: str) -> str:
        """Return `name`, or for "" the device's default preset. Raises BakeoffError for an unknown name."""
        name = name or cls.default_preset.get(device, "") or next(iter(cls.presets))
        if name not in cls.presets:
            raise no_such(f"pipeline {cls.name}", "preset", name, cls.presets)
        return name

    @classmethod
    def options_of(cls, given: Mapping[str, OptionValue]) -> Any:
        """Return the options from names and values. Raises BakeoffError for an unknown name or a wrong type."""
        return read_options(cls.name, cls.Options, given)


@dataclass(frozen=True, slots=True)
class Slot:
    """A place for one component; a mix names a variant for each."""

    name: str
    component: str
    """Name as in BuiltIn, or the folder of a brought model."""
    preset: str
    batch: int = 1
    users: bool = False
    """True for a module of the pipeline's author: it is called with its own arguments, not with named tensors."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a program in a unit."""

    phase: str
    slot: str
    program: str
    about: dict[str, Scalar] = field(default_factory=dict)
    """Facts in a trace beside the call, such as its step and timestep."""

    @property
    def key(self) -> Key:
        return Key(self.slot, self.program)


@dataclass(frozen=True, slots=True)
class Unit:
    """Calls of a unit, or of the opening of a session."""

    calls: tuple[Call, ...]
    phases: tuple[str, ...]
    """Phases in order; one without calls is glue that has a phase of its own."""
    frames: int = 0
    """Number of video frames that the unit delivers."""


@dataclass(frozen=True, slots=True)
class Loop:
    """A pipeline with its preset and options applied, as described by running its first units."""

    name: str
    preset: str
    label: str
    """What tables print beside the preset; "" for the published size."""
    options: dict[str, OptionValue]
    """All options, in the order of their declaration."""
    changed: dict[str, OptionValue]
    """Options that differ from the defaults."""
    unit: UnitName
    slots: tuple[Slot, ...]
    opened: Unit
    """The opening of a session."""
    opening: tuple[Unit, ...]
    """The first units of a session, if they call other programs than a steady unit."""
    steady: Unit
    """Every later unit."""
    filling: int
    max_units: int | None
    state: dict[str, tuple[str, ...]]
    """Slots that contributed to each tensor of the state that units change, by the tensor's path: their fp32 tolerances
    and kinds of quantisation set the limit of its error."""
    outputs: dict[str, tuple[str, ...]]
    """Slots that contributed to each output, likewise."""
    signals: dict[str, Signal] = field(default_factory=dict)
    """Outputs that are pictures or audio."""
    windows: dict[str, tuple[tuple[str, str, str], ...]] = field(default_factory=dict)
    """(slot, program, input) of each reader of a sliding window, by its path in the state. All read one buffer."""
    carried: dict[str, dict[str, str]] = field(default_factory=dict)
    """For each `slot.program` that a unit calls once, its outputs that become its own inputs in the next unit: the
    input by output."""
    flows: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """What flows into each call of a steady unit (`call 3`, by its place), output (`output video`) and tensor of the
    new state (`state keys`), by any way: calls of the unit, and the state that it starts with."""
    kept: tuple[Key, ...] = ()
    """Key of each program whose outputs are still read after its next call."""
    rate: float = 0.0
    sizes: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """Facts that a user should know, each in a sentence."""
    reference: str = ""
    """Reference to the pipeline as it is typed."""
    draws: bool = False
    """Whether units draw random numbers by themselves; in another dtype these are others."""
    unit_elements: int = 0
    """Number of values in the outputs of a steady unit and in the state that units change."""
    between_ns: dict[str, int] = field(default_factory=dict)
    """Mean time of a steady unit whose engines compute nothing: `bound` of those that values are copied for
    (`Backend.binds_memory`), `passed` of those that are passed other tensors. Empty if it could not be measured."""

    @property
    def typed(self) -> str:
        """The pipeline, its preset and its options, as a command takes them."""
        preset = "" if self.preset == "default" else f":{self.preset}"
        options = ",".join(written_option(name, value) for name, value in self.changed.items())
        return shlex.quote(f"{self.reference}{preset}" + (f"[{options}]" if options else ""))

    @property
    def presets(self) -> Mapping[str, str]:
        """Preset of each slot's component, by slot."""
        return {slot.name: slot.preset for slot in self.slots}

    @property
    def programs(self) -> tuple[Key, ...]:
        """Programs of each slot, in the order of their first calls; all are built before the first unit."""
        called = dict.fromkeys(call.key for unit in self.units for call in unit.calls)
        return tuple(key for slot in self.slots for key in called if key.slot == slot.name)

    @property
    def checked_units(self) -> int:
        """Number of units that are compared before any is timed: the opening ones, and two steady ones.

        The second steady unit takes all its state from the first.
        """
        return min(len(self.opening) + 2, self.max_units or len(self.opening) + 2)

    @property
    def units(self) -> tuple[Unit, ...]:
        """The opening of a session, its opening units, and a steady one."""
        return (self.opened, *self.opening, self.steady)

    def slot(self, name: str) -> Slot:
        """Return the slot of this name. Raises BakeoffError if there is none."""
        for slot in self.slots:
            if slot.name == name:
                return slot
        raise no_such(self.name, "slot", name, [slot.name for slot in self.slots])

    def of(self, unit: int) -> Unit:
        """Return unit `unit` of a session, counted from 0; for OPENING, the session's opening."""
        if unit == OPENING:
            return self.opened
        return self.opening[unit] if unit < len(self.opening) else self.steady

    def calls(self) -> Mapping[Key, int]:
        """Return the number of calls of each program in a steady unit."""
        return Counter(call.key for call in self.steady.calls)

    def phase_calls(self) -> Mapping[str, int]:
        """Return the number of calls in each phase of a steady unit; 0 for a phase of glue alone."""
        found = dict.fromkeys(self.steady.phases, 0)
        for call in self.steady.calls:
            found[call.phase] += 1
        return found
