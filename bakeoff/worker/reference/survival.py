"""Finds why a model does not survive a cast: the tensor that, rounded alone, causes it, and if pinning it helps."""

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from bakeoff.process.jobs import Subject
from bakeoff.worker.cast import named_tensors
from bakeoff.worker.reference.error import MOST_NOISE, difference
from bakeoff.worker.reference.precision import widened
from bakeoff.worker.subject import LoadedSubject, cast_inputs, load_subject
from bakeoff.worker.torch_flags import TORCH_DTYPES, flags

_SECONDS = 30.0
"""Time after which no further tensor is tried."""


def explain(subject: Subject, dtype: str, noise: float, reference: Mapping[str, Tensor]) -> str:
    """Return one or two sentences: how far off eager is in `dtype`, which tensor causes it, and the code that pins it.

    `noise` is the smallest relative L2 error of eager's outputs, and `reference` holds the reference outputs of set 0.
    Loads the subject anew.
    """
    text = f"in {dtype} the model itself is another function: eager is {noise:.1e} (relative L2) off its reference"
    if dtype == "given":
        return f"{text}; give it in fp32, or the parts that need it"
    errors = dict(_rounded_alone(load_subject(subject), dtype, subject.device, reference))
    worst = max(errors, key=lambda name: errors[name], default="")
    if not worst or errors[worst] <= MOST_NOISE / 2:
        return f"{text}, and no tensor does it alone; use fp32"
    left = _pinned(load_subject(subject), worst, dtype, subject, reference)
    shown = worst.removeprefix("module.")
    text += f"; rounding {shown} alone makes it {errors[worst]:.1e}"
    if left > MOST_NOISE:
        return f"{text}, but keeping that in fp32 is not enough; use fp32"
    return f'{text}. bakeoff.Model(..., keep_fp32=("{shown}",)) leaves {left:.1e}'


def _rounded_alone(
    loaded: LoadedSubject, dtype: str, device: str, reference: Mapping[str, Tensor]
) -> Iterator[tuple[str, float]]:
    """Yield each floating input, buffer and parameter that the cast rounds, with the fp64 error of rounding it alone.

    Inputs come first, then buffers, then parameters from the smallest on, as long as there is time.
    """
    half, until = TORCH_DTYPES[dtype], time.monotonic() + _SECONDS
    with flags("fp64", torch.get_num_threads()):
        loaded.cast("fp64", device)
        inputs = cast_inputs(loaded.workload, loaded.sets[0], "fp64", device)
        buffers = {id(one) for one in loaded.module.buffers()}
        tensors = sorted(
            named_tensors(loaded.module), key=lambda named: (id(named[1]) not in buffers, named[1].numel())
        )
        kept = {spec.name for spec in loaded.workload.inputs if spec.keep_fp32}
        pinned = loaded.given.pinned | kept
        for name, tensor in [*inputs.items(), *tensors]:
            if not tensor.is_floating_point() or name in pinned or time.monotonic() > until:
                continue
            before = tensor.detach().clone()
            tensor.detach().copy_(before.to(half))
            try:
                with widened("fp64"):
                    error = _error(loaded, inputs, reference)
                yield name, error
            finally:
                tensor.detach().copy_(before)


def _pinned(loaded: LoadedSubject, name: str, dtype: str, subject: Subject, reference: Mapping[str, Tensor]) -> float:
    """Return eager's error in `dtype` with the input or tensor `name` kept in fp32; infinite if the model raises."""
    given = replace(loaded.given, pinned=loaded.given.pinned | {name})
    specs = tuple(replace(spec, keep_fp32=spec.keep_fp32 or spec.name == name) for spec in loaded.workload.inputs)
    loaded = replace(loaded, given=given, workload=replace(loaded.workload, inputs=specs))
    with flags(dtype, subject.threads):
        loaded.cast(dtype, subject.device)
        try:
            return _error(loaded, cast_inputs(loaded.workload, loaded.sets[0], dtype, subject.device), reference)
        except Exception:  # noqa: BLE001  # code that takes no other dtype in this place
            return math.inf


def _error(loaded: LoadedSubject, inputs: Mapping[str, Tensor], reference: Mapping[str, Tensor]) -> float:
    """Return the smallest relative L2 error of the floating outputs; infinite if none is finite."""
    outputs = loaded.module(*inputs.values())
    return min(
        (
            difference(output, reference[spec.name], output.dtype).rel_l2
            for spec, output in zip(loaded.workload.outputs, outputs, strict=True)
            if spec.floating
        ),
        default=0.0,
    )
