"""The error of an output against its reference, and its limit: twice eager's own error in the same dtype."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bakeoff.models.component import LEAST_SQNR_DB, Quantisation, TensorSpec
from bakeoff.models.words import counted
from bakeoff.record.schema import OutputParity, all_known
from bakeoff.worker.torch_flags import TORCH_DTYPES

MOST_NOISE = 10 ** (-min(LEAST_SQNR_DB.values()) / 20)
"""Largest relative L2 error of eager itself from which limits follow: that of the loosest class of quantisation."""
_UNMEASURED = 8
"""Multiple of a dtype's epsilon that is the limit of an output for which eager's own error gives none."""
PICTURE_RANGE = 2.0
"""Peak-to-peak range of a picture's values, -1 to 1."""
_INDICES = (torch.int32, torch.int64)
"""Dtypes of indices, for which the size of an error means nothing: 31998 in place of 31999 is as wrong as 0."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Comparison of one output for one input set with its reference."""

    rel_l2: float
    """Relative L2 error; for indices the share that differs."""
    max_abs: float
    cosine: float
    mean_square_error: float
    mean_square: float
    """Mean square of the reference."""
    problem: str | None = None
    """Reason why the output could not be compared; None if it could."""
    where: str = ""
    """Inputs of the call and when it was made, as text for messages."""
    lossless: bool | None = None
    """Whether the output equals eager's in the same dtype bit for bit; None if unknown."""


def without_equal_infinities(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Return both tensors flat and in fp64, with 0 wherever both have the same infinity, as masked scores do."""
    a, b = one.double().flatten(), other.double().flatten()
    if math.isfinite(float(a.sum())):
        return a, b
    same = torch.isinf(a) & (a == b)
    return a.masked_fill(same, 0.0), b.masked_fill(same, 0.0)


def apart(one: Tensor, other: Tensor) -> float:
    """Return the relative L2 distance of an output from another one of the same kind.

    It is 0.0 if all values are the same, NaN and infinities included, and 1.0 if the shapes differ or only one of the
    two is NaN at some element.
    """
    if one.shape != other.shape:
        return 1.0
    a, b = without_equal_infinities(one, other)
    if torch.equal(a.nan_to_num(), b.nan_to_num()):
        return 0.0
    norm = float(b.norm())
    distance = float((a - b).norm()) / norm if norm else 1.0
    return 1.0 if math.isnan(distance) else distance


def not_comparable(problem: str) -> Difference:
    """Return the difference of an output that cannot be compared."""
    return Difference(math.inf, math.inf, math.nan, math.inf, 0.0, problem)


def difference(output: object, reference: Tensor, expected_dtype: torch.dtype) -> Difference:
    """Compare an output with its reference, in fp64 on the output's device.

    If type, shape or dtype are not as expected, or a value is NaN, or infinite in only one of the two, the result has a
    `problem` instead of figures.
    """
    if type(output) is not Tensor:  # a subclass may defer its computation until it is read, outside the clock
        return not_comparable(f"type {type(output).__name__} instead of a plain tensor")
    if output.shape != reference.shape:
        return not_comparable(f"shape {list(output.shape)} instead of {list(reference.shape)}")
    if output.dtype != expected_dtype:
        return not_comparable(f"dtype {output.dtype} instead of {expected_dtype}")
    if not output.numel():
        return Difference(0.0, 0.0, 1.0, 0.0, 0.0)
    found, wanted = without_equal_infinities(output.detach(), reference.to(output.device))
    error, norm = found - wanted, float(wanted.norm())
    distance = float(error.norm())
    if not math.isfinite(distance):
        bad, lost = (int((~torch.isfinite(values)).sum()) for values in (found, wanted))
        all_values = counted(found.numel(), "value is", "values are")
        if bad:
            return not_comparable(f"{bad} of {all_values} not finite")
        if lost:
            return not_comparable(f"{lost} of {all_values} finite, and infinite in the reference")
    relative = distance / norm if norm else (0.0 if distance == 0 else math.inf)
    return Difference(
        rel_l2=float(error.count_nonzero()) / error.numel() if expected_dtype in _INDICES else relative,
        max_abs=float(torch.linalg.vector_norm(error, math.inf)),
        cosine=float(found @ wanted) / (float(found.norm()) * norm) if norm and float(found.norm()) else 0.0,
        mean_square_error=distance**2 / found.numel(),
        mean_square=norm**2 / found.numel(),
    )


def worst(spec: TensorSpec, differences: Sequence[Difference], limit: float) -> OutputParity:
    """Return the parity of one output: of the comparison with the largest error, or of the first with a problem."""
    lossless = all_known(entry.lossless for entry in differences)
    for entry in differences:
        if entry.problem is not None:
            problem = _sentence(spec, entry.problem, entry)
            return OutputParity(spec.name, None, limit, False, problem=problem, lossless=lossless)
    entry = max(differences, key=lambda item: item.rel_l2)
    signal_db = None
    if spec.signal == "picture":
        signal_db = _decibel(PICTURE_RANGE**2, entry.mean_square_error)
    elif spec.signal == "audio":
        signal_db = _decibel(entry.mean_square, entry.mean_square_error)
    passed = entry.rel_l2 <= limit
    limit = limit if math.isfinite(limit) else 1.0  # that of an output which is not compared; JSON has no infinity
    excess = f"relative L2 error {entry.rel_l2:.2e} exceeds the limit {limit:.2e}"
    if getattr(torch, spec.dtype or "float32") in _INDICES:
        excess = f"{entry.rel_l2:.2g} of its indices differ, and at most {limit:.2g} may; equal values have no order"
    return OutputParity(
        name=spec.name,
        rel_l2=entry.rel_l2 if math.isfinite(entry.rel_l2) else None,
        limit=limit,
        passed=passed,
        max_abs=entry.max_abs,
        cosine=entry.cosine,
        sqnr_db=_decibel(entry.mean_square, entry.mean_square_error),
        signal_db=signal_db,
        problem="" if passed else _sentence(spec, excess, entry),
        lossless=lossless,
    )


def _sentence(spec: TensorSpec, problem: str, entry: Difference) -> str:
    return f"{spec.name}: {problem}" + (f" ({entry.where})" if entry.where else "")


def _decibel(signal: float, noise: float) -> float | None:
    """Return 10 log10(signal/noise); None if either is 0, because JSON has no infinity."""
    if noise <= 0 or signal <= 0:
        return None
    return 10 * math.log10(signal / noise)


def limits(
    specs: Sequence[TensorSpec],
    noise: Mapping[str, float],
    tolerance_fp32: float,
    dtype: str,
    quantisation: Quantisation = "",
) -> dict[str, float]:
    """Return the relative L2 error allowed for each output: twice eager's own, and at least `tolerance_fp32`.

    `noise` is eager's own error in the same dtype, by output. For an output that `noise` lacks, the limit is a few
    roundings of the dtype; it is infinite for indices and the like, which a rounding may turn into any other value. A
    quantised variant may also differ by as much as the least SQNR of its class allows.
    """
    least = max(tolerance_fp32, 10 ** (-LEAST_SQNR_DB[quantisation] / 20)) if quantisation else tolerance_fp32

    def limit(spec: TensorSpec) -> float:
        if spec.name in noise:
            return max(2 * noise[spec.name], least)
        return math.inf if not spec.floating else max(_UNMEASURED * torch.finfo(expected_dtype(spec, dtype)).eps, least)

    return {spec.name: limit(spec) for spec in specs}


def expected_dtype(spec: TensorSpec, dtype: str) -> torch.dtype:
    """Return the dtype of an input or output of a variant in `dtype`; it is at least fp32 if marked `keep_fp32`."""
    own: torch.dtype = getattr(torch, spec.dtype or spec.given or "float32")
    if spec.dtype or dtype == "given":
        return own
    target = TORCH_DTYPES[dtype]
    return torch.promote_types(torch.promote_types(target, own), torch.float32) if spec.keep_fp32 else target
