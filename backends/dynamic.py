"""Graphs for a range of sizes: the dynamic shapes of an export, and the shapes of outputs for given inputs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any

from bakeoff.models.component import DynamicAxis

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

Shape = tuple[int, ...]


def dynamic_shapes(module: "nn.Module", names: Sequence[str], sizes: Sequence[DynamicAxis]) -> Any:
    """Return the dynamic shapes of `torch.export.export` for inputs of these names; None where no axis has a range.

    torch finds out which axes are always equal, and whether a size must be a multiple of something; it raises where the
    module's code needs one size.
    """
    if not sizes:
        return None
    from torch.export import Dim

    shapes: list[dict[int, Any]] = [{} for _ in names]
    for one in sizes:
        shapes[names.index(one.input)][one.axis] = Dim.DYNAMIC(min=one.min, max=one.max)
    # All tensors of a parameter `*tensors` are one argument.
    gathered = any(one.kind is Parameter.VAR_POSITIONAL for one in signature(module.forward).parameters.values())
    return (tuple(shapes),) if gathered else tuple(shapes)


def output_shapes(
    program: "torch.export.ExportedProgram",
) -> "Callable[[Sequence[Tensor]], tuple[Shape, ...]]":
    """Return a function from inputs in order to the shapes of the outputs, by the expressions that the export found."""
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    inputs = [values[name].shape for name in program.graph_signature.user_inputs]
    outputs = [values[name].shape for name in program.graph_signature.user_outputs]

    def shapes(tensors: "Sequence[Tensor]") -> tuple[Shape, ...]:
        sizes = _solved(inputs, [tensor.shape for tensor in tensors])
        return tuple(tuple(_value(size, sizes) for size in shape) for shape in outputs)

    return shapes


def _solved(shapes: Iterable[Sequence[Any]], found: Iterable[Sequence[int]]) -> Mapping[Any, int]:
    """Each symbol's value. A size may be an expression of one symbol, such as a multiple of it."""
    import sympy

    sizes: dict[Any, int] = {}
    for shape, real in zip(shapes, found, strict=True):
        for size, value in zip(shape, real, strict=True):
            if not isinstance(size, int):
                expression = size.node.expr
                (symbol,) = expression.free_symbols
                sizes.setdefault(symbol, int(sympy.solve(expression - value, symbol)[0]))
    return sizes


def _value(size: Any, sizes: Mapping[Any, int]) -> int:
    return size if isinstance(size, int) else int(size.node.expr.subs(sizes))
