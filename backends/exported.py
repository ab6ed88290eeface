"""What backends share that take a module as a graph: exporting it, naming its operators, telling graphs apart.

Nothing looks at a graph's inputs again when it runs, so what it was built for is kept and asked for in `bind`.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from bakeoff.backends.backend import Requirement, Unsupported

if TYPE_CHECKING:
    import torch
    from torch import Tensor, fx, nn

INSTALL = "run in a checkout of bakeoff: make install, or pip install -e '.[cpu]' -c constraints.txt"
TORCH = Requirement("torch", INSTALL)


def export(module: "nn.Module", inputs: "Mapping[str, Tensor]") -> "torch.export.ExportedProgram":
    """The module as one graph with static shapes.

    Each input must be a tensor object of its own: `torch.export` merges inputs that are the same object.
    """
    import torch

    return torch.export.export(module, tuple(inputs.values()), strict=False)


def check_not_quantised(module: "nn.Module", who: str, instead: str) -> None:
    """Raise Unsupported for torchao's weights, which a converter multiplies out: the engine would hold none of them."""
    if any(hasattr(weight, "__tensor_flatten__") for weight in module.parameters()):
        raise Unsupported(f"{who} takes torchao's weights for plain ones and stores them in full; {instead}")


def program_key(program: "torch.export.ExportedProgram", graph: str, *settings: object) -> str:
    """Cache key of an artifact: a hash of the graph, of every tensor in it (buffers and constants too), of settings."""
    from bakeoff.models.weights import state_digest

    return hashlib.sha256(f"{graph} {state_digest(tensors_of(program))} {settings}".encode()).hexdigest()[:16]


def tensors_of(program: "torch.export.ExportedProgram") -> "dict[str, Tensor]":
    """Parameters, buffers and constants by the names that AOTInductor calls them.

    It takes torchao's apart (torch/_functorch/_aot_autograd/subclass_parametrization.py).
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


def input_layouts(inputs: "Mapping[str, Tensor]") -> dict[str, str]:
    """Dtype, shape, strides and device of each input, as text: what an engine relies on and does not check itself."""
    return {name: _layout(tensor) for name, tensor in inputs.items()}


def _layout(tensor: "Tensor") -> str:
    strides = "" if tensor.is_contiguous() else f" with strides {list(tensor.stride())}"
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}{strides} on {tensor.device.type}"


def check_layouts(wanted: Mapping[str, str], inputs: "Mapping[str, Tensor]") -> None:
    """Raise Unsupported, naming the first, for inputs in other `input_layouts` or another order than `wanted`."""
    found = input_layouts(inputs)
    if list(found) != list(wanted):
        raise Unsupported(f"the engine was built for the inputs {', '.join(wanted)}, it was given {', '.join(found)}")
    for name, form in wanted.items():
        if found[name] != form:
            raise Unsupported(f"the engine was built for {name} as {form}, it was given {found[name]}")


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
    """Hash of operators, arguments and shapes of the graphs, in order; weights and file names do not enter it."""
    digest = hashlib.sha256()
    for graph in graphs:
        for node in graph.nodes:
            value = node.meta.get("val", node.meta.get("example_value"))
            shape = (tuple(value.shape), str(value.dtype)) if hasattr(value, "shape") else ""
            digest.update(f"{node.op} {_name(node)} {node.args} {sorted(node.kwargs.items())} {shape}\n".encode())
    return digest.hexdigest()[:16]


_APART = ".constants.safetensors"


def save_weights(tensors: "Mapping[str, Tensor]", folder: Path, program: str) -> tuple[str, ...]:
    """Weights of a program as safetensors; gives the files that hold them all, its own first.

    What an earlier program of the folder has under the same name with the same values is not stored twice. Safetensors
    holds no two names of one memory: those become copies.
    """
    import torch
    from safetensors.torch import load_file, save_file

    left = {name: tensor.detach() for name, tensor in tensors.items()}
    files = []
    for path in sorted(folder.glob(f"*{_APART}")):
        earlier = load_file(path)
        known = [name for name, tensor in left.items() if name in earlier and torch.equal(earlier[name], tensor.cpu())]
        files += [path.name] if known else []
        left = {name: tensor for name, tensor in left.items() if name not in known}
    if not left:
        return tuple(files)
    seen: set[int] = set()
    whole: dict[str, Tensor] = {}
    for name, tensor in left.items():
        place = tensor.untyped_storage().data_ptr()
        whole[name] = tensor.contiguous().clone() if place in seen else tensor.contiguous()
        seen.add(place)
    save_file(whole, folder / f"{program}{_APART}")
    return f"{program}{_APART}", *files
