"""Uncompiled PyTorch, which runs operator by operator: the baseline of all speed-ups.

With `channels_last`, weights are laid out as convolutional models are deployed without a compiler; that is not a
baseline.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bakeoff.backends.backend import (
    Backend,
    BuildContext,
    DefaultOptions,
    Engine,
    ModuleEngine,
    Proof,
)
from bakeoff.backends.channels_last import CONVOLUTIONS, store_channels_last
from bakeoff.backends.graphs import TORCH

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Options:
    channels_last: bool = False
    """Store the weights of convolutions with the channels innermost, so that convolutions compute in this layout."""


def _build(module: "nn.Module", inputs: "Mapping[str, Tensor]", options: Options, _context: BuildContext) -> Engine:
    if not options.channels_last:
        return ModuleEngine(module, rebinding=True)
    stored = store_channels_last(module, inputs)
    return ModuleEngine(module, lambda: Proof(facts={"channels_last_weights": stored}), rebinding=True)


BACKEND = Backend(
    name="eager",
    summary="PyTorch operator by operator; the baseline",
    build=_build,
    options=Options,
    baseline=True,
    defaults=(
        DefaultOptions(Options(), devices=("cpu",), suite="quick"),
        DefaultOptions(Options(), devices=("cuda",), dtypes=("fp32", "tf32", "bf16"), suite="quick"),
        DefaultOptions(Options(channels_last=True), devices=("cuda",), dtypes=("bf16",), layers=CONVOLUTIONS),
        DefaultOptions(
            Options(channels_last=True), devices=("cpu",), dtypes=("bf16",), suite="full", layers=CONVOLUTIONS
        ),
    ),
    requires=(TORCH,),
    unsupported_sizes=None,
    runs_eagerly=True,
    same_when_traced=("cpu", "cuda"),
    overlaps=True,
)
