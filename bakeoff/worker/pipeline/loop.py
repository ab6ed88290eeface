"""What a worker reads from a loop: its programs as subjects of their own, and which slots a value depends on."""

from collections.abc import Callable, Iterator, Mapping

from torch import Tensor

from bakeoff.models.component import Component
from bakeoff.models.pipelines import resolve_pipeline
from bakeoff.models.pipelines.pipeline import Call, Loop, Operation, Program, made_by, read_by
from bakeoff.process.jobs import LoopSubject, Subject
from bakeoff.variant import options_of
from bakeoff.worker.pipeline.files import OPENED, STATE
from bakeoff.worker.pipeline.runner import LoopRunner


def loop_of(subject: LoopSubject) -> Loop:
    """The subject's loop. Raises BakeoffError where the pipeline, the preset or an option does not exist."""
    pipeline = resolve_pipeline(subject.pipeline)
    return pipeline.loop(pipeline.preset(subject.preset), options_of(pipeline, subject.options))


def program_subject(loop: Loop, subject: LoopSubject, program: Program) -> Subject:
    """The program as a subject of its own, with the weights of the loop."""
    slot = next(slot for slot in loop.slots if slot.name == program.slot)
    return Subject(
        slot.component,
        loop.presets[slot.name],
        program.workload,
        program.batch,
        subject.weight_seed,
        subject.input_seed,
        subject.checkpoints.get(slot.name, ""),
        subject.device,
        subject.threads,
    )


def slots_behind(loop: Loop, unit: int) -> dict[str, frozenset[str]]:
    """Value to the slots whose programs had a part in it, after a unit that starts from a given state.

    Values that the opening of a session made and that are not in the state count too; unit -1 is the opening itself.
    """
    opened = _walk(loop.opened, {})
    if unit < 0:
        return opened
    return _walk(loop.operations(unit), {name: slots for name, slots in opened.items() if name not in loop.state})


def _walk(operations: tuple[Operation, ...], known: dict[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    for op in operations:
        slots = frozenset[str]().union(*(known.get(name, frozenset()) for name in read_by(op)))
        if isinstance(op, Call):
            slots |= {op.slot}
        known.update(dict.fromkeys(made_by(op), slots))
    return known


def calls_of_first(loop: Loop, units: int) -> dict[tuple[str, str], int]:
    """(slot, program) to its calls in the opening of a session and its first units."""
    found: dict[tuple[str, str], int] = {}
    for operations in (loop.opened, *(loop.operations(unit) for unit in range(units))):
        for op in operations:
            if isinstance(op, Call):
                found[op.slot, op.program] = found.get((op.slot, op.program), 0) + 1
    return found


def largest_tolerance(components: dict[str, Component], slots: frozenset[str]) -> float:
    """The largest fp32 tolerance of these slots; of all slots where a value depends on none."""
    return max(components[name].tolerance_fp32 for name in (slots or components))


StateBefore = Callable[[int], Mapping[str, Tensor]]


def first_units(
    runner: LoopRunner, loop: Loop, units: int, state_before: StateBefore | None = None
) -> Iterator[tuple[int, dict[str, Tensor]]]:
    """Open session 0 and run its first units; yields each unit's number with its outputs by name and its new state as
    `state.NAME`, first the state that the opening made, as unit `OPENED`.

    Each unit starts from `state_before(unit)`, or without it from what the unit before made. The tensors are valid
    until the next one is asked for. The session after it has number 0 too, so that it is given the same values.
    """
    runner.session = OPENED
    runner.open()
    yield OPENED, _state(runner)
    for unit in range(units):
        if state_before is not None:
            runner.set_state(state_before(unit), unit)
        runner.unit()
        yield unit, {**runner.values(output.name for output in loop.outputs), **_state(runner)}
    runner.session = OPENED


def _state(runner: LoopRunner) -> dict[str, Tensor]:
    return {f"{STATE}{name}": value for name, value in runner.state().items()}
