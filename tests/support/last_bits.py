"""Backends that call the module and then leave its outputs, or change their last bits; used as `last_bits:KEEPS`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bakeoff.backends.backend import (
    Backend,
    BuildContext,
    BuildFunction,
    Engine,
    ModuleEngine,
    NoOptions,
    Outputs,
)

if TYPE_CHECKING:
    from torch import Tensor, nn

Inputs = Mapping[str, "Tensor"]


def next_up(outputs: "Outputs") -> "Outputs":
    """The outputs, each value one unit in the last place larger."""
    import torch

    return tuple(torch.nextafter(output, torch.full_like(output, torch.inf)) for output in outputs)


def _keep(module: "nn.Module", _inputs: "Inputs", _options: NoOptions, _context: BuildContext) -> Engine:
    return ModuleEngine(module, rebinding=True)


def _round_up(module: "nn.Module", _inputs: "Inputs", _options: NoOptions, _context: BuildContext) -> Engine:
    return ModuleEngine(lambda *tensors: next_up(module(*tensors)), rebinding=True)


def _round_others_up(module: "nn.Module", inputs: "Inputs", _options: NoOptions, _context: BuildContext) -> Engine:
    usual = [tensor.shape for tensor in inputs.values()]

    def call(*tensors: "Tensor") -> "Outputs":
        outputs: Outputs = module(*tensors)
        return outputs if [tensor.shape for tensor in tensors] == usual else next_up(outputs)

    return ModuleEngine(call, rebinding=True)


def _backend(name: str, summary: str, build: BuildFunction) -> Backend:
    return Backend(name, summary, build, dtypes=("fp32",), unsupported_sizes=None, runs_eagerly=True)


KEEPS = _backend("keeps", "a test: the module's own outputs", _keep)
ROUNDS_UP = _backend("rounds-up", "a test: outputs that are a unit in the last place larger", _round_up)
ROUNDS_OTHERS_UP = _backend("rounds-others-up", "a test: the same at other sizes than the usual one", _round_others_up)
