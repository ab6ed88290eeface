"""Checks the first units of a mix's loop: each starts from the reference's state and must end near the reference."""

from collections.abc import Mapping
from dataclasses import replace

from bakeoff.models import resolve_component
from bakeoff.models.component import LEAST_SQNR_DB, Quantisation, TensorSpec
from bakeoff.models.errors import BakeoffError
from bakeoff.models.pipelines.pipeline import Loop
from bakeoff.record.pipeline import LoopParity, UnitParity
from bakeoff.record.schema import OutputParity
from bakeoff.worker.failures import call_stage
from bakeoff.worker.pipeline.files import OPENED, STATE, LoopFiles
from bakeoff.worker.pipeline.loop import first_units, largest_tolerance, slots_behind
from bakeoff.worker.pipeline.runner import LoopRunner
from bakeoff.worker.reference.error import difference, not_comparable, worst
from bakeoff.worker.reference.sensitivity import told_apart


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
        self._noise = files.floor(loop, dtypes).noise
        self._components = {slot.name: resolve_component(slot.component) for slot in loop.slots}
        self._signals = {output.name: output.signal for output in loop.outputs}

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
        steps = first_units(runner, self._loop, self._about.units, self._files.state_before)
        while (step := call_stage(lambda: next(steps, None))) is not None:
            unit, values = step
            reference = self._files.unit(unit)
            behind = slots_behind(self._loop, unit)
            entries = []
            for name in sorted(reference, key=self._position):
                wanted = reference[name]
                spec = TensorSpec(name, tuple(wanted.shape), signal=self._signals.get(name, ""))
                value = values.get(name)
                entry = not_comparable("missing") if value is None else difference(value, wanted, value.dtype)
                where = "after opening" if unit == OPENED else f"unit {unit}"
                slots = behind.get(name.removeprefix(STATE), frozenset())
                limit = self.limit(self._noise[str(unit)][name], slots)
                entries.append(self._with_sensitivity(worst(spec, [replace(entry, where=where)], limit)))
            found.append(UnitParity(unit, tuple(entries)))
        widened = {slot: str(quantisation) for slot, quantisation in self._quantised.items()}
        return LoopParity(self._about.reference, self._about.dtype, tuple(found), widened)

    def _position(self, name: str) -> tuple[int, str]:
        """Outputs come first, in the loop's order: a wrong output says more than the state that follows from it."""
        names = list(self._signals)
        return (names.index(name), "") if name in names else (len(names), name)

    def limit(self, noise: float, slots: frozenset[str]) -> float:
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
        state = [output for output in unit.outputs if output.name.startswith(STATE)]
        outputs = [output for output in unit.outputs if not output.name.startswith(STATE)]
        units.append(UnitParity(unit.unit, (*outputs, *([max(state, key=_excess)] if state else []))))
    return replace(parity, units=tuple(units))


def first_problem(parity: LoopParity) -> str:
    """Why the parity is not passed; "" if it is."""
    return next((output.problem for unit in parity.units for output in unit.outputs if not output.passed), "")


def _excess(output: OutputParity) -> tuple[bool, float]:
    error = float("inf") if output.rel_l2 is None else output.rel_l2
    return not output.passed, error / output.limit
