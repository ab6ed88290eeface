"""Which dtypes a brought model computes in, and what of it no dtype changes."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from bakeoff.models.component import TensorSpec
from bakeoff.models.user_code import one_line
from bakeoff.worker.brought.calls import LEAST_TOLERANCE
from bakeoff.worker.brought.found import Found, apart, name_of, on_cpu
from bakeoff.worker.cast import GivenDtypes, cast_module
from bakeoff.worker.reference.precision import reference_precisions
from bakeoff.worker.reference.wide import in_high_precision
from bakeoff.worker.subject import cast_inputs


def affordable(module: nn.Module, sets: Sequence[Found]) -> str:
    """fp64 where a call of each set in it is affordable on their device, as it is for references; else fp32."""
    works = [one.counted.work(one.specs + one.outputs) for one in sets]
    elements, flops = max(work.io_elements for work in works), sum(work.flops for work in works)
    return reference_precisions(module, elements, flops, sets[0].device, True)[0].dtype


def fp32_errors(module: nn.Module, given: GivenDtypes, sets: Sequence[Found], start: str) -> tuple[str, list[float]]:
    """The dtype that the model's references are in, from `start` on, and eager's fp32 error by output of each set's
    first call."""
    errors: list[float] = []
    precision, wanted = in_high_precision(start, lambda dtype: [_run(one, module, given, dtype) for one in sets])
    if precision != "fp64":
        errors.append(LEAST_TOLERANCE)
    for one, reference in zip(sets, wanted, strict=True):
        try:
            outputs = _run(one, module, given, "fp32")
        except Exception as error:  # noqa: BLE001  # whatever a module raises whose code names a dtype
            one.notes.append(f"{one.name}: eager fails in fp32: {type(error).__name__}: {one_line(error)}")
            continue
        one.fp32_dtypes = tuple(tensor.dtype for tensor in outputs)
        errors += [apart(a, b) for a, b in zip(outputs, reference, strict=True) if a.is_floating_point()]
    return precision, errors


def find_fixed_outputs(module: nn.Module, given: GivenDtypes, sets: Sequence[Found]) -> None:
    """Mark outputs that stay fp32 when the model computes in bf16, and those of one dtype in both; changes the module
    for good."""
    for one in sets:
        try:
            outputs = _run(one, module, given, "bf16")
        except Exception as error:  # noqa: BLE001  # as above
            one.notes.append(f"{one.name}: eager fails in bf16: {type(error).__name__}: {one_line(error)}")
            continue
        wide = one.fp32_dtypes or tuple(torch.float32 for _ in outputs)
        one.outputs = tuple(map(_with_dtypes, one.outputs, wide, (tensor.dtype for tensor in outputs)))


def _with_dtypes(spec: TensorSpec, in_fp32: torch.dtype, in_bf16: torch.dtype) -> TensorSpec:
    if not spec.floating:
        return spec
    if in_fp32 == in_bf16 != torch.float32:
        return replace(spec, dtype=name_of(in_bf16))
    return replace(spec, keep_fp32=in_bf16.itemsize > torch.bfloat16.itemsize)


def is_mixed(given: GivenDtypes, sets: Sequence[Found]) -> bool:
    """Whether the model and its inputs have floating tensors of several dtypes."""
    own = {one for one in given.tensors.values() if one.is_floating_point}
    return (
        len(own | {getattr(torch, spec.given or "float32") for one in sets for spec in one.specs if not spec.dtype}) > 1
    )


def precision_notes(precision: str, start: str, given: GivenDtypes, mixed: bool, sets: Sequence[Found]) -> list[str]:
    """What is said about dtypes, each in one sentence."""
    found = []
    if start != "fp64":
        found.append(f"fp64 takes too much memory or time here, so references are in {precision}")
    elif precision != "fp64":
        found.append(f"it does not compute in fp64, so references are in {precision}")
    names = sorted({name_of(one) for one in given.tensors.values() if one.is_floating_point})
    if mixed:
        inputs = {spec.given or "float32" for one in sets for spec in one.specs if not spec.dtype}
        text = f"its floating dtypes are mixed ({', '.join(sorted({*names, *inputs}))})"
        found.append(f"{text}: a sweep takes it as it was given, --dtype given; other dtypes are taken where asked for")
    elif names and names != ["float32"]:
        found.append(f"its weights were given in {names[0]}; rows of other dtypes have their values cast to those")
    return found


def _run(found: Found, module: nn.Module, given: GivenDtypes, dtype: str) -> tuple[Tensor, ...]:
    """The outputs for the first given call in a dtype; leaves the module in it."""
    cast_module(module, given, dtype, found.device)
    return on_cpu(found.flat(*cast_inputs(found.workload, found.calls[0], dtype, found.device).values()))
