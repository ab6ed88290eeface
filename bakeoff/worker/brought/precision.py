"""Finds the dtypes that a brought model computes in, its error in fp32, and outputs whose dtype is fixed."""

from dataclasses import replace

import torch
from torch import Tensor

from bakeoff.models.component import TensorSpec
from bakeoff.models.lookup import one_line
from bakeoff.worker.brought.calls import LEAST_TOLERANCE
from bakeoff.worker.brought.facts import ModelFacts, SetFacts, name_of
from bakeoff.worker.cast import cast_module
from bakeoff.worker.reference.error import apart
from bakeoff.worker.reference.precision import in_high_precision, reference_precisions

_MOST_TOLERANCE = 1e-2
"""Largest fp32 tolerance; outputs with a larger error could not be called fp32."""
_OF_EAGER = 10
"""Allowed multiple of eager's own fp32 error: other implementations sum in another order, and some use transforms."""


def find_precision(model: ModelFacts) -> None:
    """Find the dtype of the model's references, and the tolerance of rows in fp32, by eager's own error there.

    References are in fp64 if that is affordable for a call of each set, and if the model computes in it and draws no
    random numbers. The dtypes of the outputs are stored in each set's `fp32_dtypes`.
    """
    works = [one.counted.work(one.specs + one.outputs) for one in model.sets]
    elements, calls = max(work.io_elements for work in works), [(work, 1) for work in works]
    start = reference_precisions(model.module, elements, calls, model.job.device)[0].dtype
    model.report("reference", f"running the model in {start}")
    draws = any(one.counted.draws for one in model.sets)
    model.precision, wanted = in_high_precision(
        "fp32" if draws else start, lambda dtype: [_run(model, one, dtype) for one in model.sets]
    )
    errors = [0.0]
    if model.precision != "fp64":
        errors.append(LEAST_TOLERANCE)
        why = "it draws other random numbers in fp64" if draws else "it does not compute in fp64"
        why = why if start == "fp64" else "fp64 takes too much memory or time here"
        model.notes.append(f"{why}, so references are in {model.precision}")
    for one, reference in zip(model.sets, wanted, strict=True):
        outputs = _tried(model, one, "fp32")
        if outputs is not None:
            one.fp32_dtypes = tuple(tensor.dtype for tensor in outputs)
            errors += [apart(a, b) for a, b in zip(outputs, reference, strict=True) if a.is_floating_point()]
    _find_tolerance(model, max(errors))


def _find_tolerance(model: ModelFacts, error: float) -> None:
    """Derive the tolerance from eager's largest error in fp32, unless the user stated one."""
    if model.said.tolerance_fp32 is not None:
        model.tolerance = model.said.tolerance_fp32
        return
    model.tolerance = min(max(LEAST_TOLERANCE, _OF_EAGER * error), _MOST_TOLERANCE)
    if model.tolerance > LEAST_TOLERANCE:
        model.notes.append(
            f"its own fp32 outputs are up to {error:.1e} off {model.precision}, by rounding or by casts within, so "
            f"rows in fp32 may be {model.tolerance:.1e} off in place of {LEAST_TOLERANCE:.0e}; one that leaves out "
            "such a cast passes"
        )


def find_fixed_outputs(model: ModelFacts) -> None:
    """Mark outputs that stay fp32 when the model computes in bf16, and outputs of one dtype in both.

    Casts the module to bf16, which loses the original values.
    """
    model.report("reference", "running the model in bf16")
    for one in model.sets:
        outputs = _tried(model, one, "bf16")
        if outputs is not None:
            wide = one.fp32_dtypes or tuple(torch.float32 for _ in outputs)
            one.outputs = tuple(map(_with_dtypes, one.outputs, wide, (tensor.dtype for tensor in outputs)))


def _with_dtypes(spec: TensorSpec, in_fp32: torch.dtype, in_bf16: torch.dtype) -> TensorSpec:
    if not spec.floating:
        return spec
    if in_fp32 == in_bf16 != torch.float32:
        return replace(spec, dtype=name_of(in_bf16))
    return replace(spec, keep_fp32=in_bf16.itemsize > torch.bfloat16.itemsize)


def find_mixed(model: ModelFacts) -> None:
    """Find out whether the model and its inputs have floating tensors of several dtypes."""
    weights = {name_of(one) for one in model.given.tensors.values() if one.is_floating_point}
    dtypes = sorted(weights | {spec.given or "float32" for one in model.sets for spec in one.specs if not spec.dtype})
    model.mixed = len(dtypes) > 1
    if model.mixed:
        model.notes.append(
            f"its floating dtypes are mixed ({', '.join(dtypes)}): a sweep takes it as it was given, --dtype given; "
            "other dtypes are taken where asked for"
        )
    elif weights - {"float32"}:
        model.notes.append(
            f"its weights were given in {dtypes[0]}; rows of other dtypes have their values cast to those"
        )


def _run(model: ModelFacts, found: SetFacts, dtype: str) -> tuple[Tensor, ...]:
    """Return the outputs for the first given call in `dtype`; leaves the module in that dtype."""
    cast_module(model.module, model.given, dtype, found.device)
    return replace(found, dtype=dtype).held(*found.calls[0].values())


def _tried(model: ModelFacts, found: SetFacts, dtype: str) -> tuple[Tensor, ...] | None:
    """Return the outputs as `_run` does; if eager fails, add a note and return None."""
    try:
        return _run(model, found, dtype)
    except Exception as error:  # noqa: BLE001  # whatever a module raises whose code names a dtype
        model.notes.append(f"{found.name}: eager fails in {dtype}: {type(error).__name__}: {one_line(error)}")
        return None
