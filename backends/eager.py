"""Uncompiled PyTorch, which runs operator by operator: the baseline of all speed-ups."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bakeoff.backends.backend import (
    Backend,
    BuildContext,
    Capability,
    Engine,
    Evidence,
    Footprint,
    ModuleEngine,
    NoOptions,
    any_size,
    overlaps_always,
)
from bakeoff.backends.graphs import TORCH

if TYPE_CHECKING:
    from torch import Tensor, nn


def _build(module: "nn.Module", _inputs: "Mapping[str, Tensor]", _options: NoOptions, _context: BuildContext) -> Engine:
    return ModuleEngine(module, rebinding=True)


BACKEND = Backend(
    name="eager",
    summary="PyTorch operator by operator; the baseline",
    build=_build,
    baseline=True,
    capability=Capability(requires=(TORCH,), unsupported_sizes=any_size),
    evidence=Evidence(runs_eagerly=True, same_when_traced=("cpu", "cuda")),
    footprint=Footprint(overlaps=overlaps_always),
)
