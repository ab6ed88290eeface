"""Builds a brought model in a worker, behind a `forward` that takes tensors by position and returns a tuple of tensors.

The conversion of arguments and results is compiled into that `forward` once, as straight-line Python, so that a
compiler traces the module's own call and nothing else, and eager spends no time on taking trees apart.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, is_dataclass
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from bakeoff.models.brought.about import GIVEN, About, InputSet, read_about
from bakeoff.models.brought.method import WithBuffers
from bakeoff.models.brought.spec import component_of
from bakeoff.models.component import Component, TensorSpec, Workload
from bakeoff.models.errors import BakeoffError
from bakeoff.models.signature import (
    Constant,
    Entries,
    Fields,
    Items,
    Node,
    Signature,
    TensorLeaf,
    class_at,
    made_of,
    rebuild,
)
from bakeoff.models.weights import fingerprint
from bakeoff.record.source import check_unchanged
from bakeoff.worker.brought.load import load_module
from bakeoff.worker.subject import draw


class Flat(nn.Module):
    """Takes a call's tensors by position, calls `module` as the user did, and returns the tensors of the result."""

    def __init__(self, module: nn.Module, call: Signature, result: Node) -> None:
        super().__init__()
        self.module = module
        self._call = compile_call(call, result)

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        return self._call(self.module, *tensors)


def compile_call(call: Signature, result: Node) -> Callable[..., tuple[Tensor, ...]]:
    """Compile a function from the module and the call's tensors, in order, to the result's tensors, in order."""
    names = {name: f"t{index}" for index, name in enumerate(call.names)}
    classes: dict[str, Any] = {}
    arguments = [_expression(node, names, classes) for node in call.args]
    keywords = [f"{name!r}: {_expression(node, names, classes)}" for name, node in call.kwargs.items()]
    given = ", ".join(filter(None, [", ".join(arguments), f"**{{{', '.join(keywords)}}}" if keywords else ""]))
    outputs = "".join(f"{path}, " for path in _paths(result, "result"))
    lines = [
        f"def call({', '.join(['module', *names.values()])}):",
        f"    result = module({given})",
        f"    return ({outputs})",
    ]
    space: dict[str, Any] = dict(classes)
    exec(compile("\n".join(lines), "<call of a brought model>", "exec"), space)  # names and literals of trees alone
    return space["call"]


def _expression(node: Node, names: dict[str, str], classes: dict[str, Any]) -> str:
    """Return the node as a Python expression, and add the classes that it constructs to `classes`."""
    match node:
        case TensorLeaf(name):
            return names[name]
        case Constant(value):
            return f"float({str(value)!r})" if isinstance(value, float) else repr(value)
        case Items(kind, items):
            inner = "".join(f"{_expression(part, names, classes)}, " for part in items)
            return f"[{inner}]" if kind == "list" else f"({inner})"
        case Entries(entries):
            return (
                "{" + ", ".join(f"{key!r}: {_expression(part, names, classes)}" for key, part in entries.items()) + "}"
            )
        case Fields(path, entries):
            made = f"c{len(classes)}"
            cls = class_at(path)
            if issubclass(cls, Enum):
                classes[made] = rebuild(node, {})
                return made
            classes[made] = _maker(cls)
            return f"{made}(**{_expression(Entries(entries), names, classes)})"


def _maker(cls: Any) -> Callable[..., Any]:
    """Return a function that makes an object from its fields by name; this is the class itself if it takes them."""
    if is_dataclass(cls) or issubclass(cls, tuple):
        return cls
    return lambda **fields: made_of(cls, fields)


def _paths(node: Node, path: str) -> list[str]:
    """Return the Python expressions of all tensors in a result, in order; `path` is the expression of the result."""
    match node:
        case TensorLeaf():
            return [path]
        case Items(_, items):
            return [found for index, part in enumerate(items) for found in _paths(part, f"{path}[{index}]")]
        case Entries(entries):
            return [found for key, part in entries.items() for found in _paths(part, f"{path}[{key!r}]")]
        case Fields(_, entries):
            return [found for key, part in entries.items() for found in _paths(part, f"{path}.{key}")]
    return []


def open_network(folder: str) -> "Network":
    """Return the model that a folder describes. Raises BakeoffError if the folder has no readable description."""
    return Network(Path(folder), read_about(Path(folder)))


@dataclass(frozen=True)
class Network:
    """A described model, which builds its module for each workload, and its inputs."""

    folder: Path
    about: About

    def build(self, _config: Any, workload: str, _batch: int = 1) -> nn.Module:
        """Return the module with its own weights, as it was given, on the CPU, without gradients.

        Raises BakeoffError if the source no longer gives the module that was described.
        """
        described = self.about.input_set(workload)
        check_unchanged(self.about.name, self.about.source)
        model, _ = load_module(self.about.source, self.about.seed)
        module, _ = as_eager(model.module)
        found = fingerprint(module)
        if found != self.about.weights:
            raise BakeoffError(
                f"{self.about.name}: its weights are not those that were described; the factory must give the same "
                f"weights each time; after a change of its weights file delete {self.folder}",
                code="bad-user-code",
            )
        if self.about.buffers:
            module = WithBuffers(module, self.about.buffers)
        return Flat(module, described.call, described.result)

    @cached_property
    def component(self) -> Component:
        """The model as a component."""
        return component_of(self.folder)

    def inputs(self, workload: Workload) -> "GivenInputs":
        """Return the given inputs of a workload, and others like them."""
        return GivenInputs(self.about.input_set(workload.name), workload, self._given)

    @cached_property
    def _given(self) -> dict[str, Tensor]:
        return load_file(self.folder / GIVEN)


@dataclass(frozen=True, slots=True)
class GivenInputs:
    """Inputs as they were given or recorded, and others whose values are drawn from them.

    Of several calls the first half, at least two, is for checks and the rest for calibration. If more inputs are
    needed, the values of each are drawn with replacement from those of a checked call, so that integers stay within the
    given range and the distribution is the same. So are those of another size or batch, for which held values are cut,
    or repeated from the first one on.
    """

    described: InputSet
    workload: Workload
    given: dict[str, Tensor]
    """Tensors by key: `SET/CALL/NAME`, and `returned_key` for outputs."""

    @property
    def checked_calls(self) -> int:
        return max(min(2, self.described.calls), -(-self.described.calls // 2))

    def checked(self, seed: int, index: int) -> dict[str, Tensor]:
        if index < self.checked_calls and not self._other_shapes:
            return {spec.name: self._given(index, spec) for spec in self.workload.inputs}
        shapes = f":{[list(spec.shape) for spec in self.workload.inputs]}" if self._other_shapes else ""
        return {
            spec.name: _like(self._given(index % self.checked_calls, spec), spec, f"{seed}:{index}{shapes}:{spec.name}")
            for spec in self.workload.inputs
        }

    def calibration(self, seed: str) -> dict[str, Tensor]:
        number, spare = _number(seed), self.described.calls - self.checked_calls
        call = self.checked_calls + number % spare if spare else 0
        given = {spec.name: self._given(call, spec) for spec in self.workload.inputs}
        if spare and not self._other_shapes:
            return given
        return {spec.name: _like(given[spec.name], spec, f"{seed}:{spec.name}") for spec in self.workload.inputs}

    def keyed(self, key: Callable[[str], str]) -> dict[str, Tensor]:
        """Return one of the checked calls or, if there is only one, values drawn from it."""
        number = int(draw(TensorSpec("inputs", (1,), "uniform"), key("inputs")).item() * 2**24)
        return self.checked(number, number % self.checked_calls if self.checked_calls > 1 else 1)

    def one(self, spec: TensorSpec, key: str) -> Tensor:
        return _like(self._given(0, spec), spec, key)

    def returned(self) -> dict[str, Tensor]:
        if self._other_shapes:
            return {}
        keys = {spec.name: returned_key(self.described.name, spec.name) for spec in self.workload.outputs}
        return {name: self.given[key] for name, key in keys.items() if key in self.given}

    @property
    def _other_shapes(self) -> bool:
        """Whether the workload's shapes differ from the given ones, because it is of another size or batch."""
        return any(self._given(0, spec).shape != spec.shape for spec in self.workload.inputs)

    def _given(self, call: int, spec: TensorSpec) -> Tensor:
        return self.given[f"{self.described.name}/{call}/{spec.name}"]


def returned_key(workload: str, name: str) -> str:
    """Return the key of output `name` of the user's own first call."""
    return f"{workload}/returned/{name}"


def as_eager(module: nn.Module) -> tuple[nn.Module, list[str]]:
    """Return the module without its author's torch.compile around it or its layers, and a note if there was any."""
    found: Any = getattr(module, "_orig_mod", module)
    layers = [each for each in found.modules() if getattr(each, "_compiled_call_impl", None) is not None]
    for each in layers:
        each._compiled_call_impl = None
    if found is module and not layers:
        return module, []
    return found, ["it came compiled by torch.compile, which is taken off: each row compiles it anew, or not at all"]


def _like(recorded: Tensor, spec: TensorSpec, key: str) -> Tensor:
    """Return a tensor of the spec's shape with values drawn from a recorded one, or its own values if held."""
    if spec.held or not recorded.numel():
        return _resized(recorded, spec.shape)
    generator = torch.Generator().manual_seed(_number(key))
    return recorded.flatten()[torch.randint(0, recorded.numel(), spec.shape, generator=generator)]


def _resized(given: Tensor, shape: Sequence[int]) -> Tensor:
    """Return the tensor cut, or repeated from its first values on, along each axis whose size differs."""
    for axis, size in enumerate(shape):
        if given.shape[axis] != size:
            given = given.index_select(axis, torch.arange(size) % given.shape[axis])
    return given


def _number(key: str) -> int:
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:7])
