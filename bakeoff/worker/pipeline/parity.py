"""The first units of a loop: the files of their reference, as eager ran them in high precision, with eager's error in
dtypes; and whether those of a mix, each started from the reference's state, end near it.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace

import msgspec
from torch import Tensor

from bakeoff.models import resolve_component
from bakeoff.models.component import LEAST_SQNR_DB, Component, Quantisation, TensorSpec
from bakeoff.models.errors import BakeoffError
from bakeoff.models.pipelines import load_pipeline
from bakeoff.models.pipelines.pipeline import OPENING, Loop, Pipeline, Program
from bakeoff.process.jobs import LoopSubject, Subject, floor_file
from bakeoff.record.pipeline import LoopParity, UnitParity
from bakeoff.record.schema import OutputParity
from bakeoff.worker.failures import call_stage
from bakeoff.worker.pipeline.runner import LoopRunner
from bakeoff.worker.reference.error import difference, not_comparable, worst
from bakeoff.worker.reference.files import ReferenceFiles
from bakeoff.worker.reference.sensitivity import told_apart

ABOUT = "loop.json"
_STATE = "state."
"""Before the name of a value of the state; outputs have their own names."""


@dataclass(frozen=True, slots=True)
class LoopAbout:
    """Facts that a loop's reference was made from. Written last."""

    reference: str
    """Id: the name of the folder."""
    dtype: str
    """Dtype in which eager computed it."""
    device: str
    units: int
    weights: dict[str, str]
    """`slot.program` to the fingerprint of its weights."""
    sensitivity: dict[str, float]
    """Output to the least relative L2 between two units next to each other; without outputs of another shape in each
    unit."""


Noise = dict[str, dict[str, float]]
"""Error of an eager loop in one combination of dtypes, each unit started from the reference's state: its number to
relative L2 by name, as in the unit's file."""


def unit_file(unit: int) -> str:
    """Return the file of a unit without its ending; of the opened session's state for `OPENING`."""
    return "opened" if unit == OPENING else f"unit{unit}"


@dataclass(frozen=True, slots=True)
class LoopFiles:
    """Reads a loop's reference. Everything raises BakeoffError where a file is not as it was hashed."""

    files: ReferenceFiles

    def about(self) -> LoopAbout:
        about: LoopAbout = msgspec.json.decode(self.files.read(ABOUT), type=LoopAbout)
        return about

    def floor(self, dtypes: Mapping[str, str]) -> Noise:
        floor: Noise = msgspec.json.decode(self.files.read(floor_file(dtypes)), type=Noise)
        return floor

    def unit(self, unit: int) -> dict[str, Tensor]:
        """Outputs of a unit by name, and its new state as `state.NAME`."""
        return self.files.outputs(unit_file(unit))

    def state_before(self, unit: int) -> dict[str, Tensor]:
        """Return the state that a unit starts from, by name."""
        found = self.unit(unit - 1 if unit else OPENING)
        return {name.removeprefix(_STATE): value for name, value in found.items() if name.startswith(_STATE)}


class LoopCheck:
    """The reference of a loop with the limits of a mix. What all limits follow from is read when it is made, before any
    code of the mix runs."""

    def __init__(
        self,
        loop: Loop,
        files: LoopFiles,
        dtypes: Mapping[str, str],
        quantised: Mapping[str, Quantisation],
    ) -> None:
        """`dtypes` and `quantised` are by slot, the latter without slots in full precision."""
        self._loop, self._files, self._quantised = loop, files, dict(quantised)
        self._about = files.about()
        self._noise = files.floor(dtypes)
        self._components = {slot.name: resolve_component(slot.component) for slot in loop.slots}
        self._signals = {output.name: output.signal for output in loop.outputs}
        self._slots = {output.name: output.slots for output in loop.outputs}
        self._slots |= {f"{_STATE}{path}": slots for path, slots in loop.state.items()}

    def check_weights(self, weights: Mapping[str, str]) -> None:
        """Raises BakeoffError where a program, `slot.program`, was made from other weights than the reference."""
        differing = [name for name, found in weights.items() if self._about.weights.get(name) != found]
        if differing:
            raise BakeoffError(
                f"The loop's reference {self._about.reference} was made from other weights than {differing[0]}. "
                f"Run the pipeline again.",
                code="bad-checkpoint",
            )

    def compare(self, runner: LoopRunner) -> LoopParity:
        """Run the reference's units from its states; the runner has no session afterwards.

        Raises StageError where a program fails.
        """
        found = []
        steps = first_units(runner, self._about.units, self._files.state_before)
        while (step := call_stage(lambda: next(steps, None))) is not None:
            unit, values = step
            reference = self._files.unit(unit)
            entries = []
            for name in sorted(reference, key=self._position):
                wanted = reference[name]
                spec = TensorSpec(name, tuple(wanted.shape), signal=self._signals.get(name, ""))
                value = values.get(name)
                entry = not_comparable("missing") if value is None else difference(value, wanted, value.dtype)
                where = "after opening" if unit == OPENING else f"unit {unit}"
                slots = self._slots.get(name, ())
                limit = self.limit(self._noise[str(unit)][name], slots)
                entries.append(self._with_sensitivity(worst(spec, [replace(entry, where=where)], limit)))
            found.append(UnitParity(unit, tuple(entries)))
        widened = {slot: str(quantisation) for slot, quantisation in self._quantised.items()}
        return LoopParity(self._about.reference, self._about.dtype, tuple(found), widened)

    def _position(self, name: str) -> tuple[int, str]:
        """Outputs come first, in the loop's order: a wrong output says more than the state that follows from it."""
        names = list(self._signals)
        return (names.index(name), "") if name in names else (len(names), name)

    def limit(self, noise: float, slots: Collection[str]) -> float:
        """Twice eager's own error, or the tolerance of the slots that had a part in the value. Errors of several
        quantised slots add up."""
        allowed = sum(10 ** (-LEAST_SQNR_DB[self._quantised[slot]] / 20) for slot in slots if slot in self._quantised)
        return max(2 * noise, largest_tolerance(self._components, slots), allowed)

    def _with_sensitivity(self, output: OutputParity) -> OutputParity:
        return told_apart(replace(output, sensitivity=self._about.sensitivity.get(output.name)))


def worse_of(one: LoopParity, other: LoopParity) -> LoopParity:
    """The same reference compared twice: of each value the worse result."""
    units = [
        UnitParity(a.unit, tuple(max(pair, key=_excess) for pair in zip(a.outputs, b.outputs, strict=True)))
        for a, b in zip(one.units, other.units, strict=True)
    ]
    return replace(one, units=tuple(units))


def for_record(parity: LoopParity) -> LoopParity:
    """All outputs, and of each unit's state only the value that is nearest to its limit, or furthest beyond it."""
    units = []
    for unit in parity.units:
        state = [output for output in unit.outputs if output.name.startswith(_STATE)]
        outputs = [output for output in unit.outputs if not output.name.startswith(_STATE)]
        units.append(UnitParity(unit.unit, (*outputs, *([max(state, key=_excess)] if state else []))))
    return replace(parity, units=tuple(units))


def first_problem(parity: LoopParity) -> str:
    """Return why the parity is not passed; "" if it is."""
    return next((output.problem for unit in parity.units for output in unit.outputs if not output.passed), "")


def _excess(output: OutputParity) -> tuple[bool, float]:
    error = float("inf") if output.rel_l2 is None else output.rel_l2
    return not output.passed, error / output.limit


def pipeline_of(subject: LoopSubject) -> Pipeline:
    """Return the subject's pipeline. Raises BakeoffError where it is gone, or no longer has the preset or an option."""
    loop = subject.loop
    cls = load_pipeline(loop.reference)
    return cls(cls.preset_of(loop.preset, subject.device), cls.options_of(loop.options))


def program_subject(subject: LoopSubject, program: Program) -> Subject:
    """Return the program as a subject of its own, with the weights of the loop."""
    slot = subject.loop.slot(program.slot)
    return Subject(
        slot.component,
        slot.preset,
        program.workload,
        program.batch,
        subject.weight_seed,
        subject.input_seed,
        subject.checkpoints.get(slot.name, ""),
        subject.device,
        subject.threads,
    )


def calls_of_first(loop: Loop, units: int) -> dict[tuple[str, str], int]:
    """(slot, program) to its calls in the opening of a session and its first units."""
    found: dict[tuple[str, str], int] = {}
    for number in range(OPENING, units):
        for call in loop.of(number).calls:
            found[call.slot, call.program] = found.get((call.slot, call.program), 0) + 1
    return found


def largest_tolerance(components: Mapping[str, Component], slots: Collection[str]) -> float:
    """Return the largest fp32 tolerance of these slots; of all slots where a value depends on none."""
    return max(components[name].tolerance_fp32 for name in (slots or components))


StateBefore = Callable[[int], Mapping[str, Tensor]]


def first_units(
    runner: LoopRunner, units: int, state_before: StateBefore | None = None
) -> Iterator[tuple[int, dict[str, Tensor]]]:
    """Open session 0 and run its first units; yields each unit's number with its outputs by name and its new state as
    `state.NAME`, first the state that the opening made, as unit `OPENING`.

    Each unit starts from `state_before(unit)`, or without it from what the unit before made. The tensors are valid
    until the next one is asked for. The session after it has number 0 too, so that it is given the same values.
    """
    runner.session = OPENING
    runner.open()
    yield OPENING, _state(runner)
    for unit in range(units):
        if state_before is not None:
            runner.set_state(state_before(unit), unit)
        runner.unit()
        yield unit, {**runner.values(), **_state(runner)}
    runner.session = OPENING


def _state(runner: LoopRunner) -> dict[str, Tensor]:
    return {f"{_STATE}{name}": value for name, value in runner.state().items()}
