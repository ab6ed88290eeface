"""Lets cuBLAS accumulate products of fp16 in fp16, for the build and for all calls.

GeForce cards multiply so at twice the rate, which the floors of fp16 assume (bakeoff/machine/floors.py); the sums are
less precise, and the parity limits stay those of fp16. The setting is `allow_fp16_accumulation` of
torch.backends.cuda.matmul (torch/backends/cuda/__init__.py, 2.13). Kernels that a compiler generates do not read it. No
card has run this.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bakeoff.backends.backend import Backend, BuildContext, DefaultOptions, NoOptions, Prepared
from bakeoff.backends.graphs import TORCH

if TYPE_CHECKING:
    from torch import Tensor, nn


def _prepare(
    module: "nn.Module", _inputs: "Mapping[str, Tensor]", _options: NoOptions, _context: BuildContext
) -> Prepared:
    from torch.backends import cuda

    cuda.matmul.allow_fp16_accumulation = True
    return Prepared(module, settings={"fp16_accumulation": True})


def _unsupported_builder(_options: NoOptions, builder: Backend) -> str | None:
    if builder.own_attention:
        return f"{builder.name} multiplies with kernels of its own, whatever torch is told; leave fp16-accumulation out"
    return None


BACKEND = Backend(
    name="fp16-accumulation",
    summary="sums of fp16 products in fp16, at twice the rate on GeForce; another backend compiles",
    prepare=_prepare,
    defaults=tuple(
        DefaultOptions(NoOptions(), devices=("cuda",), dtypes=("fp16",), then=then, suite="full")
        for then in ("cudagraph", "inductor[mode=reduce-overhead,freezing]")
    ),
    requires=(TORCH,),
    devices=("cuda",),
    dtypes=("fp16",),
    unsupported_builder=_unsupported_builder,
    unsupported_sizes=None,
    checks="torch's setting is in force in every call; which products obey it, their kernels' names alone can show",
    weight_copies=0.0,
)
