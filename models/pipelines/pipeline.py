"""A pipeline: a loop in Python around networks that a mix of variants fills, and what is known of it without torch.

`Pipeline` is what its author subclasses. `Loop` is the description of one with its preset and options applied, made by
running its first units once (bakeoff/worker/pipeline/describe.py); the parent process plans and reports from it alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from bakeoff.models.component import Signal
from bakeoff.models.errors import BakeoffError, meant
from bakeoff.models.options import OptionValue, options_of, written_option
from bakeoff.models.types import Scalar

UnitName = Literal["frame", "block", "call"]
OPENING = -1
"""In place of a unit's number, where a session is opened."""


@dataclass(frozen=True, slots=True)
class NoOptions:
    """Options of a pipeline that has none."""


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A component of this lab in a slot."""

    component: str
    """Name in the table of components, or package.module:SPEC."""
    preset: str
    batch: int = 1


class Pipeline:
    """One loop: units (frames, blocks) made one after the other, each from a state to the next one.

    An object is one preset with its options. State is a tree (dicts, lists, tuples) of tensors, and all that passes
    from one unit to the next: units must not keep anything elsewhere. `run.SLOT` calls the module of a slot, or the
    engine that a mix puts there. See docs/pipelines.md.
    """

    name: ClassVar[str] = ""
    """In mixes and tables; "": that of the file, as in `mine`, or `mine.Other` where its class is not called Loop."""
    summary: ClassVar[str] = ""
    credit: ClassVar[str] = ""
    unit_name: ClassVar[UnitName] = "frame"
    rate: ClassVar[float] = 0.0
    """Video frames a second that the model was made for; 0 where it delivers none."""
    max_units: ClassVar[int | None] = None
    """Units after which a session must be opened anew (the end of a position table); None: no limit."""
    filling: ClassVar[int] = 0
    """Units of a session before its windows are full and its cost is final."""
    Options: ClassVar[type] = NoOptions
    """A frozen dataclass of numbers, text, truths and Literals, which raises BakeoffError with code bad-option."""
    presets: ClassVar[Mapping[str, str]] = {"default": ""}
    """Name to what tables print beside it when it is not the published size."""
    default_preset: ClassVar[Mapping[str, str]] = {}
    """Device to preset; without an entry the first one."""
    signals: ClassVar[Mapping[str, Signal]] = {}
    """Outputs that are pictures or audio: they are also compared by PSNR or SNR."""
    code: ClassVar[str] = ""
    """package.module:Class of the subclass that has the methods, where this one is only its facts, without torch."""

    def __init_subclass__(cls) -> None:
        # neither is that of the class above it, whose loop may be another one
        cls.name, cls.code = vars(cls).get("name", cls.__name__.lower()), vars(cls).get("code", "")

    def __init__(self, preset: str, options: Any) -> None:
        self.preset, self.options = preset, options

    def modules(self) -> Mapping[str, Any]:
        """Slot to the module that fills it: a torch.nn.Module in the state that is to be measured, or a BuiltIn."""
        raise NotImplementedError

    def frames(self, unit: int) -> int:
        """Video frames that unit `unit` of a session delivers."""
        return 1

    def given(self, unit: int, draw: Any) -> Any:
        """Return what comes from outside of the loop in a unit, or in its opening: noise, actions, conditions.

        It is made before the unit's time begins. `draw(name, shape, kind)` gives the same values in every mix.
        """
        return {}

    def start(self, given: Any, run: Any) -> Any:
        """Return the state that a session starts with."""
        return {}

    def step(self, state: Any, given: Any, run: Any) -> tuple[Any, Mapping[str, Any]]:
        """One unit: (its new state, its outputs by name)."""
        raise NotImplementedError

    def sizes(self) -> Mapping[str, int]:
        """Facts to state beside every number, such as the number of denoising steps."""
        return {}

    @classmethod
    def preset_of(cls, name: str, device: str) -> str:
        """Return the preset of this name, or the device's. Raises BakeoffError if there is none."""
        name = name or cls.default_preset.get(device, "") or next(iter(cls.presets))
        if name not in cls.presets:
            text = f"pipeline {cls.name} has no preset '{name}'{meant(name, cls.presets)}"
            raise BakeoffError(f"{text}; it has {', '.join(cls.presets)}", "unknown-name")
        return name

    @classmethod
    def options_of(cls, given: Mapping[str, OptionValue]) -> Any:
        """The options from names and values. Raises BakeoffError for an unknown one, or a value of another type."""
        return options_of(Owner(cls.name, cls.Options), given)


@dataclass(frozen=True, slots=True)
class Owner:
    """A pipeline as an owner of options."""

    name: str
    options: type


@dataclass(frozen=True, slots=True)
class Slot:
    """A place for one component; a mix names a variant for each."""

    name: str
    component: str
    """Name as in BuiltIn, or the folder of a brought model."""
    preset: str
    batch: int = 1
    users: bool = False
    """A module of the pipeline's author: it is called as itself, not by the names of a workload's tensors."""


@dataclass(frozen=True, slots=True)
class Program:
    """A workload that the loop calls; every one is built before the first unit."""

    slot: str
    workload: str
    batch: int = 1


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a program in a unit."""

    phase: str
    slot: str
    program: str
    about: dict[str, Scalar] = field(default_factory=dict)
    """Facts in a trace beside the call, such as its step and timestep."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Calls of a unit, or of the opening of a session."""

    calls: tuple[Call, ...]
    phases: tuple[str, ...]
    """In order; one without calls is glue that has a phase of its own."""
    frames: int = 0
    """Video frames that it delivers."""


@dataclass(frozen=True, slots=True)
class Output:
    """A value of a unit that is judged against the reference loop."""

    name: str
    slots: tuple[str, ...]
    """Slots that had a part in it: their fp32 tolerance and their classes of quantisation set its limit."""
    signal: Signal = ""


@dataclass(frozen=True, slots=True)
class Window:
    """A tensor of the state that slides: it lies in one buffer, which all programs that take it read."""

    state: str
    readers: tuple[tuple[str, str, str], ...]
    """Slot, program and input."""


@dataclass(frozen=True, slots=True)
class Carried:
    """Outputs of a program that is called once a unit, and its own inputs that they become in the next one."""

    slot: str
    program: str
    inputs: dict[str, str]
    """Inputs by output."""


@dataclass(frozen=True, slots=True)
class Loop:
    """A pipeline with its preset and options applied: all that its first units say of it."""

    name: str
    summary: str
    preset: str
    label: str
    """Name of the preset."""
    options: dict[str, OptionValue]
    """All, in their order."""
    changed: dict[str, OptionValue]
    """Options that differ from the defaults."""
    unit: UnitName
    slots: tuple[Slot, ...]
    opened: Unit
    """The opening of a session."""
    opening: tuple[Unit, ...]
    """The first units of a session, where they call other programs than a steady one."""
    steady: Unit
    """Every later unit."""
    filling: int
    max_units: int | None
    state: dict[str, tuple[str, ...]]
    """Path of each tensor that units change to the slots that had a part in it."""
    outputs: tuple[Output, ...]
    windows: tuple[Window, ...] = ()
    carried: tuple[Carried, ...] = ()
    kept: tuple[tuple[str, str], ...] = ()
    """Slot and program whose outputs are read after its next call."""
    rate: float = 0.0
    sizes: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """Facts that a user should know of it, each in a sentence."""
    reference: str = ""
    """Name as it is typed."""

    @property
    def typed(self) -> str:
        """The pipeline, its preset and its options, as a command takes them."""
        preset = "" if self.preset == "default" else f" --preset {self.preset}"
        options = (f" --option {written_option(name, value)}" for name, value in self.changed.items())
        return f"{self.reference}{preset}{''.join(options)}"

    @property
    def presets(self) -> Mapping[str, str]:
        """Slot to the preset of its component."""
        return {slot.name: slot.preset for slot in self.slots}

    @property
    def programs(self) -> tuple[Program, ...]:
        """Programs by slot, in the order of their first calls."""
        called = {(call.slot, call.program): None for unit in self.units for call in unit.calls}
        return tuple(
            Program(slot.name, program, slot.batch) for slot in self.slots for of, program in called if of == slot.name
        )

    @property
    def units(self) -> tuple[Unit, ...]:
        """The opening of a session, its opening units, and a steady one."""
        return (self.opened, *self.opening, self.steady)

    def slot(self, name: str) -> Slot:
        """Return the slot of this name. Raises BakeoffError if there is none."""
        for slot in self.slots:
            if slot.name == name:
                return slot
        known = [slot.name for slot in self.slots]
        text = f"{self.name} has no slot '{name}'{meant(name, known)}; it has {', '.join(known) or 'none'}"
        raise BakeoffError(text, "unknown-name")

    def of(self, unit: int) -> Unit:
        """Return unit `unit` of a session, from 0; its opening for OPENING."""
        if unit == OPENING:
            return self.opened
        return self.opening[unit] if unit < len(self.opening) else self.steady

    def calls(self) -> Mapping[tuple[str, str], int]:
        """(slot, program) to its number of calls in a steady unit."""
        found: dict[tuple[str, str], int] = {}
        for call in self.steady.calls:
            found[call.slot, call.program] = found.get((call.slot, call.program), 0) + 1
        return found

    def phase_calls(self) -> Mapping[str, int]:
        """Phase to its number of calls in a steady unit; a phase of glue alone has none."""
        found = dict.fromkeys(self.steady.phases, 0)
        for call in self.steady.calls:
            found[call.phase] += 1
        return found
