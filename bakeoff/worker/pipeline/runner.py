"""Runs a pipeline unit by unit on built programs, and accounts for the time of each unit.

A sliding window lies in one buffer that the programs of a slot share and that is shifted in place. State that a program
makes for its own next call is swapped with its inputs if the engine can do that. All other inputs of a call are given
to the program's port, which copies them or reads them where they are. Copies are timed and counted.
"""

import random
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial, wraps
from pathlib import Path
from typing import Any

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
from bakeoff.worker.brought.load import seed_all
from bakeoff.worker.pipeline.clocks import UNATTRIBUTED, UnitClock, make_clock
from bakeoff.worker.subject import LoadedSubject, cast_input, draw, input_source
from bakeoff.worker.torch_flags import Flags, apply_flags

Key = tuple[str, str]
"""Names of a slot and of a program."""


@dataclass(frozen=True, slots=True)
class ProgramEngine:
    """A built program in the form that a runner takes."""

    engine: Engine
    workload: Workload
    inputs: Mapping[str, Tensor]
    """One set of inputs in the variant's dtype and on its device, which gives shapes and layouts; not overwritten."""
    flags: Flags | None = None
    """torch's flags at the program's build; set before each of its calls if programs have different flags."""
    call: tuple[Signature, Node] | None = None
    """Signature and result structure of a user's own module; None for a component, which takes tensors by name."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Part of a unit's time: the line of the account that it belongs to, and its slot and program."""

    line: str
    kind: LineKind
    slot: str = ""
    program: str = ""


@dataclass(frozen=True, slots=True)
class UnitSample:
    """Times and counts of one unit that ran."""

    session: int
    unit: int
    """Number within the session, from 0."""
    frames: int
    wall_ns: int
    started_ns: int
    """Start by the worker's clock, in ns from an arbitrary origin."""
    segments: Mapping[Segment, int]
    """Nanoseconds of each segment; they add up to `wall_ns`."""
    calls: Mapping[Key, int]
    copied_bytes: int


_KINDS = ("normal", "uniform", "binary")
_NAMELESS = Segment("unattributed", "unattributed")
_COPIES = Segment("copies", "copies")
_GLUE = Segment("glue", "glue")


class Given:
    """Draws external inputs of a loop, such as noise: the same values in every process, up to the cast to a dtype."""

    def __init__(self, seed: int, dtypes: Mapping[str, str], device: str, session: int, unit: int) -> None:
        """`dtypes` maps slots to their dtypes."""
        self._seed, self._dtypes, self._device = seed, dtypes, device
        self._session, self._unit = session, unit

    def __call__(self, name: str, shape: tuple[int, ...], kind: Draw = "normal", slot: str = "") -> Tensor:
        """Draw values that depend on seed, session, unit and name only, in the slot's dtype or at least in fp32."""
        return self.session(f"{name}:{self._unit}", shape, kind, slot)

    def session(self, name: str, shape: tuple[int, ...], kind: Draw = "normal", slot: str = "") -> Tensor:
        """Draw values that are the same in all units of a session."""
        if isinstance(kind, str) and kind not in _KINDS:
            text = f"draw of {name}: there is no kind '{kind}'; give {', '.join(_KINDS)}, or a tuple of values"
            raise BakeoffError(text, "bad-user-code")
        spec = TensorSpec(name, tuple(shape), kind)
        return self.value(draw(spec, f"{self._seed}:{self._session}:{name}"), slot)

    def zeros(self, shape: tuple[int, ...], slot: str = "") -> Tensor:
        return self.value(torch.zeros(shape), slot)

    def value(self, tensor: Tensor, slot: str = "") -> Tensor:
        """Return a tensor of your own on the device in the slot's dtype; without a slot in at least fp32."""
        return self.like(TensorSpec("", tuple(tensor.shape), keep_fp32=not slot), tensor, slot)

    def like(self, spec: TensorSpec, tensor: Tensor, slot: str = "") -> Tensor:
        """Return the tensor cast and laid out for the slot's input that `spec` describes."""
        return cast_input(spec, tensor, self._dtypes[slot] if slot else widest(self._dtypes.values()), self._device)

    def inputs(self, slot: str, reference: str, workload: Workload) -> dict[str, Tensor]:
        """Return a set of a workload's inputs: drawn ones, or for a brought model recorded ones or values like them."""
        drawn = input_source(resolve_component(reference).network_module(), workload).keyed(self._key)
        return {spec.name: self.like(spec, drawn[spec.name], slot) for spec in workload.inputs}

    def _key(self, name: str) -> str:
        return f"{self._seed}:{self._session}:{name}:{self._unit}"


def widest(dtypes: Iterable[str]) -> str:
    """Return fp64 if all slots compute in fp64, as references do; else fp32."""
    return "fp64" if set(dtypes) == {"fp64"} else "fp32"


def call_of(loop: Loop, key: Key, loaded: LoadedSubject) -> tuple[Signature, Node] | None:
    """Return the signature and the result structure of a program of the author's own module; None for a component's."""
    if not loop.slot(key[0]).users:
        return None
    one = read_about(Path(loaded.component.folder)).input_set(key[1])
    return one.call, one.result


def flat(tree: Any) -> dict[str, Any]:
    """Return the leaves of a state by their paths, such as `cache/0`."""
    return {path_of(path): leaf for path, leaf in pytree.tree_flatten_with_path(tree)[0]}


def path_of(path: Sequence[Any]) -> str:
    """Return a pytree's path as text, such as `cache/0`."""
    names = ("key", "idx", "name")
    return "/".join(str(next(getattr(part, name) for name in names if hasattr(part, name))) for part in path)


class Run:
    """Interface for a pipeline's unit to call programs, mark phases and slide windows: `run.SLOT(...)`,
    `run.SLOT.PROGRAM(...)`, `run.phase(...)`, `run.slide(...)`."""

    device: str

    def __init__(self) -> None:
        self._own: dict[str, Callable[..., Any]] = {}
        """Slot to its module's original method, while `in_place` replaces that."""
        self._ranges = NoSession(self.phase, self._step)

    def __getattr__(self, slot: str) -> "SlotCalls":
        if slot.startswith("_"):
            raise AttributeError(slot)
        return SlotCalls(self, slot)

    def phase(self, name: str, **about: Any) -> AbstractContextManager[None]:
        """Return a context for a part of the unit that has a line of its own in the account.

        The line has the time of the calls in the phase, or all of the phase's time if it makes no calls. `about` are
        facts that a trace shows beside these calls, such as step and timestep.
        """
        raise NotImplementedError

    def _step(self, index: Scalar, timestep: Scalar) -> AbstractContextManager[object]:  # noqa: ARG002
        """Return a context for a step of the phase, which traces show. Steps without `index` are numbered."""
        return NOTHING

    @contextmanager
    def marked(self) -> Iterator[None]:
        """Within this context, phases and steps of bakeoff.profile, from any code, count as those of the unit."""
        token = current_session.set(self._ranges)
        try:
            yield
        finally:
            current_session.reset(token)

    def slide(self, window: Tensor, new: Tensor, axis: int) -> Tensor:
        """Return the window without its oldest entries along `axis`, and with the entries of `new` at its end.

        `window` may be changed in place: use the returned tensor.
        """
        raise NotImplementedError

    def called(self, slot: str, program: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call a program and return its result, whose tensors are valid until the program's next call."""
        raise NotImplementedError

    def modules(self) -> Mapping[str, Any]:
        """Return the result of the pipeline's `modules`."""
        raise NotImplementedError

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Within this context, calls of the pipeline's modules, from any code, are calls of their slots.

        A slot named NAME.METHOD takes the calls of that method of its module, any other slot those of `forward`.
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
    """A slot as a pipeline calls it. Its programs are workloads of its component, or methods of its module."""

    run: Run
    slot: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.run.called(self.slot, "", args, kwargs)

    def __getattr__(self, program: str) -> Callable[..., Any]:
        return lambda *args, **kwargs: self.run.called(self.slot, program, args, kwargs)


@dataclass(slots=True)
class _Program:
    """A program in the loop: its port, and the tensors that were fed to it."""

    key: Key
    port: Port
    flags: Flags | None
    names: tuple[str, ...]
    """Names of the program's inputs."""
    call: tuple[Signature, Node] | None
    shapes: tuple[torch.Size, ...]
    carried: Mapping[str, str]
    """Output to the input that it becomes in the program's next call, by name."""
    keeps: bool
    """True if outputs are copied, because they are read after the next call and that call may overwrite them."""
    shared: Mapping[str, Tensor]
    """Buffers of the inputs that are windows, by input."""
    calls: int = 0
    last: Mapping[str, Tensor] = field(default_factory=dict)
    """Outputs of the last call."""
    fed: dict[str, tuple[Any, object]] = field(default_factory=dict)
    """Input to a weak reference to the tensor last fed to it, and a token that changes with that tensor's values."""


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
        """Bind every program. Raises BakeoffError if one is missing, or if values do not fit its inputs."""
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
        """Output tensor to the program that made it, whose next call may overwrite it."""
        self._one_set_of_flags = len({program.flags for program in self._programs.values()}) <= 1
        self._segments: dict[Segment, int] = {_NAMELESS: UNATTRIBUTED}
        for segment in (_COPIES, _GLUE):
            self._segments[segment] = len(self._segments)
        self._copies, self._glue = self._segments[_COPIES], self._segments[_GLUE]
        self._between: dict[str, int] = {"": self._glue}
        """Phase to the segment of its time outside of calls: glue, or the phase's own if it makes no calls."""
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
        self.on_inputs: Callable[[Key, Mapping[str, Tensor]], None] | None = None
        """Function to call before each call of a program, with the tensors that the loop gives it."""
        self.on_call: Callable[[Key, Port], None] | None = None
        """Function to call after each call of a program, with its port, whose inputs are still those of the call."""

    @property
    def at_end(self) -> bool:
        """True if the session has no further unit, so that another one must be opened."""
        return self._loop.max_units is not None and self.next_unit >= self._loop.max_units

    def open(self) -> int:
        """Open the next session: draw its external inputs, then let the pipeline start.

        Returns the nanoseconds of the start alone.
        """
        self.session, self.next_unit = self.session + 1, 0
        given = self._given(OPENING)
        self._clock.begin()
        with self.marked():
            self._state = self._in_buffers(self._pipeline.start(given, self))
        self._clock.mark(self._glue)
        return self._clock.end()[0]

    def unit(self) -> UnitSample:
        """Run the next unit and return its times. Its external inputs are drawn before its time begins."""
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
        """Within this context, time units by another clock.

        `make` returns that clock, given the present clock and the number of segments.
        """
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
        """Return copies of the tensors that pass from unit to unit; those that no unit has made yet are left out."""
        found = flat(self._state)
        return {path: found[path].clone() for path in self._loop.state if path in found}

    def set_state(self, state: Mapping[str, Tensor], unit: int) -> None:
        """Continue at `unit` of the present session from these tensors, which are cast to the dtypes of the loop."""

        def given(path: Any, own: Any) -> Any:
            value = state.get(path_of(path))
            return own if value is None else value.to(own.device, own.dtype, copy=True)

        self._state = self._in_buffers(pytree.tree_map_with_path(given, self._state))
        self.next_unit = unit

    def _in_buffers(self, state: Any) -> Any:
        """Copy the windows of the state into their buffers, and return the state with the buffers in their place."""
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
        """Return the bytes of the tensors that pass from unit to unit."""
        found = flat(self._state)
        return sum(found[path].nbytes for path in self._loop.state if path in found)

    def segments(self) -> tuple[Segment, ...]:
        """Return all segments of the account, in the order of their numbers."""
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
        if self.on_inputs is not None:
            self.on_inputs(found.key, inputs)
        phase = self._phase or slot
        segment = self._segments.get(Segment(phase, "phase", *found.key))
        if segment is None:
            text = f"{'.'.join(found.key)} is called in phase '{phase}', which the first units did not do"
            text += "; let every unit make the same calls in the same phases"
            raise BakeoffError(text, "bad-user-code")
        port = found.port
        advanced = self._advanced(found, inputs)
        new: dict[str, Tensor] = {}
        fed: dict[str, tuple[Any, object]] = {}
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
            new[name], fed[name] = tensor, (weakref.ref(value), token)
        self._copied += port.feed(new)
        found.fed |= fed
        if found.flags is not None and not self._one_set_of_flags:
            apply_flags(found.flags)
        inside = current_session.set(None)  # ranges of a module's own are parts of its call
        mark(self._copies)
        port.call()
        mark(segment)
        current_session.reset(inside)
        if self.on_call is not None:
            self.on_call(found.key, port)
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
        """Return the program that a call is for, and the call's inputs by name. Raises BakeoffError if none fits."""
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
        """Swap all carried inputs at once if they are outputs of the program's last call; return their names.

        Returns () if they are not, or if the program has none.
        """
        carried = program.carried
        if not carried or any(inputs[name] is not program.last.get(output) for output, name in carried.items()):
            return ()
        self._copied += program.port.advance()
        for name in carried.values():
            program.fed.pop(name, None)  # what was fed before is no longer there
        return carried.values()

    def _token(self, value: Tensor) -> tuple[int, int] | None:
        """Return a token that changes whenever the tensor's values do; None if that cannot be known."""
        maker = self._makers.get(value)
        if value.is_inference():
            return None if maker is None else (0, maker.calls)
        return value._version, 0 if maker is None else maker.calls


def _check_memory(program: _Program) -> None:
    """Raise BakeoffError if an engine's output shares the memory of an input, which the next call overwrites."""
    buffers = {buffer.untyped_storage().data_ptr(): name for name, buffer in program.port.inputs.items()}
    for output, value in program.port.outputs.items():
        name = buffers.get(value.untyped_storage().data_ptr())
        if name is not None and value.numel():
            text = f"{'.'.join(program.key)}: the output {output} is memory of the input {name}, which the next call"
            raise BakeoffError(f"{text} overwrites; a loop cannot hold it", "wrong-output")


def called_as(
    signature: Signature, shapes: Sequence[Sequence[int]], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Tensor] | None:
    """Return a call's inputs by name; None if `signature` or `shapes` do not fit the call."""
    try:
        found = flatten_call(signature, args, kwargs)
    except BakeoffError:
        return None
    given = [tuple(one.shape) if isinstance(one, Tensor) else None for one in found.values()]
    return found if given == [tuple(one) for one in shapes] else None


def seed_generators(*of: int) -> None:
    """Seed the global generators of torch, numpy and Python, so that a unit that uses them draws the same again."""
    seed_all(random.Random(str(of)).getrandbits(32))
