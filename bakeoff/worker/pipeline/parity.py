"""Compares the first units of a mix's loop with a reference, and reads the reference's files.

The reference is the loop run by eager in high precision, with eager's own error in the dtypes of mixes. Each unit of a
mix starts from the reference's state, and must end near the reference's outputs and new state.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
from torch import Tensor

from bakeoff.models import resolve_component
from bakeoff.models.component import LEAST_SQNR_DB, Component, Quantisation, TensorSpec
from bakeoff.models.errors import BakeoffError
from bakeoff.models.pipelines import load_pipeline
from bakeoff.models.pipelines.pipeline import OPENING, Key, Loop, Pipeline
from bakeoff.process.jobs import LoopSubject, Subject, floor_file
from bakeoff.record.pipeline import Curve, LoopParity, UnitParity
from bakeoff.record.schema import OutputParity
from bakeoff.worker.failures import call_stage
from bakeoff.worker.pipeline.runner import LoopRunner
from bakeoff.worker.reference.error import Difference, difference, not_comparable, worst
from bakeoff.worker.reference.files import ReferenceFiles
from bakeoff.worker.reference.sensitivity import told_apart

ABOUT = "loop.json"
STATE = "state."
"""Prefix of the names of state values in a unit's file; outputs have their own names."""


@dataclass(frozen=True, slots=True)
class LoopAbout:
    """Facts about a loop's reference. Their file is written last, when all others are complete."""

    reference: str
    """Id of the reference: the name of its folder."""
    dtype: str
    """Dtype in which eager computed the reference."""
    device: str
    units: int
    weights: dict[str, str]
    """`slot.program` to the fingerprint of its weights."""
    sensitivity: dict[str, float]
    """Output to the smallest relative L2 between consecutive units in which it has the same shape. Outputs without such
    units, or that never change, are left out."""


Noise = dict[str, dict[str, float]]
"""Error of the eager loop in one combination of dtypes, each unit started from the reference's state: unit number to
relative L2 by name, with the names of the unit's file."""


def unit_file(unit: int) -> str:
    """Return the name of a unit's file without its suffix; for `OPENING`, that of the opened session's state."""
    return "opened" if unit == OPENING else f"unit{unit}"


StateBefore = Callable[[int], Mapping[str, Tensor] | None]
Begin = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class LoopFiles:
    """Reads the files of a loop's reference. All methods raise BakeoffError if a file does not match its hash."""

    files: ReferenceFiles

    def about(self) -> LoopAbout:
        about: LoopAbout = msgspec.json.decode(self.files.read(ABOUT), type=LoopAbout)
        return about

    def floor(self, dtypes: Mapping[str, str]) -> Noise:
        floor: Noise = msgspec.json.decode(self.files.read(floor_file(dtypes)), type=Noise)
        return floor

    def free(self, dtypes: Mapping[str, str]) -> tuple[Curve, ...]:
        """Return the curves of the equivalents of eager that run free."""
        curves: tuple[Curve, ...] = msgspec.json.decode(
            self.files.read(floor_file(dtypes, free=True)), type=tuple[Curve, ...]
        )
        return curves

    def unit(self, unit: int) -> dict[str, Tensor]:
        """Return the outputs of a unit by name, and its new state as `state.NAME`."""
        return self.files.outputs(unit_file(unit))

    def state_before(self, unit: int) -> dict[str, Tensor]:
        """Return the state that a unit starts from, by name."""
        found = self.unit(unit - 1 if unit else OPENING)
        return {name.removeprefix(STATE): value for name, value in found.items() if name.startswith(STATE)}


class LoopCheck:
    """Compares a mix's loop with its reference, within limits.

    The facts that all limits follow from are read at construction, before any code of the mix runs.
    """

    def __init__(
        self,
        loop: Loop,
        files: LoopFiles,
        dtypes: Mapping[str, str],
        quantised: Mapping[str, Quantisation],
    ) -> None:
        """`dtypes` and `quantised` have slots as keys; slots in full precision are not in `quantised`."""
        self._loop, self.files, self._quantised = loop, files, dict(quantised)
        self._about = files.about()
        self._noise = files.floor(dtypes)
        self._components = {slot.name: resolve_component(slot.component) for slot in loop.slots}
        self._slots = loop.outputs | {f"{STATE}{path}": slots for path, slots in loop.state.items()}

    def check_weights(self, weights: Mapping[str, str]) -> None:
        """Raise BakeoffError if a program was made from other weights than the reference.

        `weights` maps `slot.program` to the fingerprint of its weights.
        """
        differing = [name for name, found in weights.items() if self._about.weights.get(name) != found]
        if differing:
            raise BakeoffError(
                f"The loop's reference {self._about.reference} was made from other weights than {differing[0]}. "
                f"Run the pipeline again.",
                code="bad-checkpoint",
            )

    def compare(self, runner: LoopRunner, begin: Begin | None = None) -> LoopParity:
        """Run each of the reference's units from the reference's state; return the errors of its outputs and new state.

        `begin` is that of `first_units`. The runner has no open session afterwards. Raises StageError if a program
        fails.
        """
        found = []
        steps = first_units(runner, self._about.units, self.files.state_before, begin)
        while (step := call_stage(lambda: next(steps, None))) is not None:
            found.append(self.judge(*step))
        return self.parity(found)

    def parity(self, units: Sequence[UnitParity]) -> LoopParity:
        return LoopParity(self._about.reference, self._about.dtype, tuple(units))

    @property
    def units(self) -> int:
        """Number of units of the reference."""
        return self._about.units

    def judge(self, unit: int, values: Mapping[str, Tensor]) -> UnitParity:
        """Return the errors of the outputs and new state of a unit that started from the reference's state."""
        reference, entries = self.files.unit(unit), []
        where = "after opening" if unit == OPENING else f"unit {unit}"
        # outputs first, in the loop's order: a wrong one says more than the state that follows from it
        outputs = [name for name in self._loop.outputs if name in reference]
        for name in (*outputs, *sorted(reference.keys() - {*outputs})):
            wanted = reference[name]
            spec = TensorSpec(name, tuple(wanted.shape), signal=self._loop.signals.get(name, ""))
            entry = replace(compared(values.get(name), wanted), where=where)
            limit = self.limit(self._noise[str(unit)][name], self._slots.get(name, ()))
            output = replace(worst(spec, [entry], limit), sensitivity=self._about.sensitivity.get(name))
            entries.append(told_apart(output))
        return UnitParity(unit, tuple(entries))

    def limit(self, noise: float, slots: Collection[str]) -> float:
        """Return the limit of a value: the larger of twice eager's own error (`noise`) and what its slots allow.

        The slots that contributed to the value allow the larger of their largest fp32 tolerance and the sum of what
        their quantisations allow.
        """
        allowed = sum(10 ** (-LEAST_SQNR_DB[self._quantised[slot]] / 20) for slot in slots if slot in self._quantised)
        return max(2 * noise, largest_tolerance(self._components, slots), allowed)


def compared(value: Tensor | None, wanted: Tensor) -> Difference:
    """Return the difference of a value of a unit, None if the unit lacks it, from the reference's."""
    return not_comparable("missing") if value is None else difference(value, wanted, value.dtype)


def worse_of(one: LoopParity, other: LoopParity) -> LoopParity:
    """Merge two comparisons with the same reference: keep the worse result of each value."""
    units = [
        UnitParity(a.unit, tuple(max(pair, key=_excess) for pair in zip(a.outputs, b.outputs, strict=True)))
        for a, b in zip(one.units, other.units, strict=True)
    ]
    return replace(one, units=tuple(units))


def for_record(parity: LoopParity) -> LoopParity:
    """Return the parity with all outputs, and of each unit's state the one value nearest to or most above its limit."""
    units = []
    for unit in parity.units:
        state = [output for output in unit.outputs if output.name.startswith(STATE)]
        outputs = [output for output in unit.outputs if not output.name.startswith(STATE)]
        units.append(UnitParity(unit.unit, (*outputs, *([max(state, key=_excess)] if state else []))))
    return replace(parity, units=tuple(units))


def first_problem(parity: LoopParity) -> str:
    """Return the first problem of the parity; "" if it has passed."""
    return next((output.problem for unit in parity.units for output in unit.outputs if not output.passed), "")


def _excess(output: OutputParity) -> tuple[bool, float]:
    return not output.passed, output.of_limit


def pipeline_of(subject: LoopSubject) -> Pipeline:
    """Return the subject's pipeline. Raises BakeoffError if it is gone, or no longer has the preset or an option."""
    loop = subject.loop
    cls = load_pipeline(loop.reference)
    return cls(cls.preset_of(loop.preset, subject.device), cls.options_of(loop.options))


def program_subject(subject: LoopSubject, key: Key) -> Subject:
    """Return the subject to load for one of the loop's programs, with the weights of the loop."""
    slot = subject.loop.slot(key.slot)
    return Subject(
        slot.component,
        slot.preset,
        key.program,
        slot.batch,
        subject.weight_seed,
        subject.input_seed,
        subject.checkpoints.get(slot.name, ""),
        subject.device,
        subject.threads,
    )


def calls_of_first(loop: Loop, units: int) -> Counter[Key]:
    """Count the calls of each program in the opening of a session and its first units."""
    return Counter(call.key for number in range(OPENING, units) for call in loop.of(number).calls)


def largest_tolerance(components: Mapping[str, Component], slots: Collection[str]) -> float:
    """Return the largest fp32 tolerance of the components of these slots; of all components if there are no slots."""
    return max(components[name].tolerance_fp32 for name in (slots or components))


def first_units(
    runner: LoopRunner, units: int, state_before: StateBefore | None = None, begin: Begin | None = None
) -> Iterator[tuple[int, dict[str, Tensor]]]:
    """Open session 0 and run its first `units` units; yield each unit's number with its outputs and new state by name.

    State is named `state.NAME`. The state after the opening comes first, as unit `OPENING`. Each unit starts from
    `state_before(unit)`, or if that is None, from the state that the unit before made. `begin` is called with the
    number of each unit before it runs. The tensors are valid until the next unit is requested. The next session has
    number 0 again, so that it gets the same values.
    """
    runner.session = OPENING
    runner.open()
    yield OPENING, _state(runner)
    for unit in range(units):
        state = state_before(unit) if state_before is not None else None
        if state is not None:
            runner.set_state(state, unit)
        if begin is not None:
            begin(unit)
        runner.unit()
        yield unit, values_of(runner)
    runner.session = OPENING


def values_of(runner: LoopRunner) -> dict[str, Tensor]:
    """Return the outputs and the new state of the last unit, by the names of a unit's file."""
    runner.settle()
    return {**runner.outputs, **_state(runner)}


def _state(runner: LoopRunner) -> dict[str, Tensor]:
    return {f"{STATE}{name}": value for name, value in runner.state().items()}
