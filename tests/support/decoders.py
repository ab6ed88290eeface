"""Modules with random weights, latents and checks for the tests of the image and audio decoders."""

from typing import Any

import torch
from torch import Tensor, nn

from bakeoff.models.component import Component
from bakeoff.models.weights import randomize


def drawn(component: Component, config: Any, seed: int = 0) -> nn.Module:
    """The decoder with random weights."""
    network = component.network_module()
    module: nn.Module = network.build(config, "decode")
    randomize(module, seed, getattr(network, "initial_std", None))
    return module


def latent(component: Component, config: Any, batch: int = 1, seed: int = 1) -> Tensor:
    """Normal latents of the shape that the spec states."""
    shape = component.workload(config, "decode", batch).inputs[0].shape
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def on_meta(component: Component, config: Any, batch: int = 1) -> tuple[nn.Module, Tensor]:
    """The decoder and an input on the meta device: shapes and counts without memory."""
    with torch.device("meta"):
        module = component.network_module().build(config, "decode", batch)
        return module, torch.empty(component.workload(config, "decode", batch).inputs[0].shape)


def decode(module: nn.Module, z: Tensor) -> Tensor:
    with torch.no_grad():
        (output,) = module(z)
    result: Tensor = output
    return result


def error(found: Tensor, wanted: Tensor) -> float:
    """Relative L2 error."""
    return float(((found.double() - wanted).norm() / wanted.norm()).detach())
