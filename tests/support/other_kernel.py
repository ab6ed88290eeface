"""A backend whose engine computes attention with a fixed kernel, whatever torch's settings say."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bakeoff.backends.backend import Backend, BuildContext, Engine, ModuleEngine


@dataclass(frozen=True, slots=True)
class Options:
    fused: bool = True


def _flash(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(query, key, value)[0]


def _build(module: nn.Module, inputs: Mapping[str, Tensor], options: Options, _context: BuildContext) -> Engine:
    program = torch.export.export(module, tuple(inputs.values()), strict=False)
    if not options.fused:  # torch decomposes a CPU's attention into products and a softmax
        return ModuleEngine(program.run_decompositions().module())
    graph = program.module()
    for node in graph.graph.nodes:
        if node.target is torch.ops.aten.scaled_dot_product_attention.default:
            node.target = _flash
    graph.recompile()
    return ModuleEngine(graph)


FIXED = Backend(
    name="fixed-kernel",
    summary="attention's kernel is fixed in the graph",
    build=_build,
    options=Options,
    runs_eagerly=True,
)
