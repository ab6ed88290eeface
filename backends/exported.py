"""What back ends share that take a module as a graph: exporting it, naming its operators, telling graphs apart."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from bakeoff.backends.backend import Requirement

if TYPE_CHECKING:
    import torch
    from torch import Tensor, fx, nn

TORCH = Requirement("torch", "pip install 'bakeoff[cpu]' or 'bakeoff[gpu]'")


def export(module: "nn.Module", inputs: "Mapping[str, Tensor]") -> "torch.export.ExportedProgram":
    """The module as one graph with static shapes.

    Each input must be a tensor object of its own: `torch.export` merges inputs that are the same object.
    """
    import torch

    return torch.export.export(module, tuple(inputs.values()), strict=False)


def operators(graph: "fx.Graph") -> Counter[str]:
    """The operators a graph calls, by name, with their number."""
    return Counter(_name(node) for node in graph.nodes if node.op in ("call_function", "call_method"))


def _name(node: "fx.Node") -> str:
    target = node.target
    if isinstance(target, str):
        return target
    name = str(target) if "::" in str(target) or "." in str(target) else getattr(target, "__name__", str(target))
    return name.removesuffix(".default")


def graph_hash(graphs: "Iterable[fx.Graph]") -> str:
    """Of what the graphs compute and on which shapes; of no weight and no name of a file."""
    digest = hashlib.sha256()
    for graph in graphs:
        for node in graph.nodes:
            value = node.meta.get("val", node.meta.get("example_value"))
            shape = (tuple(value.shape), str(value.dtype)) if hasattr(value, "shape") else ""
            digest.update(f"{node.op} {_name(node)} {node.args} {sorted(node.kwargs.items())} {shape}\n".encode())
    return digest.hexdigest()[:16]
