"""Runs a loop unit by unit on built programs, and accounts for each unit.

State that slides as a window lies in one buffer that the programs of a slot share and that is shifted in place. State
that a program makes for its own next call is swapped with its inputs where the engine can do that. Everything
else that a call needs is given to its port, which copies it or reads it where it is; copies are timed and counted.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType

import torch
from torch import Tensor

from bakeoff.backends.backend import Engine
from bakeoff.backends.port import Port
from bakeoff.models.component import Draw, TensorSpec, Workload
from bakeoff.models.errors import BakeoffError
from bakeoff.models.pipelines.pipeline import Call, Given, Glue, Loop, Operation, Shift
from bakeoff.record.pipeline import LineKind
from bakeoff.worker.pipeline.binding import Key, carried_outputs, shared_windows
from bakeoff.worker.pipeline.clocks import UNATTRIBUTED, UnitClock, make_clock
from bakeoff.worker.subject import cast_input, draw
from bakeoff.worker.torch_flags import Flags, apply_flags


@dataclass(frozen=True, slots=True)
class ProgramEngine:
    """A built program."""

    engine: Engine
    workload: Workload
    inputs: Mapping[str, Tensor]
    """One set of inputs in the variant's dtype and on its device, for shapes and layouts; not overwritten."""
    flags: Flags | None = None
    """torch's flags that it was built with, set before each of its calls where slots have different ones."""


@dataclass(frozen=True, slots=True)
class Segment:
    """What a part of a unit's time belongs to."""

    line: str
    kind: LineKind
    slot: str = ""
    program: str = ""


@dataclass(frozen=True, slots=True)
class UnitSample:
    """One unit as it ran."""

    session: int
    unit: int
    """Number within the session, from 0."""
    frames: int
    wall_ns: int
    started_ns: int
    """By the worker's clock, from any start."""
    segments: Mapping[Segment, int]
    """Nanoseconds; they add up to `wall_ns`."""
    calls: Mapping[Key, int]
    copied_bytes: int


_NAMELESS = Segment("unattributed", "unattributed")
_COPIES = Segment("copies", "copies")
_GLUE = Segment("glue", "glue")


@dataclass(slots=True)
class _Value:
    """A named tensor of the loop."""

    tensor: Tensor
    version: int = 0
    """Changes with every new value."""
    source: "_Program | None" = None
    """The program whose last call made it, as the output `output`."""
    output: str = ""


@dataclass(slots=True)
class _Program:
    """A program in the loop: its port, and which version of each value it was fed."""

    key: Key
    port: Port
    flags: Flags | None
    carried: Mapping[str, str]
    """Its outputs to its own inputs that they become in its next call."""
    fed: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Input to the name and version of the value that it holds."""


class LoopRunner:
    """A loop in progress. `open` a session, then run one `unit` after the other. Not thread-safe."""

    def __init__(
        self,
        loop: Loop,
        programs: Mapping[Key, ProgramEngine],
        slot_dtypes: Mapping[str, str],
        device: str,
        input_seed: int,
    ) -> None:
        """Bind every program. Raises BakeoffError where one is missing, or values do not fit its inputs."""
        missing = [f"{one.slot}.{one.workload}" for one in loop.programs if (one.slot, one.workload) not in programs]
        if missing:
            raise BakeoffError(f"the loop calls {missing[0]}, which was not built", code="bad-config")
        self._loop, self._device = loop, device
        self._glue = import_module(loop.glue) if loop.glue else None
        self._given = GivenValues(self._glue, input_seed, slot_dtypes, device)
        self._values: dict[str, _Value] = {}
        self._shared = shared_windows(loop, {key: built.inputs for key, built in programs.items()})
        self._programs = {key: self._bind(key, built) for key, built in programs.items()}
        self._one_set_of_flags = len({program.flags for program in self._programs.values()}) <= 1
        self._segments: dict[Segment, int] = {_NAMELESS: UNATTRIBUTED}
        for segment in (_COPIES, _GLUE):
            self._number(segment)
        self._opened = self._compile(loop.opened)
        self._opening = [self._compile(operations) for operations in loop.opening]
        self._steady = self._compile(loop.steady)
        self._clock = make_clock(device, len(self._segments))
        self._copied = self._version = 0
        self.session, self.next_unit = -1, 0

    @property
    def at_end(self) -> bool:
        """The session has no further unit; open another one."""
        return self._loop.max_units is not None and self.next_unit >= self._loop.max_units

    def open(self) -> int:
        """Open the next session: draw what it is given, outside the clock, and run its opening operations.

        Returns nanoseconds.
        """
        self.session, self.next_unit = self.session + 1, 0
        self._give("session", OF_SESSION)
        self._clock.begin()
        for step in self._opened:
            step()
        return self._clock.end()[0]

    def unit(self) -> UnitSample:
        """Run the next unit; what it is given is drawn before its time begins."""
        if self.session < 0 or self.at_end:
            raise BakeoffError("no session is open, or it is at its end; open one", code="bad-config")
        number = self.next_unit
        self._give("unit", number)
        self._copied = 0
        steps = self._opening[number] if number < len(self._opening) else self._steady
        started = self._clock.begin()
        for step in steps:
            step()
        wall_ns, ns = self._clock.end()
        self.next_unit += 1
        calls: dict[Key, int] = {}
        for operation in self._loop.operations(number):
            if isinstance(operation, Call):
                key = operation.slot, operation.program
                calls[key] = calls.get(key, 0) + 1
        segments = {segment: ns[index] for segment, index in self._segments.items()}
        return UnitSample(
            self.session, number, self._loop.frames_of(number), wall_ns, started, segments, calls, self._copied
        )

    @contextmanager
    def timed_by(self, make: Callable[[UnitClock, int], UnitClock]) -> Iterator[None]:
        """Within it, units run by the clock that `make` returns for the present one and the number of segments."""
        own = self._clock
        self._clock = make(own, len(self._segments))
        try:
            yield
        finally:
            self._clock = own

    def values(self, names: Iterable[str]) -> dict[str, Tensor]:
        """The present values of these names; valid until the next unit."""
        return {name: self._values[name].tensor for name in names}

    def state(self) -> dict[str, Tensor]:
        """Copies of the values that pass from unit to unit, those that no unit has made yet left out."""
        return {name: self._values[name].tensor.clone() for name in self._loop.state if name in self._values}

    def set_state(self, state: Mapping[str, Tensor], unit: int) -> None:
        """Continue from this state at `unit` of the present session; tensors are cast to the dtypes of the loop."""
        for name, tensor in state.items():
            known = self._values.get(name)
            value = tensor.to(self._device)
            self._set(name, value.to(known.tensor.dtype) if known is not None else value.clone())
        self.next_unit = unit

    def ports(self) -> Mapping[Key, Port]:
        """The port of each program."""
        return {key: program.port for key, program in self._programs.items()}

    def state_bytes(self) -> int:
        """Bytes of the values that pass from unit to unit."""
        tensors = [self._values[name].tensor for name in self._loop.state if name in self._values]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    def segments(self) -> tuple[Segment, ...]:
        """All segments of the account, in the order of a unit."""
        return tuple(self._segments)

    def _bind(self, key: Key, built: ProgramEngine) -> _Program:
        carried = carried_outputs(self._loop, key)
        calls = [op for op in self._loop.all_operations() if isinstance(op, Call) and (op.slot, op.program) == key]
        windows = {name: value for op in calls for name, value in op.inputs.items() if value in self._shared}
        buffers = {
            name: self._shared[windows[name]] if name in windows else torch.zeros_like(like)
            for name, like in built.inputs.items()
        }
        outputs = [spec.name for spec in built.workload.outputs]
        port = built.engine.port(buffers, outputs, carried=carried, shared=bool(windows))
        return _Program(key, port, built.flags, carried)

    def _number(self, segment: Segment) -> int:
        return self._segments.setdefault(segment, len(self._segments))

    def _give(self, per: str, unit: int) -> None:
        for given in self._loop.given:
            if given.per == per:
                self._set(given.name, self._given.make(given, self.session, unit))

    def _set(self, name: str, tensor: Tensor, source: _Program | None = None, output: str = "") -> None:
        """The new value of a name; a window's goes into its shared buffer."""
        window = self._shared.get(name)
        if window is not None and tensor is not window:
            window.copy_(tensor)
            self._copied += window.numel() * window.element_size()
            tensor, source = window, None
        self._version += 1
        self._values[name] = _Value(tensor, self._version, source, output)

    def _compile(self, operations: Sequence[Operation]) -> list[Callable[[], None]]:
        return [self._step(operation) for operation in operations]

    def _step(self, operation: Operation) -> Callable[[], None]:
        match operation:
            case Call():
                return self._call_step(operation)
            case Glue():
                return self._glue_step(operation)
            case Shift():
                return self._shift_step(operation)

    def _call_step(self, call: Call) -> Callable[[], None]:
        program = self._programs[call.slot, call.program]
        port = program.port
        segment = self._number(Segment(call.phase, "phase", call.slot, call.program))
        copies, glue = self._segments[_COPIES], self._segments[_GLUE]
        fed = [(name, value) for name, value in call.inputs.items() if value not in self._shared]
        made = list(call.outputs.items())
        keeps_shared = any(value in self._shared for _, value in made)

        def step() -> None:
            mark = self._clock.mark
            mark(UNATTRIBUTED)
            self._advance(program, call)
            for name, value in fed:
                known = self._values[value]
                if program.fed.get(name) != (value, known.version):
                    tensor, wanted = known.tensor, port.inputs[name]
                    if tensor.dtype != wanted.dtype:
                        mark(copies)
                        tensor = tensor.to(wanted.dtype)
                        mark(glue)
                    self._copied += port.feed(name, tensor)
                    program.fed[name] = value, known.version
            if program.flags is not None and not self._one_set_of_flags:
                apply_flags(program.flags)
            mark(copies)
            port.call()
            mark(segment)
            outputs = port.outputs
            for output, value in made:
                self._set(value, outputs[output], program, output)
            if keeps_shared:
                mark(copies)

        return step

    def _advance(self, program: _Program, call: Call) -> None:
        """Where all carried inputs are outputs of the program's own last call, they are swapped at once."""
        if not program.carried:
            return
        for output, name in program.carried.items():
            known = self._values.get(call.inputs[name])
            if known is None or known.source is not program or known.output != output:
                return
            if program.fed.get(name) == (call.inputs[name], known.version):
                return
        self._copied += program.port.advance()
        for name in program.carried.values():
            program.fed[name] = call.inputs[name], self._values[call.inputs[name]].version

    def _glue_step(self, glue: Glue) -> Callable[[], None]:
        function = getattr(self._glue, glue.function)
        segment = self._number(Segment(glue.phase, "phase") if glue.phase else _GLUE)
        copies = self._segments[_COPIES]
        inputs, outputs, numbers = glue.inputs, glue.outputs, glue.numbers
        keeps_shared = any(value in self._shared for value in outputs)

        def step() -> None:
            mark = self._clock.mark
            mark(UNATTRIBUTED)
            made = function(*(self._values[name].tensor for name in inputs), *numbers)
            mark(segment)
            if outputs:
                for name, tensor in zip(outputs, (made,) if isinstance(made, Tensor) else made, strict=True):
                    self._set(name, tensor)
            if keeps_shared:
                mark(copies)

        return step

    def _shift_step(self, shift: Shift) -> Callable[[], None]:
        window, copies = self._shared[shift.window], self._segments[_COPIES]

        def step() -> None:
            self._clock.mark(UNATTRIBUTED)
            new = self._values[shift.new].tensor
            length, added = window.size(shift.axis), new.size(shift.axis)
            kept = window.narrow(shift.axis, added, length - added).clone()
            window.narrow(shift.axis, 0, length - added).copy_(kept)
            window.narrow(shift.axis, length - added, added).copy_(new)
            self._copied += kept.numel() * kept.element_size() + new.numel() * new.element_size()
            self._version += 1
            self._values[shift.window] = _Value(window, self._version)
            self._clock.mark(copies)

        return step


OF_SESSION = -1
"""In place of a unit's number, for values of a whole session."""


@dataclass(frozen=True, slots=True)
class GivenValues:
    """Makes given values; they are the same in every process, up to the cast to their slot's dtype."""

    glue: ModuleType | None
    seed: int
    dtypes: Mapping[str, str]
    """Slot to dtype."""
    device: str

    def make(self, given: Given, session: int, unit: int) -> Tensor:
        """The value of a session's unit, in its slot's dtype and on the device."""

        def drawn(key: str, shape: tuple[int, ...], kind: Draw = "normal") -> Tensor:
            return draw(TensorSpec(key, shape, kind), f"{self.seed}:{session}:{key}")

        if given.function:
            value: Tensor = getattr(self.glue, given.function)(session, unit, drawn, *given.arguments)
        else:
            value = drawn(f"{given.name}:{unit}", given.shape, given.draw)
        spec = TensorSpec(
            given.name,
            given.shape,
            given.draw,
            given.keep_fp32,
            dtype=given.dtype,
            given=given.given,
            order=given.order,
        )
        return cast_input(spec, value, self.dtypes[given.slot], self.device)
