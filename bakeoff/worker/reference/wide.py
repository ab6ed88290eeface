"""Runs eager wholly in one wide dtype, whatever its code casts to: what references of any model are computed in.

Code that casts by itself (`x.float()`, `.type_as(x)`, `torch.arange(..., dtype=torch.bfloat16)`, autocast) would round
the values of an fp64 reference in the middle, or mix dtypes that an operator refuses.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

import torch
from torch import nn

from bakeoff.backends.torch_internals import rewrite_dispatch
from bakeoff.models.errors import BakeoffError
from bakeoff.worker.failures import is_out_of_memory

_Made = TypeVar("_Made")
_COMPLEX = {torch.float64: torch.complex128, torch.float32: torch.complex64}


@contextmanager
def widened(dtype: str) -> Iterator[None]:
    """Within this context eager computes in `dtype`, fp64 or fp32, and in nothing narrower.

    Every operator that is asked for a floating or complex dtype gets the wide one; autocast leaves fp64 as it is, and
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


class Widened(nn.Module):
    """Calls a module within `widened`, so that what its caller draws or casts stays as it is."""

    def __init__(self, module: nn.Module, dtype: str) -> None:
        super().__init__()
        self.module = module
        self.dtype = dtype

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with widened(self.dtype):
            return self.module(*args, **kwargs)


def in_high_precision(start: str, run: Callable[[str], _Made]) -> tuple[str, _Made]:
    """What `run(dtype)` makes in the widest dtype that the model's code computes in, and that dtype.

    Tried in turn, from `start` (fp64 or fp32) on: fp64 and fp32 whatever the code casts to, fp32 with its own casts,
    and all as it was given. Raises what the last one raises.
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
