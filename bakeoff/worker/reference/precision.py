"""Chooses the dtype and device in which eager computes the references of a subject: fp64 if that is affordable.

A reference in fp32 on the measured device comes from the same kernels as the eager fp32 row: the error of that row is
zero by construction, and an error that all rows have in common stays unseen. Code that casts by itself (`x.float()`,
`.type_as(x)`, `torch.arange(..., dtype=torch.bfloat16)`, autocast) would round values in the middle of an fp64
reference, or mix dtypes that an operator refuses, so eager is run wholly in one wide dtype.
"""

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar

import torch
from torch import Tensor, nn

from bakeoff.backends.torch_internals import replace_dispatch, rewrite_dispatch
from bakeoff.machine import host
from bakeoff.models.component import Work
from bakeoff.models.errors import BakeoffError
from bakeoff.worker.failures import is_out_of_memory
from bakeoff.worker.subject import synchronise

_Made = TypeVar("_Made")
Calls: TypeAlias = Sequence[tuple[Work, int]]
"""The work of a call, and how often it runs."""

_HOST_BYTES = 8 << 30
_GPU_SHARE = 0.7
"""Share of the GPU's free memory for weights, inputs and outputs; the rest is for activations and workspaces."""
_SECONDS = 60.0
_ON_CPU_SECONDS = 300.0
"""Longest time of reference calls on the CPU, for a subject of a GPU whose reference does not fit there."""
_CPU_PRODUCTS, _CPU_CONVOLUTIONS = 1e10, 5e9
"""Low estimates of a CPU's fp64 FLOP/s. oneDNN has no convolutions in fp64, so ATen's own compute them."""
_PRODUCT = 4096
"""Rows and columns of the matrix product that measures a GPU's fp64 rate: 137 GFLOP, which take 4 ms to a second."""
_CHANNELS = 192
"""Channels of the convolution that does, in a volume of 4x64x64: 33 GFLOP. It cannot use fp64 tensor cores."""
_REACHED = 0.4
"""Share of these rates that a network reaches."""
_LANES = 8
"""Values of fp64 in a vector of AVX-512."""
_COMPLEX = {torch.float64: torch.complex128, torch.float32: torch.complex64}


@dataclass(frozen=True, slots=True)
class Precision:
    """Dtype and device in which references are computed."""

    dtype: str
    """fp64 or fp32."""
    device: str


def reference_precisions(
    module: nn.Module, io_elements: int, calls: Calls, device: str, runs_on_host: bool = True
) -> tuple[Precision, ...]:
    """Return the ways in which references can be computed, best first.

    fp64 on `device` comes first, if memory suffices and the calls take at most a minute. For a GPU, fp64 on the CPU is
    next, if the calls take at most five minutes there and the model `runs_on_host`. fp32 on `device` is last.
    `io_elements` counts the elements of all inputs and outputs that are in memory at a time: on a GPU those of one
    call, whose outputs are moved to the host before the next.
    """
    parameters = sum(parameter.numel() for parameter in module.parameters())
    needed, on_host = 8 * (parameters + io_elements), 8 * (parameters + 2 * io_elements)
    found = []
    if (needed if device == "cuda" else on_host) <= _room(device) and fp64_seconds(calls, device) <= _SECONDS:
        found.append(Precision("fp64", device))
    on_cpu = on_host <= host.available_bytes("cpu") / 2 and fp64_seconds(calls, "cpu") <= _ON_CPU_SECONDS
    if device == "cuda" and on_cpu and runs_on_host:
        found.append(Precision("fp64", "cpu"))
    return (*found, Precision("fp32", device))


def in_first_that_fits(ways: Sequence[Precision], run: Callable[[Precision], _Made]) -> _Made:
    """Return the result of `run` for the first way that fits in memory. Raises whatever the last way raises."""
    for way in ways[:-1]:
        try:
            return run(way)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        gc.collect()
        torch.cuda.empty_cache()  # does nothing before CUDA is used
    return run(ways[-1])


def fp64_seconds(calls: Calls, device: str) -> float:
    """Return a high estimate of the seconds that calls take in fp64, on a GPU by rates that are measured there."""
    convolved = sum(work.convolution_flops * count for work, count in calls)
    multiplied = sum(work.flops * count for work, count in calls) - convolved
    if device == "cpu":
        return multiplied / _CPU_PRODUCTS + convolved / _CPU_CONVOLUTIONS
    seconds = multiplied / product_flops(device, _PRODUCT)
    if convolved:
        seconds += convolved / convolution_flops(device, _CHANNELS)
    return seconds / _REACHED


def product_flops(device: str, size: int) -> float:
    """Measure the FLOP/s of one square fp64 matrix product, after a small product that loads the library."""
    one, other = (torch.ones(size, size, dtype=torch.float64, device=device) for _ in range(2))
    torch.mm(one[:64, :64], other[:64, :64])
    return 2 * size**3 / _seconds(lambda: torch.mm(one, other), device)


def convolution_flops(device: str, channels: int) -> float:
    """Measure the FLOP/s of one 3x3x3 fp64 convolution, after one that loads the library and chooses the algorithm."""
    inputs = torch.ones(1, channels, 4, 64, 64, dtype=torch.float64, device=device)
    weights = torch.ones(channels, channels, 3, 3, 3, dtype=torch.float64, device=device)
    conv3d = partial(torch.nn.functional.conv3d, inputs, weights, padding=1)
    conv3d()
    return 2 * inputs.numel() * weights[0].numel() / _seconds(conv3d, device)


def _seconds(run: Callable[[], object], device: str) -> float:
    synchronise(device)
    started = time.perf_counter()
    run()
    synchronise(device)
    return time.perf_counter() - started


def _room(device: str) -> float:
    return _HOST_BYTES if device == "cpu" else _GPU_SHARE * torch.cuda.mem_get_info()[0]


@contextmanager
def widened(dtype: str) -> Iterator[None]:
    """Make eager compute in `dtype`, fp64 or fp32, and in nothing narrower, within this context.

    Every operator that is asked for a floating or complex dtype gets the wide one. Autocast leaves fp64 as it is, and
    casts fp32 by such an operator. A view of the same bytes as another dtype (`tensor.view(torch.int32)`) is left
    alone.
    """
    wide = torch.float64 if dtype == "fp64" else torch.float32

    def rewrite(operator: Any, named: dict[str, Any]) -> dict[str, Any]:
        asked = named.get("dtype")
        if isinstance(asked, torch.dtype) and operator is not torch.ops.aten.view.dtype:
            if asked.is_complex:
                named["dtype"] = _COMPLEX[wide]
            elif asked.is_floating_point:
                named["dtype"] = wide
        return named

    before = torch.get_default_dtype()
    torch.set_default_dtype(wide)
    try:
        with rewrite_dispatch(rewrite):
            yield
    finally:
        torch.set_default_dtype(before)


def other_order() -> Any:
    """Return a context that adds up in another order than eager's cascade: as a loop over vectors of `_LANES` does,
    then over the lanes.

    If the vectors do not lie along the sum, it is one value after the other. Compilers sum in this order, whose
    rounding error grows with the length (Higham, The accuracy of floating point summation, SISC 1993).
    """
    return replace_dispatch(_sum_in_other_order)


def _sum_in_other_order(func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    values = args[0] if args else None
    operator = getattr(func, "overloadpacket", None)
    mean = operator is torch.ops.aten.mean
    sums = mean or operator is torch.ops.aten.sum
    if not sums or not isinstance(values, Tensor) or not values.is_floating_point() or not values.dim():
        return func(*args, **named)
    given = args[1] if len(args) > 1 else None
    dims = [given] if isinstance(given, int) else list(given or range(values.dim()))
    flat = values.movedim(dims, list(range(-len(dims), 0))).flatten(-len(dims))
    width = _LANES if values.dim() - 1 in [dim % values.dim() for dim in dims] else 1
    whole = flat.shape[-1] // width * width
    lanes = flat[..., :whole].unflatten(-1, (whole // width, width))
    total = flat[..., whole:].sum(-1)
    if whole:
        total = total + lanes.cumsum(-2)[..., -1, :].sum(-1)
    expected = func(*args, **named)
    return (total / flat.shape[-1] if mean else total).reshape(expected.shape).to(expected.dtype)


class Widened(nn.Module):
    """Calls a module within `widened`, without affecting what its caller draws or casts."""

    def __init__(self, module: nn.Module, dtype: str) -> None:
        super().__init__()
        self.module = module
        self.dtype = dtype

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with widened(self.dtype):
            return self.module(*args, **kwargs)


def in_high_precision(start: str, run: Callable[[str], _Made]) -> tuple[str, _Made]:
    """Return the widest dtype in which the model's code computes, and the result of `run(dtype)`.

    Tried in turn, from `start` (fp64 or fp32) on: fp64 and fp32 whatever the code casts to, fp32 with its own casts,
    and the dtypes as given. Raises whatever the last one raises, and BakeoffError or lack of memory at once.
    """
    ways = [("fp64", True), ("fp32", True), ("fp32", False), ("given", False)]
    for dtype, wide in ways[1 if start == "fp32" else 0 : -1]:
        try:
            with widened(dtype) if wide else nullcontext():
                return dtype, run(dtype)
        except Exception as error:  # whatever a module raises whose code names a dtype
            if isinstance(error, BakeoffError) or is_out_of_memory(error):
                raise
    return ways[-1][0], run(ways[-1][0])
