"""Compares outputs with references, read from their folder when needed, by the limits of a variant's dtype."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import Tensor

from bakeoff.models.component import Quantisation
from bakeoff.models.errors import BakeoffError, a_type
from bakeoff.models.words import counted
from bakeoff.record.regimes import Regime
from bakeoff.record.schema import OutputParity, Parity
from bakeoff.worker.checks.outputs import OutputWatch, digest
from bakeoff.worker.reference.error import Difference, difference, expected_dtype, limits, not_comparable, worst
from bakeoff.worker.reference.files import ReferenceFiles, set_name, sized_name
from bakeoff.worker.reference.regimes import regime_differences, regime_file
from bakeoff.worker.reference.sensitivity import with_sensitivity
from bakeoff.worker.subject import SIZED_SETS, LoadedSubject

_ROUNDING = 1e-6
"""Relative L2 error that is too small for int8 or fp8: quantising one layer's weights alone gives 1e-3 or more."""


class Reference:
    """The reference outputs of one subject, and the limits of one dtype and class of quantisation."""

    def __init__(
        self, files: ReferenceFiles, loaded: LoadedSubject, dtype: str, quantisation: Quantisation = ""
    ) -> None:
        """Read how the references were made and the limits; the outputs themselves are read when they are needed.

        Raises BakeoffError if the references were made from other weights, or a file was changed.
        """
        self._files = files
        self._about = files.about()
        if self._about.weights != loaded.weights:
            raise BakeoffError(
                f"The reference {self._about.reference} was made from other weights. Run the sweep again.",
                code="bad-checkpoint",
            )
        self.changes = self._about.changes
        """Factor by which the values were scaled of each set, from the first, that has references for changed ones."""
        self.regimes = self._about.regimes
        """Regimes that have references."""
        self._loaded = loaded
        self._specs = loaded.workload.outputs
        self._dtype = dtype
        self._quantisation = quantisation
        eager = files.eager(dtype)
        self.eager = eager.runs
        self._digests: Mapping[str, Sequence[str]] = eager.digests
        self._noise: Mapping[str, float] = eager.noise
        self.unmeasured = eager.unmeasured
        """Reason why eager's error gives no limit for some outputs in this dtype; "" if it gives a limit for all."""
        self.not_survived = eager.not_survived
        """Reason why the model computes another function in this dtype, and the remedy; "" if it does not."""
        self.eager_size_ns = eager.size_ns
        """Nanoseconds of an eager call at the usual size and at each other size."""
        tolerance = loaded.component.tolerance_fp32
        self._limits = limits(self._specs, eager.noise, tolerance, dtype, quantisation)
        self._size_limits = [limits(self._specs, noise, tolerance, dtype, quantisation) for noise in eager.size_noise]
        self._regime_noise = eager.regime_noise

    def watch(self) -> OutputWatch:
        """Return a check of outputs against all references, cheap enough to run between timed calls."""
        references = (self._files.outputs(set_name(index)) for index in range(self._about.sets))
        return OutputWatch(self._specs, references, self._limits)

    def differences(self, index: int, outputs: object, when: str = "") -> list[Difference]:
        """Compare each output of set `index` with its reference; messages about a wrong output end with `when`."""
        return self._compared(set_name(index), outputs, f"inputs {index}", when)

    def changed_differences(self, index: int, outputs: object, when: str = "") -> list[Difference]:
        """Compare each output for the changed values of set `index`, one of `changes`, with its reference."""
        return self._compared(set_name(index, changed=True), outputs, f"changed inputs {index}", when)

    def size_parity(self, size: int, calls: Sequence[object]) -> list[OutputParity]:
        """Return the parity of each output at one of the workload's sizes; `calls` are the outputs of its sets."""
        rounds = [
            self._compared(sized_name(size, index % SIZED_SETS), outputs, f"inputs {index % SIZED_SETS}", "")
            for index, outputs in enumerate(calls)
        ]
        return [
            worst(spec, [entries[position] for entries in rounds], self._size_limits[size][spec.name])
            for position, spec in enumerate(self._specs)
        ]

    def regime(self, name: str, outputs: Sequence[Tensor] | None, problem: str = "") -> Regime:
        """Compare the outputs in one of `regimes`, of which None stands for a call that failed with `problem`."""
        noise = self._regime_noise.get(name, {})
        if outputs is None:
            found = {spec.name: not_comparable(problem) for spec in self._specs if spec.floating}
        else:
            wanted = self._files.outputs(regime_file(name))
            found = regime_differences(self._loaded, name, outputs, wanted, self._dtype)
        own = limits(self._specs, noise, 0.0, self._dtype, self._quantisation)
        bounds = {output: max(own[output], self._limits[output]) for output in noise}
        nearest = max(found, key=lambda output: found[output].rel_l2 / bounds.get(output, 1.0))
        entry = found[nearest]
        return Regime(
            name,
            entry.rel_l2 if math.isfinite(entry.rel_l2) else None,
            noise.get(nearest),
            bounds.get(nearest),
            not self._quantisation,
            f"{nearest}: {entry.problem}" if entry.problem else "",
        )

    def _compared(self, name: str, outputs: object, which: str, when: str) -> list[Difference]:
        where = f"{which}{', ' if when else ''}{when}"
        try:
            reference = self._files.outputs(name)
        except BakeoffError as error:  # changed by code of the variant, which ran since the limits were read
            return [replace(not_comparable(str(error)), where=where) for _ in self._specs]
        return [replace(entry, where=where) for entry in self._each(name, reference, outputs)]

    def _each(self, name: str, reference: Mapping[str, Tensor], outputs: object) -> list[Difference]:
        if not isinstance(outputs, tuple | list) or len(outputs) != len(self._specs):
            found = counted(len(outputs), "output") if isinstance(outputs, tuple | list) else a_type(type(outputs))
            problem = f"a call returned {found}, the workload has {counted(len(self._specs), 'output')}"
            return [not_comparable(problem) for _ in self._specs]
        entries = [
            difference(output, reference[spec.name], expected_dtype(spec, self._dtype))
            for spec, output in zip(self._specs, outputs, strict=True)
        ]
        if self._about.own_change is not None and name == set_name(0, changed=True):
            return [replace(entry, lossless=True) for entry in entries]  # eager's are unknown: they decide nothing
        digests = self._digests.get(name, [""] * len(entries))
        return [
            replace(entry, lossless=type(output) is Tensor and digest(output) == eager) if eager else entry
            for entry, output, eager in zip(entries, outputs, digests, strict=True)
        ]

    def as_exact_as_eager(self, parity: Parity) -> bool:
        """Return whether every output's error is at most twice eager's own, which no quantised variant reaches."""
        return all(
            output.rel_l2 is not None and output.rel_l2 <= max(2 * self._noise[output.name], _ROUNDING)
            for output in parity.outputs
            if output.name in self._noise
        )

    def parity(self, rounds: Sequence[Sequence[Difference]]) -> Parity:
        """Return the parity over all `rounds`, each with a difference by output; the worst decides for each output."""
        outputs: list[OutputParity] = [
            worst(spec, [entries[position] for entries in rounds], self._limits[spec.name])
            for position, spec in enumerate(self._specs)
        ]
        return Parity(
            reference=self._about.reference,
            reference_dtype=self._about.dtype,
            reference_device=self._about.device,
            sets=self._about.sets,
            own_change=self._about.own_change,
            outputs=with_sensitivity(outputs, self._about),
        )
