"""Whether an output is right: against the judge, by error relative to what plain eager makes in the same dtype."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bakeoff.models.component import LEAST_SQNR_DB, Quantisation, TensorSpec
from bakeoff.record.schema import OutputParity

PICTURE_RANGE = 2.0
"""Pictures span -1 to 1."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One output of one set of inputs against its reference. `problem` is set when nothing could be computed."""

    rel_l2: float
    max_abs: float
    cosine: float
    mean_square_error: float
    mean_square: float
    problem: str = ""
    where: str = ""
    """Which inputs, and when, for the sentence about it."""


def not_comparable(problem: str) -> Difference:
    """An output that cannot be compared at all."""
    return Difference(math.inf, math.inf, math.nan, math.inf, 0.0, problem)


def difference(output: object, reference: Tensor, expected_dtype: torch.dtype) -> Difference:
    """Compare in fp64 on the output's device. Shape, dtype, NaN and infinity are problems, not numbers."""
    if type(output) is not Tensor:  # a subclass may compute when it is looked at, which no clock sees
        return not_comparable(f"is a {type(output).__name__}, not a plain tensor")
    if output.shape != reference.shape:
        return not_comparable(f"has shape {list(output.shape)}, not {list(reference.shape)}")
    if output.dtype != expected_dtype:
        return not_comparable(f"is {output.dtype}, not {expected_dtype}")
    found = output.detach().double().flatten()
    wanted = reference.to(found.device).double().flatten()
    bad = int((~torch.isfinite(found)).sum())
    if bad:
        return not_comparable(f"has {bad} of {found.numel()} values that are not finite")
    error, norm = found - wanted, float(wanted.norm())
    distance = float(error.norm())
    return Difference(
        rel_l2=distance / norm if norm else (0.0 if distance == 0 else math.inf),
        max_abs=float(error.abs().max()),
        cosine=float(found @ wanted) / (float(found.norm()) * norm) if norm and float(found.norm()) else 0.0,
        mean_square_error=distance**2 / found.numel(),
        mean_square=norm**2 / found.numel(),
    )


def worst(spec: TensorSpec, differences: Sequence[Difference], limit: float) -> OutputParity:
    """The verdict on one output over all sets: the set with the largest error decides."""
    for entry in differences:
        if entry.problem:
            return OutputParity(spec.name, None, limit, False, problem=_told(spec, entry.problem, entry))
    entry = max(differences, key=lambda item: item.rel_l2)
    signal_db = None
    if spec.signal == "picture":
        signal_db = _decibel(PICTURE_RANGE**2, entry.mean_square_error)
    elif spec.signal == "audio":
        signal_db = _decibel(entry.mean_square, entry.mean_square_error)
    passed = entry.rel_l2 <= limit
    return OutputParity(
        name=spec.name,
        rel_l2=entry.rel_l2 if math.isfinite(entry.rel_l2) else None,
        limit=limit,
        passed=passed,
        max_abs=entry.max_abs,
        cosine=entry.cosine,
        sqnr_db=_decibel(entry.mean_square, entry.mean_square_error),
        signal_db=signal_db,
        problem="" if passed else _told(spec, f"differs by {entry.rel_l2:.2e} relative L2, over {limit:.2e}", entry),
    )


def _told(spec: TensorSpec, problem: str, entry: Difference) -> str:
    return f"{spec.name} {problem}" + (f" ({entry.where})" if entry.where else "")


def _decibel(signal: float, noise: float) -> float | None:
    """10 log10(signal/noise); None for no noise at all, which JSON could not hold as infinity, or no signal."""
    if noise <= 0 or signal <= 0:
        return None
    return 10 * math.log10(signal / noise)


def limits(
    specs: Sequence[TensorSpec], noise: Mapping[str, float], tolerance_fp32: float, quantisation: Quantisation = ""
) -> dict[str, float]:
    """Relative L2 allowed for each output: twice eager's own in the same dtype, at least the fp32 tolerance.

    A quantised variant may also differ by what the least SQNR of its class means.
    """
    least = max(tolerance_fp32, 10 ** (-LEAST_SQNR_DB[quantisation] / 20)) if quantisation else tolerance_fp32
    return {spec.name: max(2 * noise[spec.name], least) for spec in specs}


def expected_dtype(spec: TensorSpec, dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32) if spec.keep_fp32 else dtype
