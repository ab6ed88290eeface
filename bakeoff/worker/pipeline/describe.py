"""Describes a pipeline by running its first units: programs, phases, state, and which slots contribute to which values.

If all slots hold components of this lab, nothing is computed: their outputs' shapes are known, and the code between
them runs on fake tensors. If a slot holds a user's module, all slots compute (pipeline/users.py), and each unit runs a
second time, which finds loops that keep state elsewhere or do not repeat themselves. The inputs of the user's modules
are recorded as those of a live module are, so that these can be swept.
"""

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from bakeoff.backends.torch_internals import fake_tensors, storage_id, watch_dispatch, without_dispatch
from bakeoff.models import resolve_component
from bakeoff.models.component import Workload
from bakeoff.models.errors import BakeoffError
from bakeoff.models.lookup import user_error
from bakeoff.models.options import changed_options
from bakeoff.models.pipelines import load_pipeline
from bakeoff.models.pipelines.pipeline import (
    OPENING,
    BuiltIn,
    Call,
    Key,
    Loop,
    Pipeline,
    Slot,
    Unit,
)
from bakeoff.models.types import Scalar
from bakeoff.process.jobs import DescribeLoopJob
from bakeoff.profile.session import current_session
from bakeoff.worker.failures import is_out_of_memory
from bakeoff.worker.pipeline.between import with_between
from bakeoff.worker.pipeline.facts import (
    check_class,
    check_object,
    check_unit,
    checked_counts,
    checked_modules,
    step_results,
)
from bakeoff.worker.pipeline.runner import Given, Run, flat, seed_generators
from bakeoff.worker.reporter import Report

MOST_UNITS = 8
"""Most units to run until two in a row make the same calls."""


@dataclass(slots=True)
class Called:
    """One call of a program, with its arguments, its inputs and its outputs."""

    phase: str
    slot: str
    program: str
    about: dict[str, Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    result: Any
    """What the call returned."""

    @property
    def key(self) -> Key:
        return Key(self.slot, self.program)

    @property
    def call(self) -> Call:
        return Call(self.phase, self.slot, self.program, self.about)

    @property
    def form(self) -> object:
        """Value that is equal for calls that do the same: the call's description and the shapes of its inputs."""
        return self.call, [(name, one.shape) for name, one in self.inputs.items()]


@dataclass(slots=True)
class UnitRun:
    """A unit that ran: the leaves of its state before and after, by path, its outputs, calls and phases."""

    before: Mapping[str, Any] = field(default_factory=dict)
    after: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, Any] = field(default_factory=dict)
    calls: list[Called] = field(default_factory=list)
    phases: dict[str, None] = field(default_factory=dict)
    slid: dict[int, Tensor] = field(default_factory=dict)
    """Windows that `slide` returned, by `id`."""
    flows: dict[str, frozenset[str]] = field(default_factory=dict)
    """Labels of what flows into each call, as in `Loop.flows`."""

    def does(self, frames: int) -> Unit:
        return Unit(tuple(one.call for one in self.calls), tuple(self.phases), frames)


class _Taints:
    """Tracks which slots contributed to a tensor, and which calls and state of its unit flow into it, by its storage.

    Labels of calls and state, `call 3` and `state keys`, have a space, and names of slots have none.
    """

    def __init__(self) -> None:
        self._slots: dict[int, frozenset[str]] = {}
        self._alive: list[Tensor] = []

    def of(self, tree: Any) -> frozenset[str]:
        tensors = (one for one in pytree.tree_leaves(tree) if isinstance(one, Tensor))
        return frozenset().union(*(self._slots.get(storage_id(one), frozenset()) for one in tensors))

    def mark(self, tree: Any, slots: frozenset[str]) -> None:
        for one in pytree.tree_leaves(tree):
            if isinstance(one, Tensor):
                self._slots[storage_id(one)] = slots
                self._alive.append(one)

    def begin(self, state: Mapping[str, Any], constant: Collection[str]) -> None:
        """Begin a unit: no slot has contributed to the state that is not constant, and each tensor of that has its
        label."""
        for path, leaf in state.items():
            self.mark(leaf, slots_of(self.of(leaf)) if path in constant else frozenset())
        for path in state.keys() - constant:
            self.mark(state[path], self.of(state[path]) | {f"state {path}"})

    def followed(self) -> AbstractContextManager[object]:
        """Return a context in which the result of each operator inherits the slots of its arguments."""
        watching: AbstractContextManager[object] = watch_dispatch(
            lambda _func, arguments, result: self.mark(result, self.of(arguments))
        )
        return watching


def slots_of(labels: Collection[str]) -> frozenset[str]:
    """Return the slots among these labels."""
    return frozenset(label for label in labels if " " not in label)


class Recorder(Run):
    """Runs a pipeline's units with the shapes of its components, without computing, and records what they call."""

    is_real = False
    """True if its calls compute."""

    def __init__(self, filled: Mapping[str, Any], device: str) -> None:
        super().__init__()
        self.modules, self.device = filled, device
        self._phase, self._about = "", dict[str, Any]()
        self._steps = 0
        """Number of steps of the current phase without an index of their own."""
        self.waiting: list[str] = []
        """Phases that were created but not entered yet."""
        self.taints = _Taints()
        self.unit = UnitRun()

    def phase(self, name: str, **about: Any) -> AbstractContextManager[None]:
        self.waiting.append(name)
        return self._in_phase(name, about)

    @contextlib.contextmanager
    def _in_phase(self, name: str, about: dict[str, Any]) -> Iterator[None]:
        self.waiting.remove(name)
        outer = self._phase, self._about, self._steps
        self._phase, self._about, self._steps = name, about, 0
        self.unit.phases[name] = None
        try:
            yield
        finally:
            self._phase, self._about, self._steps = outer

    @contextlib.contextmanager
    def _step(self, index: Scalar, timestep: Scalar) -> Iterator[None]:
        outer = self._about
        if index is None:
            index, self._steps = self._steps, self._steps + 1
        self._about = {**outer, "step": index, **({} if timestep is None else {"timestep": timestep})}
        try:
            yield
        finally:
            self._about = outer

    def slide(self, window: Tensor, new: Tensor, axis: int) -> Tensor:
        length, added = window.size(axis), new.size(axis)
        if added > length or _without(window, axis) != _without(new, axis):
            shapes = f"{list(window.shape)} cannot take {list(new.shape)}"
            raise BakeoffError(f"a window of shape {shapes} along axis {axis}", "bad-config")
        made = torch.cat((window.narrow(axis, added, length - added), new.to(window.dtype)), axis)
        self.unit.slid[id(made)] = made
        return made

    def called(self, slot: str, program: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if slot not in self.modules:
            raise BakeoffError(
                f"run.{slot} is called; modules() has {', '.join(self.modules) or 'no slot'}", "bad-config"
            )
        filled = self.modules[slot]
        inside = current_session.set(None)  # as in LoopRunner
        with without_dispatch() if self.is_real else contextlib.nullcontext():
            name, inputs, outputs, result = self.computed(slot, filled, program, args, kwargs)
        current_session.reset(inside)
        label, flowing = f"call {len(self.unit.calls)}", self.taints.of(inputs)
        self.unit.flows[label] = flowing
        self.taints.mark(outputs, flowing | {name, label})
        phase = self._phase or slot
        self.unit.phases[phase] = None
        program = program if isinstance(filled, BuiltIn) else ""
        self.unit.calls.append(Called(phase, name, program, dict(self._about), args, kwargs, inputs, outputs, result))
        return result

    def seen(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return a unit's values in the form in which `UnitRun` keeps them."""
        return values

    def computed(
        self, slot: str, filled: Any, program: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[str, Mapping[str, Tensor], Mapping[str, Tensor], Any]:
        """Return the slot's name, a call's inputs and outputs by name, and the result that the call returns.

        `filled` is the component or module in the slot. Here outputs are empty tensors of the workload's shapes. Raises
        BakeoffError if the arguments do not fit the workload.
        """
        component = resolve_component(filled.component)
        workload: Workload = component.workload(component.preset(filled.preset).config, program, filled.batch)
        names = [spec.name for spec in workload.inputs]
        inputs = {**dict(zip(names, args, strict=False)), **kwargs}
        wrong = [name for name in names if name not in inputs] or [name for name in inputs if name not in names]
        if wrong or len(args) > len(names):
            text = f"{slot}.{program} takes {', '.join(names)}; it is called with {', '.join(inputs)}"
            raise BakeoffError(text, "bad-config")
        for spec in workload.inputs:
            if tuple(inputs[spec.name].shape) != spec.shape:
                found = list(inputs[spec.name].shape)
                text = f"{slot}.{program} takes {spec.name} of shape {list(spec.shape)}; it is called with {found}"
                raise BakeoffError(text, "bad-config")
        outputs = {
            spec.name: torch.empty(spec.shape, dtype=getattr(torch, spec.dtype or "float32"), device=self.device)
            for spec in workload.outputs
        }
        return slot, inputs, outputs, dict(outputs)


def _without(tensor: Tensor, axis: int) -> list[int]:
    shape = list(tensor.shape)
    del shape[axis]
    return shape


def run_units(
    pipeline: Pipeline, recorder: Recorder, given: Callable[[int], Any], constant: frozenset[str] | None
) -> list[UnitRun]:
    """Run a session's opening and its first units until two in a row make the same calls; return all of them.

    `given` returns a unit's external inputs. If `constant` is not None, it is the paths of the state that no unit
    changes, and the slots that contribute to each value are tracked within each unit: at its start, no slot has
    contributed to the rest of the state. Raises BakeoffError if calls still differ after MOST_UNITS units.
    """
    units, state = [], None
    for number in range(OPENING, MOST_UNITS):
        recorder.unit = unit = UnitRun()
        units.append(unit)
        follows = recorder.taints.followed() if constant is not None else contextlib.nullcontext()
        if number != OPENING:
            unit.before = flat(state)
            if constant is not None:
                recorder.taints.begin(unit.before, constant)
        try:
            values = given(number)
            with follows, recorder.marked():
                if number == OPENING:
                    state = pipeline.start(values, recorder)
                else:
                    state, outputs = step_results(pipeline, pipeline.step(state, values, recorder))
                    unit.outputs = recorder.seen(outputs)
        except BakeoffError:
            raise
        except Exception as error:
            if is_out_of_memory(error):
                raise
            raise user_error(f"pipeline {pipeline.name}", error) from error
        if recorder.waiting:
            text = f"pipeline {pipeline.name}: phase '{recorder.waiting[0]}' is made and not entered"
            raise BakeoffError(f"{text}; write `with` before it", "bad-user-code")
        unit.after = recorder.seen(flat(state))
        if recorder.is_real and number != OPENING:
            check_unit(pipeline, unit.outputs, unit.before, unit.after)
        same = number > 0 and [one.form for one in unit.calls] == [one.form for one in units[-2].calls]
        if same or number + 1 == pipeline.max_units:
            return units
    raise BakeoffError(
        f"pipeline {pipeline.name}: after {MOST_UNITS} units, calls still change from unit to unit; a loop must come "
        "to units that call the same programs with the same shapes: use windows that slide",
        "bad-config",
    )


def describe_loop(job: DescribeLoopJob, report: Report) -> Loop:
    """Return the loop of the job's pipeline.

    Raises BakeoffError if the pipeline, the preset or an option does not exist, or if the loop cannot run.
    """
    cls = load_pipeline(job.pipeline)
    check_class(cls)
    pipeline = cls(cls.preset_of(job.preset, job.device), cls.options_of(job.options))
    check_object(pipeline)
    report("reference", "running the first units")
    seed_generators(job.seed)
    filled = checked_modules(pipeline)
    if not all(isinstance(one, BuiltIn) for one in filled.values()):
        from bakeoff.worker.pipeline.users import describe_users  # it builds on this file

        return describe_users(pipeline, filled, job, report)
    with fake_tensors():
        recorder = Recorder(filled, "cpu")

        def given(unit: int) -> Any:
            return pipeline.given(unit, Given(0, dict.fromkeys(filled, "fp32"), "cpu", 0, unit))

        constant = constant_state(run_units(pipeline, recorder, given, None))
        units = run_units(pipeline, recorder, given, constant)
    called = {one.slot for unit in units for one in unit.calls}
    slots = tuple(Slot(name, one.component, one.preset, one.batch) for name, one in filled.items() if name in called)
    loop = replace(loop_of(pipeline, slots, units, recorder.taints, constant), notes=uncalled(filled, slots))
    return with_between(pipeline, loop, units, {}, job)


def uncalled(filled: Mapping[str, Any], slots: Sequence[Slot]) -> tuple[str, ...]:
    """Return a note for each module that no unit calls."""
    known = {slot.name for slot in slots} | {slot.name.partition(".")[0] for slot in slots}
    return tuple(f"no unit calls {name} of modules(); it is left out" for name in filled if name not in known)


def constant_state(units: Sequence[UnitRun]) -> frozenset[str]:
    """Return the paths of the state whose values no unit replaces by others."""
    changed = {path for unit in units[1:] for path, leaf in unit.after.items() if unit.before.get(path) is not leaf}
    return frozenset(units[0].after.keys() - changed)


def loop_of(
    pipeline: Pipeline, slots: tuple[Slot, ...], units: Sequence[UnitRun], taints: _Taints, constant: frozenset[str]
) -> Loop:
    """Build the description of the loop from the units that ran, the opening first."""
    cls = type(pipeline)
    frames, sizes = checked_counts(pipeline, len(units) - 1)
    does = [unit.does(count) for unit, count in zip(units, (0, *frames), strict=True)]
    opening = next(index for index in range(1, len(does)) if does[index].calls == does[-1].calls)
    steady, behind = units[-1], dict[str, frozenset[str]]()
    for unit in units:
        for path, leaf in unit.after.items():
            if path not in constant and isinstance(leaf, Tensor):
                behind[path] = behind.get(path, frozenset()) | slots_of(taints.of(leaf))
    windows = _windows(steady)
    flows = {f"output {name}": taints.of(value) for name, value in steady.outputs.items()}
    flows |= {f"state {path}": taints.of(steady.after[path]) for path in behind if path in steady.after} | steady.flows
    return Loop(
        name=cls.name,
        preset=pipeline.preset,
        label=cls.presets[pipeline.preset],
        options=asdict(pipeline.options),
        changed=dict(changed_options(pipeline.options)),
        unit=pipeline.unit_name,
        slots=slots,
        opened=does[0],
        opening=tuple(does[1:opening]),
        steady=does[-1],
        filling=pipeline.filling,
        max_units=pipeline.max_units,
        state={path: tuple(sorted(found)) for path, found in behind.items()},
        outputs={name: tuple(sorted(slots_of(taints.of(value)))) for name, value in steady.outputs.items()},
        signals={name: pipeline.signals[name] for name in steady.outputs if name in pipeline.signals},
        windows=windows,
        carried=_carried(units, windows),
        flows={where: tuple(sorted(labels - slots_of(labels))) for where, labels in flows.items()},
        rate=pipeline.rate,
        sizes=sizes,
        unit_elements=sum(
            one.numel()
            for one in (*steady.outputs.values(), *(steady.after[path] for path in behind if path in steady.after))
            if isinstance(one, Tensor)
        ),
    )


def _windows(unit: UnitRun) -> dict[str, tuple[tuple[str, str, str], ...]]:
    """Return the windows that slid in a unit, each with the inputs of one slot that read it as it is."""
    found = {}
    for path, after in unit.after.items():
        if id(after) not in unit.slid:
            continue
        same = (unit.before[path], after)
        readers = [
            (*one.key, name)
            for one in unit.calls
            for name, value in one.inputs.items()
            if any(value is each for each in same)
        ]
        if readers:
            slot = readers[0][0]
            found[path] = tuple(dict.fromkeys(each for each in readers if each[0] == slot))
    return found


def _carried(units: Sequence[UnitRun], windows: Collection[str]) -> dict[str, dict[str, str]]:
    """Return the outputs that become state and that the same program takes as inputs, as they are, in the next unit.

    Only for programs that a unit calls once. Windows are left out.
    """
    unit, found = units[-1], {}
    calls = [one.key for one in unit.calls]
    for one in unit.calls:
        if calls.count(one.key) > 1:
            continue
        inputs = {}
        for path, after in unit.after.items():
            output = next((name for name, value in one.outputs.items() if value is after), None)
            taker = next((name for name, value in one.inputs.items() if value is unit.before.get(path)), None)
            if output is not None and taker is not None and path not in windows:
                inputs[output] = taker
        if inputs:
            found[str(one.key)] = inputs
    return found
