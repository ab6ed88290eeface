"""What makes a loop wrong, found without running it: from its operations and from the specs of its components."""

from bakeoff.models import resolve_component
from bakeoff.models.component import Workload
from bakeoff.models.errors import BakeoffError
from bakeoff.models.pipelines.pipeline import Call, Loop, Operation, Shift, made_by, read_by

Key = tuple[str, str]
Shape = tuple[int, ...]


def check_loop(loop: Loop) -> None:
    """Raises BakeoffError, code bad-config, for the first of these that is found.

    - A program of an unknown slot, component, preset or workload; a call of what is not a program.
    - A call that does not name exactly the inputs of its workload, or an output that the workload lacks.
    - A value that is read before anything made it, or after the next call of the program that made it.
    - A value whose shape is known, from a given value or a call, and differs from the input's that takes it; a window
      that is longer than what it gets allows.
    - A state or an output that a unit does not have at its end.
    """
    workloads = _workloads(loop)
    for op in loop.all_operations():
        if isinstance(op, Call):
            _check_names(op, workloads)
    values = _Values(loop, workloads)
    values.run(loop.opened, "the opening of a session")
    for index, operations in enumerate(loop.opening):
        values.run_unit(operations, f"opening unit {index}")
    # Twice, since the second steady unit reads what the first one made.
    values.run_unit(loop.steady, "a steady unit")
    values.run_unit(loop.steady, "a steady unit")


def _workloads(loop: Loop) -> dict[Key, Workload]:
    components = {slot.name: slot.component for slot in loop.slots}
    found = {}
    for program in loop.programs:
        if program.slot not in components:
            raise _wrong(f"program {program.workload} is of slot {program.slot}, which the loop lacks")
        component = resolve_component(components[program.slot])
        config = component.preset(loop.presets[program.slot]).config
        found[program.slot, program.workload] = component.workload(config, program.workload, program.batch)
    return found


def _check_names(call: Call, workloads: dict[Key, Workload]) -> None:
    name = f"{call.slot}.{call.program}"
    if (call.slot, call.program) not in workloads:
        raise _wrong(f"{name} is called but not a program")
    workload = workloads[call.slot, call.program]
    wanted = {spec.name for spec in workload.inputs}
    if missing := wanted - set(call.inputs):
        raise _wrong(f"a call of {name} lacks its input {min(missing)}")
    unknown = set(call.inputs) - wanted | set(call.outputs) - {spec.name for spec in workload.outputs}
    if unknown:
        raise _wrong(f"a call of {name} names {min(unknown)}, which is neither an input nor an output of it")


class _Values:
    """Which values there are, of which shape, and by which call of a program, as the operations run."""

    def __init__(self, loop: Loop, workloads: dict[Key, Workload]) -> None:
        self._loop, self._workloads = loop, workloads
        self._windows = {op.window for op in loop.all_operations() if isinstance(op, Shift)}
        self._shapes: dict[str, Shape | None] = {given.name: given.shape for given in loop.given}
        """None: made by glue, not known."""
        self._calls: dict[Key, int] = {}
        self._made_by: dict[str, tuple[Key, int]] = {}

    def run_unit(self, operations: tuple[Operation, ...], where: str) -> None:
        self.run(operations, where)
        for name in (*self._loop.state, *(output.name for output in self._loop.outputs)):
            self._check_valid(name, f"the end of {where}")

    def run(self, operations: tuple[Operation, ...], where: str) -> None:
        for op in operations:
            for name in read_by(op):
                self._check_valid(name, where)
            if isinstance(op, Call):
                self._call(op)
                continue
            if isinstance(op, Shift):
                self._check_shift(op)
                continue
            for name in made_by(op):
                if name not in self._windows:
                    self._shapes[name] = None
                self._shapes.setdefault(name, None)
                self._made_by.pop(name, None)

    def _check_valid(self, name: str, where: str) -> None:
        if name not in self._shapes:
            raise _wrong(f"{where} reads {name}, which nothing made before")
        key, number = self._made_by.get(name, (("", ""), 0))
        if number != self._calls.get(key, 0):
            raise _wrong(f"{where} reads {name} after the next call of {'.'.join(key)}, which overwrites it")

    def _call(self, call: Call) -> None:
        key = call.slot, call.program
        workload = self._workloads[key]
        for spec in workload.inputs:
            value = call.inputs[spec.name]
            shape = self._shapes[value]
            if shape is not None and shape != spec.shape:
                raise _wrong(f"{'.'.join(key)} takes {spec.name} of shape {spec.shape}; {value} has {shape}")
            if value in self._windows:
                self._shapes[value] = spec.shape
        self._calls[key] = self._calls.get(key, 0) + 1
        shapes = {spec.name: spec.shape for spec in workload.outputs}
        for output, value in call.outputs.items():
            self._shapes[value] = shapes[output]
            if value not in self._windows:
                self._made_by[value] = key, self._calls[key]

    def _check_shift(self, op: Shift) -> None:
        window, new = self._shapes[op.window], self._shapes[op.new]
        if window is None or new is None:
            return
        fits = len(window) == len(new) and op.axis < len(window) and new[op.axis] <= window[op.axis]
        if not fits or _without(window, op.axis) != _without(new, op.axis):
            raise _wrong(f"window {op.window} of shape {window} cannot take {op.new} of shape {new}, axis {op.axis}")


def _without(shape: Shape, axis: int) -> Shape:
    return shape[:axis] + shape[axis + 1 :]


def _wrong(problem: str) -> BakeoffError:
    return BakeoffError(f"pipeline: {problem}", code="bad-config")
