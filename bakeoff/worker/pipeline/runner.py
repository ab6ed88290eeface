"""Runs a pipeline unit by unit on built programs: draws what each unit is given, and keeps the state between units.

The time of each unit goes to an account (account.py), the inputs of each call to its program's port (feeder.py).
"""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial, wraps
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from bakeoff.backends.backend import Unsupported
from bakeoff.backends.port import Port
from bakeoff.models import resolve_component
from bakeoff.models.component import Draw, TensorSpec, Workload
from bakeoff.models.errors import BakeoffError
from bakeoff.models.pipelines.pipeline import OPENING, BuiltIn, Key, Pipeline
from bakeoff.models.types import Scalar
from bakeoff.process.jobs import LoopSubject
from bakeoff.profile.ranges import NOTHING
from bakeoff.profile.session import NoSession, current_session
from bakeoff.worker.brought.load import seed_all
from bakeoff.worker.pipeline.account import Account, UnitSample
from bakeoff.worker.pipeline.feeder import BoundProgram, Feeder, ProgramEngine, result_of
from bakeoff.worker.pipeline.lanes import Lane, Later, Order, value_of, values_of
from bakeoff.worker.pipeline.unit_graph import UnitGraph
from bakeoff.worker.subject import cast_input, draw, input_source
from bakeoff.worker.torch_flags import apply_flags

_KINDS = ("normal", "uniform", "binary")


@dataclass(frozen=True, slots=True)
class Given:
    """Draws external inputs of a loop, such as noise: the same values in every process, up to the cast to a dtype."""

    _seed: int
    _dtypes: Mapping[str, str]
    """Slot to its dtype."""
    _device: str
    _session: int
    _unit: int

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
        network = resolve_component(reference).network_module()
        drawn = input_source(network, workload).keyed(lambda name: f"{self._seed}:{self._session}:{name}:{self._unit}")
        return {spec.name: self.like(spec, drawn[spec.name], slot) for spec in workload.inputs}


def widest(dtypes: Iterable[str]) -> str:
    """Return fp64 if all slots compute in fp64, as references do; else fp32."""
    return "fp64" if set(dtypes) == {"fp64"} else "fp32"


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
    modules: Mapping[str, Any]
    """Result of the pipeline's `modules`."""

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

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Within this context, calls of the pipeline's modules, from any code, are calls of their slots.

        A slot named NAME.METHOD takes the calls of that method of its module, any other slot those of `forward`.
        """
        replaced = []
        try:
            for slot, module in self.modules.items():
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


class LoopRunner(Run):
    """A pipeline in progress. `open` a session, then run one `unit` after the other. Not thread-safe."""

    def __init__(
        self,
        pipeline: Pipeline,
        subject: LoopSubject,
        engines: Mapping[Key, ProgramEngine],
        dtypes: Mapping[str, str],
        lane: Lane | None = None,
        graph: bool = False,
    ) -> None:
        """Bind every program; with `graph`, steady units can be replayed as one graph. Raises BakeoffError if a program
        is missing, or if values do not fit its inputs."""
        super().__init__()
        self._pipeline, self._loop, self.device = pipeline, subject.loop, subject.device
        self._seed, self._dtypes = subject.input_seed, dtypes
        self.account = Account(self._loop, self.device, idle=lane is not None, graph=graph)
        self._lane = lane
        self._feeder = Feeder(self._loop, engines, self.account, lane)
        self._graph = UnitGraph(pipeline.step, self._feeder, self.account, self.device, flat) if graph else None
        self._steps: Pipeline | UnitGraph = pipeline
        self._late: tuple[Mapping[str, Tensor], int] | None = None
        """Outputs and frames of the last unit, if its programs are to run beside the next one."""
        self._state: Any = {}
        self.outputs: Mapping[str, Tensor] = {}
        """Outputs of the last unit, or with programs that run behind of the one before; valid until the next unit."""
        self.session, self.next_unit = OPENING, 0

    @property
    def at_end(self) -> bool:
        """True if a session must be opened first: there is none yet, or it has no further unit."""
        most = self._loop.max_units
        return self.session < 0 or (most is not None and self.next_unit >= most)

    def open(self) -> int:
        """Open the next session: draw its external inputs, then let the pipeline start.

        Returns the nanoseconds of the start alone.
        """
        self.settle()
        self.session, self.next_unit = self.session + 1, 0
        given = self._given(OPENING)
        self.account.begin()
        if self._lane is not None:
            self._lane.begin(at_once=True)
        with self.marked():
            self._state = self._in_buffers(self._pipeline.start(given, self))
        return self.account.end(self.session, OPENING, 0).wall_ns

    def unit(self) -> UnitSample:
        """Run the next unit and return its times. Its external inputs are drawn before its time begins."""
        if self.at_end:
            raise BakeoffError("no session is open, or it is at its end; open one", code="bad-config")
        number, frames = self.next_unit, self._loop.of(self.next_unit).frames
        given = self._given(number)
        steps = self._steps if number >= len(self._loop.opening) else self._pipeline
        self.account.begin()
        if self._lane is not None:
            self._lane.begin(at_once=number < len(self._loop.opening))
        try:
            with self.marked():
                self._state, outputs = steps.step(self._state, given, self)
        except Unsupported:
            raise
        except BakeoffError as error:
            raise BakeoffError(f"unit {number} of session {self.session}: {error}", error.code) from error
        self.outputs, self.next_unit = dict(outputs), number + 1
        lane = self._lane
        if lane is None:
            return self.account.end(self.session, number, frames)
        frames = self._join(lane, frames)
        sample = self.account.end(self.session, number, frames)
        beside, done_ns = lane.end(sample.wall_ns)
        copied = sample.copied_bytes + lane.account.copied_bytes
        calls = self.account.calls + lane.account.calls
        return replace(sample, calls=calls, copied_bytes=copied, beside=beside, done_ns=done_ns)

    def _join(self, lane: Lane, frames: int) -> int:
        """Wait for the second lane at the end of a unit of so many frames; return those of the outputs that are ready,
        which are then `outputs`."""
        if not lane.behind or lane.at_once or lane.order == "alone":
            lane.flush()
            self._state, self.outputs = values_of(self._state), values_of(self.outputs)
            return frames
        late, frames_before = self._late or ({}, 0)
        held = {name: one if isinstance(one, Later) else self._feeder.held(one) for name, one in self.outputs.items()}
        self._late = held, frames
        self.account.clock.mark(self.account.copies)
        lane.wait()
        self.outputs = values_of(late)
        return frames_before

    def settle(self) -> bool:
        """Compute what the last unit has put off; `outputs` are then its own. Return whether there was anything."""
        if self._lane is None or self._late is None:
            return False
        self._lane.flush()
        self.outputs, self._late = values_of(self._late[0]), None
        self._state = values_of(self._state)
        return True

    def ordered(self, order: Order) -> None:
        """Run the lanes of the next units in this order; units that can be replayed as a graph are, if `beside`."""
        self.settle()
        self._steps = self._graph if self._graph is not None and order == "beside" else self._pipeline
        if self._lane is not None:
            self._lane.order = order

    @cached_property
    def modules(self) -> Mapping[str, Any]:  # type: ignore[override]
        return self._pipeline.modules()

    def _given(self, unit: int) -> Any:
        seed_generators(self._seed, self.session, unit)
        return self._pipeline.given(unit, Given(self._seed, self._dtypes, self.device, self.session, unit))

    def state(self) -> dict[str, Tensor]:
        """Return copies of the tensors that pass from unit to unit; those that no unit has made yet are left out."""
        self.settle()
        leaves = flat(self._state)
        return {path: leaves[path].clone() for path in self._loop.state if path in leaves}

    def set_state(self, state: Mapping[str, Tensor], unit: int) -> None:
        """Continue at `unit` of the present session from these tensors, which are cast to the dtypes of the loop."""

        self.settle()

        def given(path: Any, own: Any) -> Any:
            value = state.get(path_of(path))
            return own if value is None else value.to(own.device, own.dtype, copy=True)

        self._state = self._in_buffers(pytree.tree_map_with_path(given, self._state))
        self.next_unit = unit

    def _in_buffers(self, state: Any) -> Any:
        """Copy the windows of the state into their buffers, and return the state with the buffers in their place."""
        buffers = self._feeder.windows

        def placed(path: Any, leaf: Any) -> Any:
            buffer = buffers.get(path_of(path))
            return leaf if buffer is None else buffer.copy_(leaf)

        return pytree.tree_map_with_path(placed, state) if buffers else state

    def added_bytes(self) -> int | None:
        """Return the bytes of the buffers that the schedule adds: of copies for the second lane, as
        `Feeder.apart_bytes` does, or of the graph; None of sequential units."""
        if self._graph is not None:
            return self._graph.added_bytes
        return None if self._lane is None else self._feeder.apart_bytes()

    def prepare(self, key: Key) -> None:
        """Set torch's flags for calls of a program, if programs have different ones."""
        flags = self._feeder.programs[key].built.flags
        if self._feeder.sets_flags and flags is not None:
            apply_flags(flags)

    def port(self, key: Key) -> Port:
        return self._feeder.programs[key].port

    def phase(self, name: str, **_about: Any) -> AbstractContextManager[None]:
        return self.account.phase(name)

    def slide(self, window: Tensor, new: Tensor, axis: int) -> Tensor:
        account, lane = self.account, self._lane
        account.mark_between()
        length, added = window.size(axis), new.size(axis)
        if any(window is buffer for buffer in self._feeder.windows.values()):

            def shifted() -> Tensor:
                entries = value_of(new)
                kept = window.narrow(axis, added, length - added).clone()
                window.narrow(axis, 0, length - added).copy_(kept)
                window.narrow(axis, length - added, added).copy_(entries)
                of.copied_bytes += kept.nbytes + entries.nbytes
                return window

            of = account
            if lane is not None and isinstance(new, Later):
                if not lane.behind:
                    of = lane.account
                    lane.reading.append(window)
                    moved: Tensor = lane.later(("slide", id(window)), shifted, account.copies)
                    return moved
                return torch.cat((window.narrow(axis, added, length - added), new.to(window.dtype)), axis)
            if lane is not None and any(window is one for one in lane.reading):
                lane.flush()
            shifted()
        else:
            window = torch.cat((window.narrow(axis, added, length - added), new.to(window.dtype)), axis)
            account.copied_bytes += window.nbytes
        account.clock.mark(account.copies)
        return window

    def called(self, slot: str, program: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        account = self.account
        account.mark_between()
        bound, inputs = self._feeder.choose(slot, program, args, kwargs)
        segment = account.segment_of(slot, bound.key)
        if self._lane is not None and bound.key in self._lane.programs:
            return self._put_off(self._lane, bound, inputs, segment)
        late = next((name for name, value in inputs.items() if isinstance(value, Later)), "")
        if late and self._lane is not None:
            raise self._lane.refusal(f"gives {bound.key} what it returns, as {late}")
        self._feeder.feed(bound, inputs)
        self.prepare(bound.key)
        inside = current_session.set(None)  # ranges of a module's own are parts of its call
        account.clock.mark(account.copies)
        bound.port.call()
        account.clock.mark(segment)
        current_session.reset(inside)
        account.calls[bound.key] += 1
        return result_of(bound, self._feeder.outputs(bound))

    def _put_off(self, lane: Lane, bound: BoundProgram, inputs: Mapping[str, Tensor], segment: int) -> Any:
        """Let the second lane make a call later, and return its result."""
        feeder, account = self._feeder, lane.account
        held = {name: one if isinstance(one, Later) else feeder.held(one) for name, one in inputs.items()}
        self.account.clock.mark(self.account.copies)

        def compute() -> Mapping[str, Tensor]:
            feeder.feed(bound, values_of(held))
            account.clock.mark(account.copies)
            bound.port.call()
            account.clock.mark(segment)
            account.calls[bound.key] += 1
            return feeder.outputs(bound)

        return result_of(bound, lane.later(bound.key, compute, account.glue))


def seed_generators(*of: int) -> None:
    """Seed the global generators of torch, numpy and Python, so that a unit that uses them draws the same again."""
    seed_all(random.Random(str(of)).getrandbits(32))
