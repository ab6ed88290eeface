"""Description of a pipeline without torch: components in slots, and the loop that joins them, as data.

A pipeline delivers *units*: a frame or a block of frames. A unit is a list of operations on named tensors (values):
calls of compiled programs, glue (the few lines of torch between them, in a file of their own), and shifts of windows.
The parent process plans and reports from these facts alone; a worker runs them.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from bakeoff.models.component import Draw, Signal
from bakeoff.models.errors import BakeoffError, meant
from bakeoff.models.types import Scalar

UnitName = Literal["frame", "block", "call"]


@dataclass(frozen=True, slots=True)
class Slot:
    """A place for one component; a mix names a variant for each."""

    name: str
    component: str
    """Name in the table of components, or package.module:SPEC."""


@dataclass(frozen=True, slots=True)
class Given:
    """A value that comes from outside of the loop: noise, actions, conditions, the state that a session starts with."""

    name: str
    shape: tuple[int, ...]
    slot: str
    """The slot whose dtype it has."""
    per: Literal["session", "unit"]
    """Drawn once when a session is opened, or anew for every unit."""
    draw: Draw = "normal"
    keep_fp32: bool = False
    dtype: str = ""
    """This and the next two as in TensorSpec."""
    given: str = ""
    order: tuple[int, ...] = ()
    function: str = ""
    """Function of the glue module that makes it; "" for a plain draw by seed, session or unit, and name.

    It takes (session, unit, draw, *arguments), where unit is -1 for values of a session and draw(key, shape, kind)
    returns a drawn fp32 tensor that depends on the seed, the session and these alone. It returns an fp32 tensor."""
    arguments: tuple[Any, ...] = ()
    """Facts that the function needs, such as a component's config."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a program: a workload of a slot's component."""

    phase: str
    slot: str
    program: str
    inputs: Mapping[str, str]
    """Every input of the workload to the value that it takes."""
    outputs: Mapping[str, str]
    """Outputs of the workload to the values that they become; an output that nothing uses may be left out. A value
    from a call is valid until the next call of the same program; one that is a window is copied into the window."""
    about: Mapping[str, Scalar] = field(default_factory=dict)
    """What a trace says beside the call, such as its step and timestep. Nothing is computed from it."""


@dataclass(frozen=True, slots=True)
class Glue:
    """Arithmetic between calls: a function of the glue module, from values and numbers to new values. It changes none
    of its inputs; its outputs may be views of them."""

    function: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    numbers: tuple[float, ...] = ()
    """Passed after the tensors."""
    phase: str = ""
    """A phase of its own, such as `present`; "" counts to the glue line."""


@dataclass(frozen=True, slots=True)
class Shift:
    """A sliding window: value `window` loses its oldest entries along `axis` and gets those of value `new` at its end,
    in place. Counted as a copy."""

    window: str
    new: str
    axis: int


Operation = Call | Glue | Shift


@dataclass(frozen=True, slots=True)
class Output:
    """A value of a unit that is judged against the reference loop."""

    name: str
    signal: Signal = ""
    slot: str = ""
    """The slot that made it; its fp32 tolerance and its class of quantisation set the limit."""


@dataclass(frozen=True, slots=True)
class Program:
    """A workload that the loop calls; every one is built before the first unit."""

    slot: str
    workload: str
    batch: int = 1


@dataclass(frozen=True, slots=True)
class Loop:
    """A pipeline with its preset and options applied: all that a runner needs. Checked when it is made."""

    slots: tuple[Slot, ...]
    presets: Mapping[str, str]
    """Slot to the preset of its component."""
    glue: str
    """Module of the glue functions; "" where there are none."""
    programs: tuple[Program, ...]
    given: tuple[Given, ...]
    opened: tuple[Operation, ...]
    """Operations that open a session, before its first unit."""
    opening: tuple[tuple[Operation, ...], ...]
    """Operations of the first units of a session, where they differ from those of a steady one."""
    steady: tuple[Operation, ...]
    """Operations of every later unit."""
    opening_frames: tuple[int, ...]
    """Video frames of each opening unit."""
    frames: int
    """Video frames of a later unit."""
    filling: int
    """Units of a session before its windows are full and its cost is final; opening units included."""
    max_units: int | None
    """Units after which a session must be opened anew (the end of a position table); None: no limit."""
    state: tuple[str, ...]
    """Values that pass from one unit to the next."""
    outputs: tuple[Output, ...]
    frame_rate: float
    """Video frames a second that the model was made for; 0 where it delivers none."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Facts to state beside every number, such as the window of an audio decoder and the number of steps."""

    def __post_init__(self) -> None:
        """Raises BakeoffError for a loop that cannot run; check.py lists what is refused."""
        from bakeoff.models.pipelines.check import check_loop  # it reads the types of this file

        check_loop(self)

    def operations(self, unit: int) -> tuple[Operation, ...]:
        """Of unit `unit` of a session, from 0."""
        return self.opening[unit] if unit < len(self.opening) else self.steady

    def all_operations(self) -> tuple[Operation, ...]:
        """Of the opening of a session, of its opening units, and of a steady unit."""
        return (*self.opened, *(op for operations in self.opening for op in operations), *self.steady)

    def frames_of(self, unit: int) -> int:
        """Video frames that unit `unit` of a session delivers."""
        return self.opening_frames[unit] if unit < len(self.opening_frames) else self.frames

    def phases(self) -> tuple[str, ...]:
        """Names of the phases of a steady unit, in order."""
        named = (op.phase for op in self.steady if isinstance(op, Call | Glue) and op.phase)
        return tuple(dict.fromkeys(named))

    def calls(self) -> Mapping[tuple[str, str], int]:
        """(slot, program) to its number of calls in a steady unit."""
        found: dict[tuple[str, str], int] = {}
        for op in self.steady:
            if isinstance(op, Call):
                found[op.slot, op.program] = found.get((op.slot, op.program), 0) + 1
        return found

    def phase_calls(self) -> Mapping[str, int]:
        """Phase to its number of calls in a steady unit; a phase of glue alone has none."""
        found = dict.fromkeys(self.phases(), 0)
        for op in self.steady:
            if isinstance(op, Call):
                found[op.phase] += 1
        return found


@dataclass(frozen=True, slots=True)
class PipelinePreset:
    """A named size: a preset for each slot's component."""

    name: str
    components: Mapping[str, str]
    label: str = ""
    """What tables print beside it when it is not the published size."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One pipeline. `loop` takes a preset and the pipeline's own frozen options."""

    name: str
    summary: str
    credit: str
    unit: UnitName
    slots: tuple[Slot, ...]
    presets: tuple[PipelinePreset, ...]
    default_preset: Mapping[str, str]
    """Device to preset name."""
    options: type
    loop: Callable[[PipelinePreset, Any], Loop]

    def preset(self, name: str) -> PipelinePreset:
        """The preset of this name. Raises BakeoffError if there is none."""
        for preset in self.presets:
            if preset.name == name:
                return preset
        known = [preset.name for preset in self.presets]
        text = f"pipeline {self.name} has no preset '{name}'{meant(name, known)}; it has {', '.join(known)}"
        raise BakeoffError(text, "unknown-name")


def read_by(op: Operation) -> Iterator[str]:
    """Names of the values that an operation reads."""
    match op:
        case Call():
            yield from op.inputs.values()
        case Glue():
            yield from op.inputs
        case Shift():
            yield from (op.window, op.new)


def made_by(op: Operation) -> Iterator[str]:
    """Names of the values that an operation makes or changes."""
    match op:
        case Call():
            yield from op.outputs.values()
        case Glue():
            yield from op.outputs
        case Shift():
            yield op.window
