"""Eager PyTorch captured as a CUDA graph and replayed: shows the cost of kernel launches, without any fusion."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bakeoff.backends.backend import (
    Backend,
    BuildContext,
    DefaultOptions,
    Engine,
    ModuleEngine,
    Proof,
)
from bakeoff.backends.capture import capture
from bakeoff.backends.channels_last import CONVOLUTIONS, store_channels_last
from bakeoff.backends.eager import Options
from bakeoff.backends.graphs import TORCH

if TYPE_CHECKING:
    from torch import Tensor, nn


def _build(module: "nn.Module", inputs: "Mapping[str, Tensor]", options: Options, _context: BuildContext) -> Engine:
    facts = {"channels_last_weights": store_channels_last(module, inputs)} if options.channels_last else {}
    return capture(ModuleEngine(module, lambda: Proof(facts=facts)), inputs)


BACKEND = Backend(
    name="cudagraph",
    summary="eager, captured as a CUDA graph and replayed: saves launches, fuses nothing",
    build=_build,
    options=Options,
    defaults=(
        DefaultOptions(Options(), devices=("cuda",), dtypes=("bf16",), suite="quick"),
        DefaultOptions(Options(channels_last=True), devices=("cuda",), dtypes=("bf16",), layers=CONVOLUTIONS),
    ),
    requires=(TORCH,),
    devices=("cuda",),
    checks="calls replay a captured graph and dispatch no operators",
    binds_memory=True,
    same_when_traced=("cuda",),
)
