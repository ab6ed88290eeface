"""Finds the dtypes that a brought model computes in, and outputs whose dtype is fixed."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from bakeoff.models.component import TensorSpec
from bakeoff.models.lookup import one_line
from bakeoff.worker.brought.calls import LEAST_TOLERANCE
from bakeoff.worker.brought.set_facts import CastModel, SetFacts, name_of
from bakeoff.worker.cast import GivenDtypes, cast_module
from bakeoff.worker.reference.error import apart
from bakeoff.worker.reference.precision import in_high_precision, reference_precisions


def affordable(module: nn.Module, sets: Sequence[SetFacts]) -> str:
    """Return fp64 if references in fp64 are affordable on the sets' device, for a call of each set; else fp32."""
    works = [one.counted.work(one.specs + one.outputs) for one in sets]
    elements, calls = max(work.io_elements for work in works), [(work, 1) for work in works]
    return reference_precisions(module, elements, calls, sets[0].device)[0].dtype


def fp32_errors(module: nn.Module, given: GivenDtypes, sets: Sequence[SetFacts], start: str) -> tuple[str, list[float]]:
    """Return the dtype of the model's references, tried from `start` on, and eager's fp32 errors against them.

    There is one relative L2 error for each floating output of each set's first call, and `LEAST_TOLERANCE` if the
    references are not in fp64. The output dtypes are stored in each set's `fp32_dtypes`.
    """
    errors: list[float] = []
    precision, wanted = in_high_precision(start, lambda dtype: [_run(one, module, given, dtype) for one in sets])
    if precision != "fp64":
        errors.append(LEAST_TOLERANCE)
    for one, reference in zip(sets, wanted, strict=True):
        outputs = _tried(one, module, given, "fp32")
        if outputs is not None:
            one.fp32_dtypes = tuple(tensor.dtype for tensor in outputs)
            errors += [apart(a, b) for a, b in zip(outputs, reference, strict=True) if a.is_floating_point()]
    return precision, errors


def find_fixed_outputs(module: nn.Module, given: GivenDtypes, sets: Sequence[SetFacts]) -> None:
    """Mark outputs that stay fp32 when the model computes in bf16, and outputs of one dtype in both.

    Casts the module to bf16, which loses the original values.
    """
    for one in sets:
        outputs = _tried(one, module, given, "bf16")
        if outputs is not None:
            wide = one.fp32_dtypes or tuple(torch.float32 for _ in outputs)
            one.outputs = tuple(map(_with_dtypes, one.outputs, wide, (tensor.dtype for tensor in outputs)))


def _with_dtypes(spec: TensorSpec, in_fp32: torch.dtype, in_bf16: torch.dtype) -> TensorSpec:
    if not spec.floating:
        return spec
    if in_fp32 == in_bf16 != torch.float32:
        return replace(spec, dtype=name_of(in_bf16))
    return replace(spec, keep_fp32=in_bf16.itemsize > torch.bfloat16.itemsize)


def is_mixed(given: GivenDtypes, sets: Sequence[SetFacts]) -> bool:
    """Return whether the model and its inputs have floating tensors of several dtypes."""
    return len({*_weight_dtypes(given), *_input_dtypes(sets)}) > 1


def _weight_dtypes(given: GivenDtypes) -> list[str]:
    return sorted({name_of(one) for one in given.tensors.values() if one.is_floating_point})


def _input_dtypes(sets: Sequence[SetFacts]) -> set[str]:
    return {spec.given or "float32" for one in sets for spec in one.specs if not spec.dtype}


def precision_notes(precision: str, start: str, given: GivenDtypes, mixed: bool, sets: Sequence[SetFacts]) -> list[str]:
    """Return notes to the user on the dtypes of the references and of the model, one sentence each."""
    found = []
    if start != "fp64":
        found.append(f"fp64 takes too much memory or time here, so references are in {precision}")
    elif precision != "fp64":
        why = "draws other random numbers" if any(one.counted.draws for one in sets) else "does not compute"
        found.append(f"it {why} in fp64, so references are in {precision}")
    names = _weight_dtypes(given)
    if mixed:
        text = f"its floating dtypes are mixed ({', '.join(sorted({*names, *_input_dtypes(sets)}))})"
        found.append(f"{text}: a sweep takes it as it was given, --dtype given; other dtypes are taken where asked for")
    elif names and names != ["float32"]:
        found.append(f"its weights were given in {names[0]}; rows of other dtypes have their values cast to those")
    return found


def _run(found: SetFacts, module: nn.Module, given: GivenDtypes, dtype: str) -> tuple[Tensor, ...]:
    """Return the outputs for the first given call in `dtype`; leaves the module in that dtype."""
    cast_module(module, given, dtype, found.device)
    outputs: tuple[Tensor, ...] = CastModel(found.flat, found.specs, dtype, found.device)(*found.calls[0].values())
    return outputs


def _tried(found: SetFacts, module: nn.Module, given: GivenDtypes, dtype: str) -> tuple[Tensor, ...] | None:
    """Return the outputs as `_run` does; if eager fails, add a note to `found` and return None."""
    try:
        return _run(found, module, given, dtype)
    except Exception as error:  # noqa: BLE001  # whatever a module raises whose code names a dtype
        found.notes.append(f"{found.name}: eager fails in {dtype}: {type(error).__name__}: {one_line(error)}")
        return None
