"""A user's own quantiser of the toy's linear layer; it builds by itself or prepares a module for another backend."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bakeoff.backends.backend import (
    Backend,
    BuildContext,
    DefaultOptions,
    Engine,
    ModuleEngine,
    Prepared,
    Proof,
)


@dataclass(frozen=True, slots=True)
class Options:
    bits: int = 8


class Rounded(nn.Module):
    """A linear layer without bias whose weight is stored as int8, with a scale for each output channel."""

    def __init__(self, layer: nn.Linear, bits: int) -> None:
        super().__init__()
        scale = layer.weight.detach().abs().amax(1, keepdim=True) / (2 ** (bits - 1) - 1)
        self.register_buffer("scale", scale)
        self.register_buffer("weight", (layer.weight.detach() / scale).round().to(torch.int8))

    def forward(self, x: Tensor) -> Tensor:
        weight = self.get_buffer("weight").to(x.dtype) * self.get_buffer("scale")
        return nn.functional.linear(x, weight)


def _prepare(module: nn.Module, _inputs: Mapping[str, Tensor], options: Options, _context: BuildContext) -> Prepared:
    layer = module.get_submodule("world")
    assert isinstance(layer, nn.Linear)
    module.world = Rounded(layer, options.bits)
    return Prepared(module, {"world": f"int{options.bits} weights"})


def _build(module: nn.Module, inputs: Mapping[str, Tensor], options: Options, context: BuildContext) -> Engine:
    quantised = _prepare(module, inputs, options, context).quantised

    return ModuleEngine(module, lambda: Proof(graphs=1, quantised=quantised))


_DEFAULTS = (DefaultOptions(Options()),)
_MORE: dict[str, Any] = {
    "options": Options,
    "defaults": _DEFAULTS,
    "dtypes": ("fp32",),
    "runs_eagerly": True,
    "quantises": "weight-only",
}

BUILDS = Backend("rounding", "rounds weights", _build, **_MORE)
PREPARES = Backend("rounding-first", "rounds weights", prepare=_prepare, **_MORE)
