"""Measures how much outputs depend on inputs: if they hardly do, ignoring the inputs is a small error too."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from torch import Tensor

from bakeoff.models.errors import BakeoffError
from bakeoff.record.schema import LEAST_SENSITIVITY, OutputParity
from bakeoff.worker.reference.error import without_equal_infinities
from bakeoff.worker.reference.files import About
from bakeoff.worker.subject import LoadedSubject

Outputs = tuple[Tensor, ...]


def least_difference(names: Sequence[str], pairs: Iterable[tuple[Outputs, Outputs]]) -> dict[str, float]:
    """Return, by output, the smallest relative L2 distance within any pair; outputs are in the order of `names`."""
    apart = [[_apart(a, b) for a, b in zip(*pair, strict=True)] for pair in pairs]
    return {name: min(found) for name, found in zip(names, zip(*apart, strict=True), strict=True)}


def _apart(one: Tensor, other: Tensor) -> float:
    """Return the L2 distance relative to the larger norm: the smaller error of either output in place of the other."""
    a, b = without_equal_infinities(one, other)
    norm = max(float(a.norm()), float(b.norm()))
    if not math.isfinite(norm):
        return 1.0  # infinities in other places
    return float((a - b).norm()) / norm if norm else 0.0


def judges(loaded: LoadedSubject, found: Mapping[str, float]) -> bool:
    """Return whether some output differs by ten times the limit of its fp32 error, which suffices for a check."""
    return any(apart >= LEAST_SENSITIVITY * loaded.component.tolerance_fp32 for apart in found.values())


def check_sensitivity(
    loaded: LoadedSubject, sensitivity: Mapping[str, float], small_sensitivity: Mapping[str, float]
) -> None:
    """Raise BakeoffError if no output differs between inputs by ten times the limit of its fp32 error.

    fp32 has the narrowest limit of all dtypes; a wider limit is checked with the row (`with_sensitivity`).
    """
    least = LEAST_SENSITIVITY * loaded.component.tolerance_fp32
    kinds = (("two different sets of inputs", sensitivity), ("inputs and slightly changed ones", small_sensitivity))
    for which, found in kinds:
        name = max(found, key=lambda output: found[output])
        if not judges(loaded, found):
            raise BakeoffError(
                f"{loaded.component.name}.{loaded.workload.name}: {name} differs by {found[name]:.1e} (relative L2) "
                f"between {which}, too little to check engines by; at least {least:.0e} is needed. "
                "Give trained weights (--checkpoint, or in your own code), larger random ones, or inputs of which more "
                "depends.",
                code="insensitive",
            )


def with_sensitivity(outputs: Sequence[OutputParity], about: About) -> tuple[OutputParity, ...]:
    """Return the parity of a row's outputs with their sensitivities; an output that depends on no input has none.

    If an output's limit is too wide to tell inputs apart, its error must do so: if it is at most half of the
    sensitivity, the output is nearer to its own reference than to that of any other set (triangle inequality).
    Otherwise the output fails, unless another output of the same calls tells the inputs apart: an average beside a
    picture hardly changes.
    """
    known = [
        replace(
            one, sensitivity=about.sensitivity.get(one.name), small_sensitivity=about.small_sensitivity.get(one.name)
        )
        for one in outputs
    ]
    tells = any(one.sensitivity is not None and not one.insensitive and one.passed for one in known)
    return tuple(known if tells else map(told_apart, known))


def told_apart(known: OutputParity) -> OutputParity:
    """Return the parity; failed if, judging by sensitivity and error, the output may be that of other inputs."""
    if known.sensitivity is None or not known.insensitive or not known.passed:
        return known
    if (known.rel_l2 or 0.0) <= known.sensitivity / 2:
        return known
    problem = (
        f"{known.name}: relative L2 error {known.rel_l2:.2e} is within the limit {known.limit:.2e}, but outputs of "
        f"different inputs differ by {known.sensitivity:.2e} only, so it may be the output of other inputs"
    )
    return replace(known, passed=False, problem=problem)
