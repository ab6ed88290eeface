"""External operators: submodules that PyTorch runs between TensorRT's engines, each as one custom operator.

`external=blocks.3.attention` replaces that submodule by a call of one operator, `bakeoff::external_NAME_HASH`, which
takes the submodule's tensors and weights and runs its exported graph. TensorRT has no converter for it, so
torch_tensorrt's partitioner leaves the call to PyTorch. The operator contains no weights: they remain parameters of the
program. A saved program refers to its operators by name, so their graphs are saved beside it, and are registered before
it is loaded.
"""

import copy
import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MethodType
from typing import TYPE_CHECKING, Any

from bakeoff.backends.backend import Unsupported
from bakeoff.backends.graphs import graph_hash, program_key
from bakeoff.backends.torch_internals import fake_tensors

if TYPE_CHECKING:
    import torch
    from torch import Tensor, fx, nn

NAMESPACE = "bakeoff"
_ENDING = ".pt2"


@dataclass(frozen=True, slots=True)
class ExternalOperator:
    """A submodule as an operator: it takes the tensors of a call, then the weights, and returns a list of tensors."""

    path: str
    """Path of the submodule; "" for an operator that was loaded from a file."""
    name: str
    program: "torch.export.ExportedProgram"


@dataclass(frozen=True, slots=True)
class _Values:
    """A nested value with its tensors taken out; None, numbers and other leaves stay in it."""

    spec: Any
    leaves: tuple[Any, ...]
    """Leaves of the nested value, with None in place of each tensor."""
    tensors: "tuple[Tensor, ...]"
    is_tensor: tuple[bool, ...]

    @property
    def form(self) -> object:
        """Structure, constants, shapes, strides and dtypes; equal for two values that differ only in their tensors'
        elements."""
        return (
            str(self.spec),
            str(self.leaves),
            [(tuple(tensor.shape), tensor.stride(), tensor.dtype) for tensor in self.tensors],
        )

    def filled(self, tensors: "Sequence[Tensor]") -> Any:
        """Return the nested value with these tensors in place of its own."""
        return _fill(self.spec, self.leaves, self.is_tensor, tensors)


def externalise(
    module: "nn.Module", inputs: "Mapping[str, Tensor]", paths: str
) -> "tuple[nn.Module, tuple[ExternalOperator, ...]]":
    """Return a copy of the module that calls one registered operator for each submodule of `paths`, joined by `+`.

    The copy shares its weights with the module, which is not changed. Raises Unsupported, naming the submodule, if
    there is no such submodule, or if it is never called, is called in different forms, cannot be exported, or changes
    its arguments.
    """
    wanted = [path for path in paths.split("+") if path]
    if not wanted:
        return module, ()
    _check_paths(module, wanted)
    calls = _record_calls(module, inputs, wanted)
    operators = []
    for path in wanted:
        body = module.get_submodule(path)
        arguments, outputs = _one_form(path, calls[path])
        program = _export(path, body, arguments)
        operator = ExternalOperator(path, _name(path, program), program)
        register(operator)
        operators.append(operator)
        module = _replaced(module, path, _wrap(body, operator.name, outputs))
    return module, tuple(operators)


def asked(operators: Sequence[ExternalOperator]) -> dict[str, str]:
    """Return the qualified name of each operator, by the option that asks for it."""
    return {f"external={operator.path}": qualified_name(operator.name) for operator in operators}


def qualified_name(name: str) -> str:
    """Return an operator's name in graphs and in torch_tensorrt's logs."""
    return f"torch.ops.{NAMESPACE}.{name}.default"


def register(operator: ExternalOperator) -> None:
    """Register the operator in this process, with a fake for tracing, unless it is registered already."""
    import torch

    if hasattr(getattr(torch.ops, NAMESPACE), operator.name):
        return
    graph = strip_guards(operator.program.module())
    (results,) = operator.program.graph.find_nodes(op="output")[0].args
    metas = [(tuple(node.meta["val"].shape), node.meta["val"].stride(), node.meta["val"].dtype) for node in results]

    def run(tensors: "list[Tensor]") -> "list[Tensor]":
        return _without_aliases(tensors, graph(*tensors))

    def fake(tensors: "list[Tensor]") -> "list[Tensor]":
        device = tensors[0].device
        return [torch.empty_strided(shape, stride, dtype=dtype, device=device) for shape, stride, dtype in metas]

    schema = "(Tensor[] tensors) -> Tensor[]"
    registered = torch.library.custom_op(f"{NAMESPACE}::{operator.name}", run, mutates_args=(), schema=schema)
    registered.register_fake(fake)


def save_operators(operators: Sequence[ExternalOperator], program: Path) -> None:
    """Save the graphs of a program's operators beside it, as `STEM.NAME.pt2`."""
    import torch

    for operator in operators:
        operator.program.example_inputs = None
        torch.export.save(operator.program, program.with_name(f"{program.stem}.{operator.name}{_ENDING}"))


def operator_files(program: Path) -> dict[str, Path]:
    """Return the files of the operators that were saved beside a program, by operator name."""
    files = sorted(program.parent.glob(f"{program.stem}.external_*{_ENDING}"))
    return {file.name.removeprefix(f"{program.stem}.").removesuffix(_ENDING): file for file in files}


def register_files(program: Path) -> None:
    """Register the operators that were saved beside a program; call it before the program is loaded.

    Raises ValueError for a file whose graph does not match the hash in its name: other programs of this process may use
    the name.
    """
    import torch

    for name, file in operator_files(program).items():
        loaded = torch.export.load(file)
        if not name.endswith(f"_{_digest(loaded)}"):
            raise ValueError(f"{file.name} holds another operator than its name says")
        register(ExternalOperator("", name, loaded))


def strip_guards(module: "fx.GraphModule") -> "fx.GraphModule":
    """Remove the guards that torch adds when it loads a program, in place, and return the module.

    The guards compare shapes and dtypes of all inputs in Python at each call, 3 us an input, a cost that no other
    engine has; callers check the layouts once, when they bind.
    """
    for node in module.graph.find_nodes(op="call_module", target="_guards_fn"):
        module.graph.erase_node(node)
    module.recompile()
    return module


def _check_paths(module: "nn.Module", wanted: Sequence[str]) -> None:
    known = [name for name, _ in module.named_modules(remove_duplicate=False) if name]
    for path in wanted:
        if path not in known:
            near = difflib.get_close_matches(path, known, 3) or known[:3]
            raise Unsupported(f"external={path}: there is no such submodule; near: {', '.join(near) or 'none at all'}")
    for path in wanted:
        inside = [other for other in wanted if other.startswith(f"{path}.")]
        if inside or wanted.count(path) > 1:
            raise Unsupported(f"external={path}: {(inside or [path])[0]} is named twice or a part of it; keep one")


def _record_calls(
    module: "nn.Module", inputs: "Mapping[str, Tensor]", wanted: Sequence[str]
) -> dict[str, list[tuple[_Values, _Values]]]:
    """Return arguments and outputs of every call of the submodules, as fake tensors: nothing is computed.

    Raises Unsupported if the module cannot run with fake tensors.
    """
    import torch

    calls: dict[str, list[tuple[_Values, _Values]]] = {path: [] for path in wanted}

    def record(path: str) -> Any:
        def hook(_module: "nn.Module", args: Any, kwargs: Any, outputs: Any) -> None:
            calls[path].append((_flatten((args, kwargs)), _flatten(outputs)))

        return hook

    hooks = [module.get_submodule(path).register_forward_hook(record(path), with_kwargs=True) for path in wanted]
    mode = fake_tensors()
    try:
        with torch.no_grad(), mode:
            module(*(mode.from_tensor(tensor) for tensor in inputs.values()))
    except Exception as error:  # whatever the module's code raises for tensors without values
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise Unsupported(
            f"external={'+'.join(wanted)}: the module cannot be traced, so its calls are not known: {reason}"
        ) from error
    finally:
        for one in hooks:
            one.remove()
    return calls


def _one_form(path: str, calls: list[tuple[_Values, _Values]]) -> tuple[_Values, _Values]:
    """Return the arguments and outputs of a submodule's calls, which must all have the same form.

    Raises Unsupported if it is never called, if its calls differ, or if they cannot be those of an operator.
    """
    if not calls:
        raise Unsupported(f"external={path}: its forward is never called; name a submodule that is called")
    arguments, outputs = calls[0]
    for values, what in ((arguments, "takes"), (outputs, "returns")):
        for leaf in values.leaves:
            if not isinstance(leaf, _constants()):
                kind = type(leaf).__name__
                raise Unsupported(
                    f"external={path}: it {what} a {kind}, which is no tensor or number; name another one"
                )
    if any(other.form != arguments.form or found.form != outputs.form for other, found in calls[1:]):
        raise Unsupported(
            f"external={path}: its {len(calls)} calls differ in shapes or constants, and an operator has one form; "
            "name the submodules inside it"
        )
    if not arguments.tensors or not outputs.tensors:
        raise Unsupported(f"external={path}: it takes or returns no tensor; name the submodule around it")
    return arguments, outputs


def _constants() -> tuple[type, ...]:
    """Return the types of arguments and outputs, besides tensors, that an operator keeps as constants."""
    import torch

    return (type(None), bool, int, float, str, torch.dtype, torch.device)


def _flatten(value: Any) -> _Values:
    from torch import Tensor
    from torch.utils import _pytree as pytree

    leaves, spec = pytree.tree_flatten(value)
    is_tensor = tuple(isinstance(leaf, Tensor) for leaf in leaves)
    constants = tuple(None if tensor else leaf for leaf, tensor in zip(leaves, is_tensor, strict=True))
    tensors = tuple(leaf for leaf, tensor in zip(leaves, is_tensor, strict=True) if tensor)
    return _Values(spec, constants, tensors, is_tensor)


def _fill(spec: Any, leaves: Sequence[Any], is_tensor: Sequence[bool], tensors: "Sequence[Tensor]") -> Any:
    from torch.utils import _pytree as pytree

    remaining = iter(tensors)
    return pytree.tree_unflatten([next(remaining) if one else leaf for leaf, one in zip(leaves, is_tensor)], spec)  # noqa: B905  # dynamo


def _weights(body: "nn.Module") -> "Iterator[tuple[str, Tensor]]":
    yield from body.named_parameters()
    yield from body.named_buffers()


def _export(path: str, body: "nn.Module", arguments: _Values) -> "torch.export.ExportedProgram":
    """Export the submodule as a program without weights, which become inputs after the tensors of the call.

    Raises Unsupported if it cannot be exported, or changes its arguments or buffers in place.
    """
    import torch
    from torch import nn

    weights = dict(_weights(body))
    count, names = len(arguments.tensors), list(weights)

    class Functional(nn.Module):
        def forward(self, *tensors: "Tensor") -> "tuple[Tensor, ...]":
            args, kwargs = arguments.filled(tensors[:count])
            values = dict(zip(names, tensors[count:], strict=True))
            return _flatten(torch.func.functional_call(body, values, args, kwargs)).tensors

    examples = [
        torch.empty_strided(one.shape, one.stride(), dtype=one.dtype, device=one.device) for one in arguments.tensors
    ]
    given = (*examples, *(weight.detach() for weight in weights.values()))
    try:
        program = torch.export.export(Functional(), given, strict=False)
    except Exception as error:  # whatever the submodule's code and torch.export raise
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise Unsupported(f"external={path}: it cannot be exported: {reason}; name another submodule") from error
    signature = program.run_decompositions({}).graph_signature  # an exported graph states no changes before that
    if signature.user_inputs_to_mutate or signature.buffers_to_mutate:
        raise Unsupported(f"external={path}: it changes its arguments or buffers in place; name another submodule")
    return program


def _digest(program: "torch.export.ExportedProgram") -> str:
    return program_key(program, graph_hash([program.graph]))[:12]


def _name(path: str, program: "torch.export.ExportedProgram") -> str:
    return f"external_{re.sub(r'[^A-Za-z0-9]+', '_', path)[-40:].strip('_')}_{_digest(program)}"


def _without_aliases(tensors: "Sequence[Tensor]", outputs: "Sequence[Tensor]") -> "list[Tensor]":
    """Return the outputs, with copies of those that share memory with an input or another output.

    A custom operator must not return such outputs.
    """
    seen = {tensor.untyped_storage().data_ptr() for tensor in tensors}
    found = []
    for output in outputs:
        address = output.untyped_storage().data_ptr()
        found.append(output.clone() if address in seen else output)
        seen.add(address)
    return found


def _wrap(body: "nn.Module", name: str, outputs: _Values) -> "nn.Module":
    """Return a module that calls the operator in place of the submodule, and contains the submodule's weights."""
    import torch
    from torch import Tensor, nn
    from torch.utils import _pytree as pytree

    operator = getattr(getattr(torch.ops, NAMESPACE), name).default
    spec, leaves, is_tensor = outputs.spec, outputs.leaves, outputs.is_tensor

    class External(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = body

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
            results = operator([*tensors, *self.body.parameters(), *self.body.buffers()])
            return _fill(spec, leaves, is_tensor, results)

    return External()


def _replaced(module: "nn.Module", path: str, new: "nn.Module") -> "nn.Module":
    """Return a shallow copy of the module with the submodule `new` at `path`."""
    head, _, rest = path.partition(".")
    changed = copy.copy(module)
    changed._modules = dict(module._modules)
    for name, value in vars(module).items():
        if isinstance(value, MethodType) and value.__self__ is module:
            setattr(changed, name, MethodType(value.__func__, changed))
    changed._modules[head] = _replaced(module.get_submodule(head), rest, new) if rest else new
    return changed
