"""Reference outputs, read from their folder when a set is compared, and the limits of a variant's dtype."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bakeoff.models.component import Quantisation
from bakeoff.models.errors import BakeoffError
from bakeoff.record.schema import OutputParity, Parity
from bakeoff.worker.checks.outputs import OutputWatch
from bakeoff.worker.reference.error import Difference, difference, expected_dtype, limits, not_comparable, worst
from bakeoff.worker.reference.make import load_reference, read_about, read_eager
from bakeoff.worker.subject import LoadedSubject
from bakeoff.worker.torch_flags import TORCH_DTYPES

_ROUNDING = 1e-6
"""Relative L2 below what int8 or fp8 can reach: quantising one layer's weights alone gives 1e-3 or more."""


class Reference:
    """The reference outputs of one subject, and the limits of one dtype and class of quantisation."""

    def __init__(self, folder: Path, loaded: LoadedSubject, dtype: str, quantisation: Quantisation = "") -> None:
        """Read from `folder`, which a ReferenceJob filled. Raises BakeoffError when it was made from other weights."""
        self._folder = folder
        self._about = read_about(folder)
        if self._about["weights"] != loaded.weights:
            raise BakeoffError(
                f"The reference {folder.name} was made from other weights. Run the sweep again.", code="bad-checkpoint"
            )
        self._specs = loaded.workload.outputs
        self._dtype = TORCH_DTYPES[dtype]
        eager = read_eager(folder, dtype)
        self.eager = eager.runs
        self._noise: Mapping[str, float] = eager.noise
        self._limits = limits(self._specs, eager.noise, loaded.component.tolerance_fp32, quantisation)

    def watch(self) -> OutputWatch:
        """A check of outputs between timed calls, against all references."""
        references = (load_reference(self._folder, index) for index in range(int(self._about["sets"])))
        return OutputWatch(self._specs, references, self._limits)

    def differences(self, index: int, outputs: object, when: str = "") -> list[Difference]:
        """Each output of set `index` against its reference; `when` is added to the text about a wrong one."""
        where = f"inputs {index}{', ' if when else ''}{when}"
        return [replace(entry, where=where) for entry in self._compared(index, outputs)]

    def _compared(self, index: int, outputs: object) -> list[Difference]:
        reference = load_reference(self._folder, index)
        if not isinstance(outputs, tuple | list) or len(outputs) != len(self._specs):
            found = f"{len(outputs)} outputs" if isinstance(outputs, tuple | list) else f"a {type(outputs).__name__}"
            problem = f"a call returned {found}, the workload has {len(self._specs)} outputs"
            return [not_comparable(problem) for _ in self._specs]
        return [
            difference(output, reference[spec.name], expected_dtype(spec, self._dtype))
            for spec, output in zip(self._specs, outputs, strict=True)
        ]

    def as_exact_as_eager(self, parity: Parity) -> bool:
        """Whether every output's error is within twice eager's own rounding error, which quantised outputs exceed."""
        return all(
            output.rel_l2 is not None and output.rel_l2 <= max(2 * self._noise[output.name], _ROUNDING)
            for output in parity.outputs
        )

    def parity(self, rounds: Sequence[Sequence[Difference]]) -> Parity:
        """The parity over all comparisons; for each output the worst one decides."""
        outputs: list[OutputParity] = [
            worst(spec, [entries[position] for entries in rounds], self._limits[spec.name])
            for position, spec in enumerate(self._specs)
        ]
        return Parity(
            judge=self._folder.name,
            judge_dtype=str(self._about["dtype"]),
            sets=int(self._about["sets"]),
            outputs=tuple(outputs),
        )
