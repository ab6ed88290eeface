"""Runs a pipeline unit by unit on built programs, and accounts for each unit.

A window that slides lies in one buffer that the programs of a slot share and that is shifted in place. State that a
program makes for its own next call is swapped with its inputs where the engine can do that. Everything else that a call
needs is given to its port, which copies it or reads it where it is; copies are timed and counted.
"""

import random
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial, wraps
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.weak import WeakTensorKeyDictionary

from bakeoff.backends.backend import Engine
from bakeoff.backends.port import Port
from bakeoff.models import resolve_component
from bakeoff.models.brought.about import read_about
from bakeoff.models.component import Draw, TensorSpec, Workload
from bakeoff.models.errors import BakeoffError
from bakeoff.models.pipelines.pipeline import OPENING, BuiltIn, Loop, Pipeline
from bakeoff.models.signature import Node, Signature, flatten_call, rebuild
from bakeoff.models.types import Scalar
from bakeoff.profile.ranges import NOTHING
from bakeoff.profile.session import NoSession, current_session
from bakeoff.record.session import LineKind
from bakeoff.worker.pipeline.clocks import UNATTRIBUTED, UnitClock, make_clock
from bakeoff.worker.subject import LoadedSubject, cast_input, draw
from bakeoff.worker.torch_flags import Flags, apply_flags

Key = tuple[str, str]
"""Slot and program."""


@dataclass(frozen=True, slots=True)
class ProgramEngine:
    """A built program."""

    engine: Engine
    workload: Workload
    inputs: Mapping[str, Tensor]
    """One set of inputs in the variant's dtype and on its device, for shapes and layouts; not overwritten."""
    flags: Flags | None = None
    """torch's flags that it was built with, set before each of its calls where slots have different ones."""
    call: tuple[Signature, Node] | None = None
    """How a brought model is called, and what it returns. A component takes and gives tensors by name."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Line of the account that a part of a unit's time belongs to."""

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
    """Start by the worker's clock, from any origin."""
    segments: Mapping[Segment, int]
    """Nanoseconds; they add up to `wall_ns`."""
    calls: Mapping[Key, int]
    copied_bytes: int


_KINDS = ("normal", "uniform", "binary")
_NAMELESS = Segment("unattributed", "unattributed")
_COPIES = Segment("copies", "copies")
_GLUE = Segment("glue", "glue")


class Given:
    """Draws what comes from outside of the loop: the same values in every process, up to the cast to a dtype."""

    def __init__(self, seed: int, dtypes: Mapping[str, str], device: str, session: int, unit: int) -> None:
        """`dtypes` is by slot."""
        self._seed, self._dtypes, self._device = seed, dtypes, device
        self._session, self._unit = session, unit

    def __call__(self, name: str, shape: tuple[int, ...], kind: Draw = "normal", slot: str = "") -> Tensor:
        """Values that are fixed by seed, session, unit and name: in the slot's dtype, or at least fp32 without one."""
        return self.session(f"{name}:{self._unit}", shape, kind, slot)

    def session(self, name: str, shape: tuple[int, ...], kind: Draw = "normal", slot: str = "") -> Tensor:
        """Values that are the same in all units of a session."""
        if isinstance(kind, str) and kind not in _KINDS:
            text = f"draw of {name}: there is no kind '{kind}'; give {', '.join(_KINDS)}, or a tuple of values"
            raise BakeoffError(text, "bad-user-code")
        spec = TensorSpec(name, tuple(shape), kind)
        return self.value(draw(spec, f"{self._seed}:{self._session}:{name}"), slot)

    def zeros(self, shape: tuple[int, ...], slot: str = "") -> Tensor:
        return self.value(torch.zeros(shape), slot)

    def value(self, tensor: Tensor, slot: str = "") -> Tensor:
        """A tensor of your own in the slot's dtype, or at least in fp32, on the device."""
        return self.like(TensorSpec("", tuple(tensor.shape), keep_fp32=not slot), tensor, slot)

    def like(self, spec: TensorSpec, tensor: Tensor, slot: str = "") -> Tensor:
        """A tensor as an input of the slot that `spec` describes."""
        return cast_input(spec, tensor, self._dtypes[slot] if slot else widest(self._dtypes.values()), self._device)

    def inputs(self, slot: str, reference: str, workload: Workload) -> dict[str, Tensor]:
        """A set of inputs of a workload: of a brought model one that was given, or values like it."""
        component = resolve_component(reference)
        if not component.folder:
            drawn = {spec.name: draw(spec, self._key(spec.name)) for spec in workload.inputs}
        else:
            source = component.network_module().inputs(workload)
            number = int(draw(TensorSpec("inputs", (1,), "uniform"), self._key("inputs")).item() * 2**24)
            drawn = source.checked(number, number % source.checked_calls if source.checked_calls > 1 else 1)
        return {spec.name: self.like(spec, drawn[spec.name], slot) for spec in workload.inputs}

    def _key(self, name: str) -> str:
        return f"{self._seed}:{self._session}:{name}:{self._unit}"


def widest(dtypes: Iterable[str]) -> str:
    """fp64 where all slots compute in it, as references do; else fp32."""
    return "fp64" if set(dtypes) == {"fp64"} else "fp32"


def call_of(loop: Loop, key: Key, loaded: LoadedSubject) -> tuple[Signature, Node] | None:
    """Return how a program of the author's own module is called, and what it returns; None for a component's."""
    if not loop.slot(key[0]).users:
        return None
    one = read_about(Path(loaded.component.folder)).input_set(key[1])
    return one.call, one.result


def flat(tree: Any) -> dict[str, Any]:
    """Return the leaves of a state by their paths, as in `cache/0`."""
    return {path_of(path): leaf for path, leaf in pytree.tree_flatten_with_path(tree)[0]}


def path_of(path: Sequence[Any]) -> str:
    """A pytree's path as text."""
    names = ("key", "idx", "name")
    return "/".join(str(next(getattr(part, name) for name in names if hasattr(part, name))) for part in path)


class Run:
    """Interface for a pipeline's unit to call programs, mark phases and slide windows: `run.SLOT(...)`,
    `run.SLOT.PROGRAM(...)`, `run.phase(...)`, `run.slide(...)`."""

    device: str

    def __init__(self) -> None:
        self._own: dict[str, Callable[..., Any]] = {}
        """Methods of each slot that calls replace."""
        self._ranges = NoSession(self.phase, self._step)

    def __getattr__(self, slot: str) -> "SlotCalls":
        if slot.startswith("_"):
            raise AttributeError(slot)
        return SlotCalls(self, slot)

    def phase(self, name: str, **about: Any) -> AbstractContextManager[None]:
        """A part of the unit with a line of its own: its calls, or all of it where it has none.

        `about` is what a trace says beside its calls, such as step and timestep.
        """
        raise NotImplementedError

    def _step(self, index: Scalar, timestep: Scalar) -> AbstractContextManager[object]:  # noqa: ARG002
        """A step of the phase: what a trace says beside its calls. Without an index steps are counted."""
        return NOTHING

    @contextmanager
    def marked(self) -> Iterator[None]:
        """Within it, phases and steps of bakeoff.profile, by whatever code, are those of the unit."""
        token = current_session.set(self._ranges)
        try:
            yield
        finally:
            current_session.reset(token)

    def slide(self, window: Tensor, new: Tensor, axis: int) -> Tensor:
        """Return the window without its oldest entries along `axis`, and with those of `new` at its end.

        The window that is given may be changed; use the one that is returned.
        """
        raise NotImplementedError

    def called(self, slot: str, program: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call a program. Its outputs are valid until its next call."""
        raise NotImplementedError

    def modules(self) -> Mapping[str, Any]:
        """Return what the pipeline's own `modules` does."""
        raise NotImplementedError

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Within it, calls of the pipeline's modules, by whatever code, are calls of their slots.

        A slot that is called NAME.METHOD takes calls of that method of its module.
        """
        replaced = []
        try:
            for slot, module in self.modules().items():
                if isinstance(module, BuiltIn):
                    continue  # only `run` calls it
                method = slot.partition(".")[2] or "forward"
                replaced.append((slot, module, method, vars(module).get(method)))
                self._own[slot] = own = getattr(module, method)
                setattr(module, method, wraps(own)(partial(self._in_place, slot)))
            yield
        finally:
            for slot, module, method, before in replaced:
                del self._own[slot]
                delattr(module, method) if before is None else setattr(module, method, before)

    def _in_place(self, slot: str, *args: Any, **kwargs: Any) -> Any:
        return self.called(slot, "", args, kwargs)


@dataclass(frozen=True, slots=True)
class SlotCalls:
    """A slot, as a pipeline sees it; a program of it is a workload of its component, or a method of its module."""

    run: Run
    slot: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.run.called(self.slot, "", args, kwargs)

    def __getattr__(self, program: str) -> Callable[..., Any]:
        return lambda *args, **kwargs: self.run.called(self.slot, program, args, kwargs)


@dataclass(slots=True)
class _Program:
    """A program in the loop: its port, and what it was fed."""

    key: Key
    port: Port
    flags: Flags | None
    names: tuple[str, ...]
    """Names of its inputs."""
    call: tuple[Signature, Node] | None
    shapes: tuple[torch.Size, ...]
    carried: Mapping[str, str]
    """Its outputs to its own inputs that they become in its next call."""
    keeps: bool
    """Outputs are read after the next call, so that they are copied where that call may overwrite them."""
    shared: Mapping[str, Tensor]
    """Inputs that are windows."""
    calls: int = 0
    last: Mapping[str, Tensor] = field(default_factory=dict)
    """Its last outputs."""
    fed: dict[str, tuple[Any, object]] = field(default_factory=dict)
    """Input to a reference to the tensor that it holds, and what changes with that tensor's values."""


class LoopRunner(Run):
    """A pipeline in progress. `open` a session, then run one `unit` after the other. Not thread-safe."""

    def __init__(
        self,
        pipeline: Pipeline,
        loop: Loop,
        programs: Mapping[Key, ProgramEngine],
        slot_dtypes: Mapping[str, str],
        device: str,
        input_seed: int,
    ) -> None:
        """Bind every program. Raises BakeoffError where one is missing, or values do not fit its inputs."""
        super().__init__()
        missing = [f"{one.slot}.{one.workload}" for one in loop.programs if (one.slot, one.workload) not in programs]
        if missing:
            raise BakeoffError(f"the loop calls {missing[0]}, which was not built", code="bad-config")
        self._pipeline, self._loop, self.device = pipeline, loop, device
        self._seed, self._dtypes = input_seed, slot_dtypes
        self._buffers = {
            window.state: torch.zeros_like(programs[reader[:2]].inputs[reader[2]])
            for window in loop.windows
            for reader in window.readers[:1]
        }
        self._windows = {id(buffer) for buffer in self._buffers.values()}
        self._programs = {key: self._bind(key, built) for key, built in programs.items()}
        self._makers = WeakTensorKeyDictionary()
        """Outputs of programs to the program whose next call may overwrite them."""
        self._one_set_of_flags = len({program.flags for program in self._programs.values()}) <= 1
        self._segments: dict[Segment, int] = {_NAMELESS: UNATTRIBUTED}
        for segment in (_COPIES, _GLUE):
            self._segments[segment] = len(self._segments)
        self._copies, self._glue = self._segments[_COPIES], self._segments[_GLUE]
        self._between: dict[str, int] = {"": self._glue}
        """Phase to the segment of what it does beside its calls: glue, or its own where it has none."""
        for unit in loop.units:
            for call in unit.calls:
                self._segments.setdefault(Segment(call.phase, "phase", call.slot, call.program), len(self._segments))
                self._between[call.phase] = self._glue
            for phase in unit.phases:
                if phase not in self._between:
                    self._between[phase] = self._segments.setdefault(Segment(phase, "phase"), len(self._segments))
        self._clock = make_clock(device, len(self._segments))
        self._phase, self._unit_calls, self._copied = "", dict[Key, int](), 0
        self._modules: Mapping[str, Any] | None = None
        self._state: Any = {}
        self._outputs: dict[str, Tensor] = {}
        self.session, self.next_unit = -1, 0

    @property
    def at_end(self) -> bool:
        """The session has no further unit; open another one."""
        return self._loop.max_units is not None and self.next_unit >= self._loop.max_units

    def open(self) -> int:
        """Open the next session: draw what it is given, outside the clock, and let the pipeline start.

        Returns nanoseconds.
        """
        self.session, self.next_unit = self.session + 1, 0
        given = self._given(OPENING)
        self._clock.begin()
        with self.marked():
            self._state = self._in_buffers(self._pipeline.start(given, self))
        self._clock.mark(self._glue)
        return self._clock.end()[0]

    def unit(self) -> UnitSample:
        """Run the next unit; what it is given is drawn before its time begins."""
        if self.session < 0 or self.at_end:
            raise BakeoffError("no session is open, or it is at its end; open one", code="bad-config")
        number = self.next_unit
        given = self._given(number)
        self._copied, self._unit_calls = 0, {}
        started = self._clock.begin()
        with self.marked():
            self._state, outputs = self._pipeline.step(self._state, given, self)
        self._clock.mark(self._glue)
        wall_ns, ns = self._clock.end()
        self._outputs = dict(outputs)
        self.next_unit += 1
        segments = {segment: ns[index] for segment, index in self._segments.items()}
        frames = self._loop.of(number).frames
        return UnitSample(self.session, number, frames, wall_ns, started, segments, self._unit_calls, self._copied)

    def modules(self) -> Mapping[str, Any]:
        if self._modules is None:
            self._modules = self._pipeline.modules()
        return self._modules

    def _given(self, unit: int) -> Any:
        seed_generators(self._seed, self.session, unit)
        return self._pipeline.given(unit, Given(self._seed, self._dtypes, self.device, self.session, unit))

    @contextmanager
    def timed_by(self, make: Callable[[UnitClock, int], UnitClock]) -> Iterator[None]:
        """Within it, units run by the clock that `make` returns for the present one and the number of segments."""
        own = self._clock
        self._clock = make(own, len(self._segments))
        try:
            yield
        finally:
            self._clock = own

    def values(self) -> Mapping[str, Tensor]:
        """Return the outputs of the last unit; valid until the next one."""
        return self._outputs

    def state(self) -> dict[str, Tensor]:
        """Copies of the tensors that pass from unit to unit, those that no unit has made yet left out."""
        found = flat(self._state)
        return {path: found[path].clone() for path in self._loop.state if path in found}

    def set_state(self, state: Mapping[str, Tensor], unit: int) -> None:
        """Continue from these tensors at `unit` of the present session; they are cast to the dtypes of the loop."""

        def given(path: Any, own: Any) -> Any:
            value = state.get(path_of(path))
            return own if value is None else value.to(own.device, own.dtype, copy=True)

        self._state = self._in_buffers(pytree.tree_map_with_path(given, self._state))
        self.next_unit = unit

    def _in_buffers(self, state: Any) -> Any:
        """Return the state with its windows in their buffers."""
        if not self._buffers:
            return state

        def placed(path: Any, leaf: Any) -> Any:
            buffer = self._buffers.get(path_of(path))
            return leaf if buffer is None else buffer.copy_(leaf)

        return pytree.tree_map_with_path(placed, state)

    def ports(self) -> Mapping[Key, Port]:
        """Return the port of each program."""
        return {key: program.port for key, program in self._programs.items()}

    def state_bytes(self) -> int:
        """Bytes of the tensors that pass from unit to unit."""
        found = flat(self._state)
        return sum(found[path].numel() * found[path].element_size() for path in self._loop.state if path in found)

    def segments(self) -> tuple[Segment, ...]:
        """All segments of the account, in the order of a unit."""
        return tuple(self._segments)

    def _bind(self, key: Key, built: ProgramEngine) -> _Program:
        shared = {
            name: self._buffers[window.state]
            for window in self._loop.windows
            for *of, name in window.readers
            if tuple(of) == key
        }
        buffers = {name: shared.get(name, torch.zeros_like(like)) for name, like in built.inputs.items()}
        carried = next((one.inputs for one in self._loop.carried if (one.slot, one.program) == key), {})
        outputs = [spec.name for spec in built.workload.outputs]
        port = built.engine.port(buffers, outputs, carried=carried, shared=bool(shared))
        shapes = tuple(one.shape for one in built.inputs.values())
        keeps = key in self._loop.kept and port.reuses_outputs
        return _Program(key, port, built.flags, tuple(built.inputs), built.call, shapes, carried, keeps, shared)

    @contextmanager
    def phase(self, name: str, **_about: Any) -> Iterator[None]:
        between = self._between.get(name)
        if between is None:
            text = f"phase '{name}': the first units have none of that name; let every unit have the same phases"
            raise BakeoffError(text, "bad-user-code")
        outer = self._phase
        self._clock.mark(self._between[outer])
        self._phase = name
        try:
            yield
        finally:
            self._clock.mark(between)
            self._phase = outer

    def slide(self, window: Tensor, new: Tensor, axis: int) -> Tensor:
        self._clock.mark(self._between[self._phase])
        length, added = window.size(axis), new.size(axis)
        if id(window) in self._windows:
            kept = window.narrow(axis, added, length - added).clone()
            window.narrow(axis, 0, length - added).copy_(kept)
            window.narrow(axis, length - added, added).copy_(new)
            self._copied += kept.nbytes + new.nbytes
        else:
            window = torch.cat((window.narrow(axis, added, length - added), new.to(window.dtype)), axis)
            self._copied += window.nbytes
        self._clock.mark(self._copies)
        return window

    def called(self, slot: str, program: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        mark = self._clock.mark
        mark(self._between[self._phase])
        found, inputs = self._chosen(slot, program, args, kwargs)
        phase = self._phase or slot
        segment = self._segments.get(Segment(phase, "phase", *found.key))
        if segment is None:
            text = f"{'.'.join(found.key)} is called in phase '{phase}', which the first units did not do"
            text += "; let every unit make the same calls in the same phases"
            raise BakeoffError(text, "bad-user-code")
        port = found.port
        advanced = self._advanced(found, inputs)
        for name, value in inputs.items():
            if name in advanced or found.shared.get(name) is value:
                continue
            token, held = self._token(value), found.fed.get(name)
            if held is not None and held[0]() is value and held[1] == token is not None:
                continue
            tensor, wanted = value, port.inputs[name]
            if (tensor.dtype, tensor.device) != (wanted.dtype, wanted.device):
                mark(self._copies)
                tensor = tensor.to(wanted.device, wanted.dtype)
                mark(self._glue)
            self._copied += port.feed(name, tensor)
            found.fed[name] = weakref.ref(value), token
        if found.flags is not None and not self._one_set_of_flags:
            apply_flags(found.flags)
        inside = current_session.set(None)  # ranges of a module's own are parts of its call
        mark(self._copies)
        port.call()
        mark(segment)
        current_session.reset(inside)
        if not found.calls:
            _check_memory(found)
        found.calls += 1
        self._unit_calls[found.key] = self._unit_calls.get(found.key, 0) + 1
        outputs = port.outputs
        if found.keeps:
            outputs = {name: output.clone() for name, output in outputs.items()}
            self._copied += sum(output.nbytes for output in outputs.values())
            mark(self._copies)
        else:
            self._makers.update(dict.fromkeys(outputs.values(), found))
        found.last = outputs
        return dict(outputs) if found.call is None else rebuild(found.call[1], outputs)

    def _chosen(
        self, slot: str, program: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[_Program, Mapping[str, Tensor]]:
        """Return the program that a call is of, and its inputs by name. Raises BakeoffError where there is none."""
        found = self._programs.get((slot, program))
        if found is not None and found.call is None:
            return found, {**dict(zip(found.names, args, strict=False)), **kwargs}
        method = f"{slot}.{program}" if program else slot
        for key, found in self._programs.items():
            if key[0] == method and found.call is not None:
                inputs = called_as(found.call[0], found.shapes, args, kwargs)
                if inputs is not None:
                    return found, inputs
        shapes = ", ".join(
            str(list(one.shape)) for one in pytree.tree_leaves((args, kwargs)) if isinstance(one, Tensor)
        )
        text = f"slot {method} is called with other shapes, names or plain values than in the first units, now with "
        text += f"{shapes or 'no tensor'}; let every unit call it alike"
        raise BakeoffError(text, "bad-user-code")

    def _advanced(self, program: _Program, inputs: Mapping[str, Tensor]) -> Collection[str]:
        """Swap all carried inputs at once where they are outputs of the program's last call; returns their names."""
        carried = program.carried
        if not carried or any(inputs[name] is not program.last.get(output) for output, name in carried.items()):
            return ()
        self._copied += program.port.advance()
        for name in carried.values():
            program.fed.pop(name, None)  # what was fed before is no longer there
        return carried.values()

    def _token(self, value: Tensor) -> tuple[int, int] | None:
        """Return a token that changes whenever the tensor's values do; None where that cannot be known."""
        maker = self._makers.get(value)
        if value.is_inference():
            return None if maker is None else (0, maker.calls)
        return value._version, 0 if maker is None else maker.calls


def _check_memory(program: _Program) -> None:
    """Raise BakeoffError where an engine's output is memory of its input: what the next call is given overwrites it."""
    buffers = {buffer.untyped_storage().data_ptr(): name for name, buffer in program.port.inputs.items()}
    for output, value in program.port.outputs.items():
        name = buffers.get(value.untyped_storage().data_ptr())
        if name is not None and value.numel():
            text = f"{'.'.join(program.key)}: the output {output} is memory of the input {name}, which the next call"
            raise BakeoffError(f"{text} overwrites; a loop cannot hold it", "wrong-output")


def called_as(
    signature: Signature, shapes: Sequence[Sequence[int]], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Tensor] | None:
    """Return the tensors of a call by name, plain numbers in their place too; None where it is another one."""
    try:
        found = flatten_call(signature, args, kwargs)
    except BakeoffError:
        return None
    inputs = {name: value if isinstance(value, Tensor) else torch.as_tensor(value) for name, value in found.items()}
    return inputs if [tuple(one.shape) for one in inputs.values()] == [tuple(one) for one in shapes] else None


def seed_generators(*of: int) -> None:
    """Seed the global generators of torch, numpy and Python: a unit that draws from them draws the same again."""
    seed = random.Random(str(of)).getrandbits(32)
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
