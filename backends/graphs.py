"""Helpers for backends that build from an exported graph: export, ranges of sizes, operator names, hashes, layouts.

A built graph does not check its inputs when it runs. So engines keep the layouts they were built for, and `bind`
compares them (`check_layouts`).
"""

import hashlib
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bakeoff.backends.backend import Call, Engine, Requirement, Unsupported
from bakeoff.backends.install import extra_command
from bakeoff.backends.port import NOTHING_CARRIED, Port, bound_port
from bakeoff.models.component import DynamicAxis

if TYPE_CHECKING:
    import torch
    from torch import Tensor, fx, nn

INSTALL = f"run {extra_command('cpu')}"
TORCH = Requirement("torch", INSTALL)
Shape = tuple[int, ...]


def export(
    module: "nn.Module", inputs: "Mapping[str, Tensor]", sizes: Sequence[DynamicAxis] = ()
) -> "torch.export.ExportedProgram":
    """Export the module as one graph with static shapes, except for the axes in `sizes`.

    No tensor object may be passed as two inputs: `torch.export` would merge them into one input.
    """
    import torch

    shapes = dynamic_shapes(module, tuple(inputs), sizes)
    return torch.export.export(module, tuple(inputs.values()), dynamic_shapes=shapes, strict=False)


def check_not_quantised(module: "nn.Module", converter: str, advice: str) -> None:
    """Raise Unsupported if a weight is one of torchao's quantised tensors.

    A converter dequantises them, so that the engine would contain full weights and compute nothing in low precision.
    `converter` and `advice` are for the message.
    """
    if any(hasattr(weight, "__tensor_flatten__") for weight in module.parameters()):
        raise Unsupported(f"{converter} cannot keep weights quantised by torchao; {advice}")


def program_key(program: "torch.export.ExportedProgram", graph: str, *settings: object) -> str:
    """Return the cache key of an artifact: a hash of the graph, of all tensors (buffers and constants too), and of
    settings."""
    from bakeoff.models.weights import state_digest

    return hashlib.sha256(f"{graph} {state_digest(tensors_of(program))} {settings}".encode()).hexdigest()[:16]


def valued_hash(graph: "fx.GraphModule") -> str:
    """Return a hash of a graph that dynamo captured and of all its tensors, bit by bit: of everything a compiler can
    fold."""
    from torch import fx, uint8

    from bakeoff.models.weights import plain_tensors

    parts = [part.graph for part in graph.modules() if isinstance(part, fx.GraphModule)]
    digest = hashlib.sha256(graph_hash(parts).encode())
    for name, held in (*graph.named_parameters(remove_duplicate=False), *graph.named_buffers(remove_duplicate=False)):
        for key, tensor in plain_tensors(name, held):
            digest.update(f"{key} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(uint8).numpy().data)
    return digest.hexdigest()


def tensors_of(program: "torch.export.ExportedProgram") -> "dict[str, Tensor]":
    """Return the parameters, buffers and constants of a program, by AOTInductor's names for them.

    AOTInductor splits each of torchao's tensors into its plain parts, named `OWNER.parametrizations.LEAF.originalINDEX`
    (torch/_functorch/_aot_autograd/subclass_parametrization.py).
    """
    from torch import Tensor

    from bakeoff.models.weights import plain_tensors

    found: dict[str, Tensor] = {}
    for name, value in {**program.state_dict, **program.constants}.items():
        if hasattr(value, "__tensor_flatten__"):
            owner, dot, leaf = name.rpartition(".")
            for index, (_, tensor) in enumerate(plain_tensors(name, value)):
                found[f"{owner}{dot}parametrizations.{leaf}.original{index}"] = tensor
        elif isinstance(value, Tensor):
            found[name] = value
    return found


def input_layouts(inputs: "Mapping[str, Tensor]", sizes: Sequence[DynamicAxis] = ()) -> dict[str, str]:
    """Return dtype, shape, strides and device of each input as text: what an engine was built for and does not check
    itself.

    For example `float32 [1, 16, 32] on cpu`; strides are named only if the tensor is not contiguous. A size within the
    range of one of `sizes` is written as that range: `float32 [1 to 8, 16, 32] on cpu`.
    """
    return {name: _layout(tensor, [one for one in sizes if one.input == name]) for name, tensor in inputs.items()}


def _layout(tensor: "Tensor", sizes: Sequence[DynamicAxis]) -> str:
    shape: list[str] = [str(size) for size in tensor.shape]
    for one in sizes:
        if one.min <= tensor.shape[one.axis] <= one.max:
            shape[one.axis] = f"{one.min} to {one.max}"
    strides = "" if tensor.is_contiguous() else f" with strides {list(tensor.stride())}"
    return f"{str(tensor.dtype).removeprefix('torch.')} [{', '.join(shape)}]{strides} on {tensor.device.type}"


def check_layouts(
    expected: Mapping[str, str], inputs: "Mapping[str, Tensor]", sizes: Sequence[DynamicAxis] = ()
) -> None:
    """Raise Unsupported if names, order or `input_layouts` of the inputs differ from `expected`; name the first
    difference."""
    found = input_layouts(inputs, sizes)
    if list(found) != list(expected):
        raise Unsupported(
            f"the engine was built for the inputs {', '.join(expected)} in this order and got {', '.join(found)}; "
            "build another engine for other inputs"
        )
    for name, layout in expected.items():
        if found[name] != layout:
            raise Unsupported(
                f"the engine was built for {name} as {layout} and got {found[name]}; "
                "convert the input, or build another engine"
            )


class BoundEngine(Engine):
    """An engine for inputs of the layouts that it was built for, whose calls write into memory bound to them.

    A port with carried outputs has two bindings over swapped memory (`bound_port`).
    """

    __slots__ = ()
    layouts: Mapping[str, str]
    sizes: tuple[DynamicAxis, ...]

    @abstractmethod
    def results(self, inputs: "Mapping[str, Tensor]") -> "tuple[Tensor, ...]":
        """Return new memory for the outputs."""

    @abstractmethod
    def bind_to(self, inputs: "Mapping[str, Tensor]", memory: "Sequence[Tensor]") -> Call:
        """Return a call that reads the inputs and writes the outputs into `memory`."""

    def bind(self, inputs: "Mapping[str, Tensor]") -> Call:
        check_layouts(self.layouts, inputs, self.sizes)
        return self.bind_to(inputs, self.results(inputs))

    def port(
        self,
        inputs: "Mapping[str, Tensor]",
        outputs: Sequence[str],
        carried: Mapping[str, str] = NOTHING_CARRIED,
        shared: bool = False,
    ) -> Port:
        check_layouts(self.layouts, inputs, self.sizes)
        return bound_port(inputs, self.results(inputs), self.bind_to, outputs, carried, shared)


def operators(graph: "fx.Graph") -> Counter[str]:
    """Count how often a graph calls each operator, by name."""
    return Counter(_name(node) for node in graph.nodes if node.op in ("call_function", "call_method"))


def _name(node: "fx.Node") -> str:
    target = node.target
    if isinstance(target, str):
        return target
    name = str(target) if "::" in str(target) or "." in str(target) else getattr(target, "__name__", str(target))
    return name.removesuffix(".default")


def graph_hash(graphs: "Iterable[fx.Graph]") -> str:
    """Return a hash of the operators, arguments and shapes of the graphs, in order; weights and file names do not
    count."""
    digest = hashlib.sha256()
    for graph in graphs:
        for node in graph.nodes:
            value = node.meta.get("val", node.meta.get("example_value"))
            shape = (tuple(value.shape), str(value.dtype)) if hasattr(value, "shape") else ""
            digest.update(f"{node.op} {_name(node)} {node.args} {sorted(node.kwargs.items())} {shape}\n".encode())
    return digest.hexdigest()[:16]


_WEIGHTS_ENDING = ".constants.safetensors"


def save_weights(tensors: "Mapping[str, Tensor]", folder: Path, program: str) -> tuple[str, ...]:
    """Save a program's weights as safetensors; return the names of the files that together contain them, the new one
    first.

    A tensor that an earlier program of the folder stored under the same name with the same values is not stored again.
    Safetensors cannot store two names for one memory, so the second becomes a copy.
    """
    import torch
    from safetensors.torch import load_file, save_file

    left = {name: tensor.detach() for name, tensor in tensors.items()}
    files = []
    for path in sorted(folder.glob(f"*{_WEIGHTS_ENDING}")):
        earlier = load_file(path)
        known = [name for name, tensor in left.items() if name in earlier and torch.equal(earlier[name], tensor.cpu())]
        files += [path.name] if known else []
        left = {name: tensor for name, tensor in left.items() if name not in known}
    if not left:
        return tuple(files)
    seen: set[int] = set()
    stored: dict[str, Tensor] = {}
    for name, tensor in left.items():
        address = tensor.untyped_storage().data_ptr()
        stored[name] = tensor.contiguous().clone() if address in seen else tensor.contiguous()
        seen.add(address)
    save_file(stored, folder / f"{program}{_WEIGHTS_ENDING}")
    return f"{program}{_WEIGHTS_ENDING}", *files


def dynamic_shapes(module: "nn.Module", names: Sequence[str], sizes: Sequence[DynamicAxis]) -> Any:
    """Return the dynamic shapes of `torch.export.export` for inputs of these names; None if no axis has a range.

    torch finds out which axes are always equal, and whether a size must be a multiple of something; it raises if the
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
    """Return a function from inputs, in order, to the shapes of the outputs, by expressions found by the export."""
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    inputs = [values[name].shape for name in program.graph_signature.user_inputs]
    outputs = [values[name].shape for name in program.graph_signature.user_outputs]

    def shapes(tensors: "Sequence[Tensor]") -> tuple[Shape, ...]:
        sizes = _solved(inputs, [tensor.shape for tensor in tensors])
        return tuple(tuple(_value(size, sizes) for size in shape) for shape in outputs)

    return shapes


def _solved(shapes: Iterable[Sequence[Any]], found: Iterable[Sequence[int]]) -> Mapping[Any, int]:
    """Return the value of each symbol in `shapes`. A size may be an expression of one symbol, such as a multiple."""
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
