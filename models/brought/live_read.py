"""Reads a live module and its inputs from the folder that `live_write` made.

No pickle and no eval; what runs is source.py, the import of the classes and functions that live.json names, and
`__setstate__` of classes that have one. So such a folder is trusted as a Python file of the user is.
"""

import functools
import hashlib
import importlib.util
import sys
import types
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils.hooks import RemovableHandle

from bakeoff.models.brought import live_tensors
from bakeoff.models.brought.live_format import (
    INPUT_TENSORS,
    INPUTS,
    LIVE,
    MAIN,
    MAKERS,
    SCHEMA,
    SOURCE,
    WEIGHTS,
    Attributes,
    Call,
    DictEntry,
    Entry,
    FrozenSet,
    Import,
    Inputs,
    InstanceEntry,
    ListEntry,
    Live,
    Member,
    Method,
    ModuleEntry,
    Node,
    Partial,
    Ref,
    SetEntry,
    TensorEntry,
    Tuple,
    WeakRef,
)
from bakeoff.models.errors import BakeoffError, a_type
from bakeoff.models.signature import class_at, rebuild


def read_module(folder: Path) -> nn.Module:
    """The module of a live folder, on the CPU, in the mode (training or not) that it was written in.

    Raises BakeoffError: `not-readable` where the folder is not one of this version's or is damaged, `bad-user-code`
    where a class cannot be imported here.
    """
    return module_of(read_live(folder), folder, read_source(folder))


def read_inputs(folder: Path) -> dict[str, list[tuple[tuple[Any, ...], dict[str, Any]]]]:
    """The calls of every set of inputs, as positional and keyword arguments, on the CPU.

    Raises as `read_module` does.
    """
    inputs = _read_json(folder / INPUTS, Inputs)
    tensors = live_tensors.load(folder / INPUT_TENSORS, inputs.tensors)
    sets: dict[str, list[tuple[tuple[Any, ...], dict[str, Any]]]] = {}
    for name, calls in inputs.sets.items():
        sets[name] = []
        for index, signature in enumerate(calls):
            place = f"{name}/{index}/"
            own = {key.removeprefix(place): tensor for key, tensor in tensors.items() if key.startswith(place)}
            args = tuple(rebuild(node, own) for node in signature.args)
            sets[name].append((args, {key: rebuild(node, own) for key, node in signature.kwargs.items()}))
    return sets


def read_facts(folder: Path) -> dict[str, Any]:
    """What the user said beside: fields of bakeoff.models.brought.model.Model. Raises BakeoffError (`not-readable`)."""
    live = read_live(folder)
    return {name: getattr(live, name) for name in ("state", "keep_fp32", "hold", "place", "tolerance_fp32")}


def read_live(folder: Path) -> Live:
    """live.json. Raises BakeoffError (`not-readable`)."""
    return _read_json(folder / LIVE, Live)


def read_source(folder: Path) -> types.ModuleType | None:
    """source.py, imported under a name of its own; None where there is none. Raises BakeoffError (`bad-user-code`)."""
    path = (folder / SOURCE).absolute()
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BakeoffError(f"{path}: {error.strerror}; bring the module anew", "not-readable") from error
    name = f"bakeoff_live_{hashlib.sha256(str(path).encode() + content).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # a user's code
        del sys.modules[name]
        text = f"{path} cannot be imported: {type(error).__name__}: {error}"
        raise BakeoffError(" ".join(text.split()), code="bad-user-code") from error
    return module


def module_of(live: Live, folder: Path, source: types.ModuleType | None) -> nn.Module:
    """The module that live.json and weights.safetensors of `folder` describe. Raises as `read_module` does."""
    for place in live.import_folders:
        if place not in sys.path:
            sys.path.append(place)
    tensors = live_tensors.load(folder / WEIGHTS, live.tensors)
    try:
        made = _Graph(live.objects, tensors, source).whole(live.module)
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError, RecursionError) as error:
        text = f"{folder / LIVE} cannot be made into a module: {type(error).__name__}: {error}"
        raise BakeoffError(f"{' '.join(text.split())}; bring the module anew", "not-readable") from error
    if not isinstance(made, nn.Module):
        raise BakeoffError(f"{folder / LIVE} holds {a_type(type(made))}, no module", code="not-readable")
    return made


def _read_json(path: Path, kind: Any) -> Any:
    try:
        found = msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise BakeoffError(f"{path}: {error.strerror}; bring the module anew", "not-readable") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BakeoffError(f"{path}: {error}; bring the module anew", "not-readable") from error
    if found.schema != SCHEMA:
        text = f"{path} is of schema {found.schema}, this bakeoff reads {SCHEMA}; bring the module anew"
        raise BakeoffError(text, "not-readable")
    return found


class _Graph:
    """Objects by their index: each is made empty when it is first needed, then all are filled."""

    def __init__(self, entries: tuple[Entry, ...], tensors: dict[str, Tensor], source: types.ModuleType | None) -> None:
        self._entries, self._tensors, self._source = entries, tensors, source
        self._made: dict[int, Any] = {}

    def whole(self, root: Ref) -> Any:
        made = [self._empty(index) for index in range(len(self._entries))]
        pairs = list(zip(self._entries, made, strict=True))
        for entry, value in pairs:
            if not isinstance(entry, SetEntry | DictEntry):
                self._fill(entry, value)
        for entry, value in pairs:  # their keys may have a hash of what was filled before
            if isinstance(entry, SetEntry | DictEntry):
                self._fill(entry, value)
        for entry, value in reversed(pairs):  # the innermost first
            if isinstance(entry, InstanceEntry) and entry.state is not None:
                value.__setstate__(self.decode(entry.state))
            elif isinstance(entry, ModuleEntry):
                self._finish(entry, value)
        return self._made[root.id]

    def decode(self, node: Node) -> Any:
        """The value of a node; an object may still be empty."""
        match node:
            case Ref(index):
                return self._empty(index)
            case Import(path):
                return self._import(path)
            case Call(maker, args):
                return MAKERS[maker](*self._all(args))
            case Tuple(items):
                return self._all(items)
            case FrozenSet(items):
                return frozenset(self._all(items))
            case Member(cls, name, value):
                kind = self._import(cls)
                return kind(value) if name is None else kind[name]
            case Partial(function, args, kwargs):
                named = {key: self.decode(item) for key, item in kwargs}
                return functools.partial(self.decode(function), *self._all(args), **named)
            case Method(function, owner):
                return types.MethodType(self.decode(function), self.decode(owner))
            case WeakRef(target):
                return weakref.ref(self.decode(target))
        return node

    def _all(self, nodes: tuple[Node, ...]) -> tuple[Any, ...]:
        return tuple(self.decode(node) for node in nodes)

    def _attributes(self, nodes: Attributes) -> dict[str, Any]:
        return {key: self.decode(node) for key, node in nodes.items()}

    def _import(self, path: str) -> Any:
        module, _, name = path.partition(":")
        if module != MAIN:
            return class_at(path) if name else importlib.import_module(module)
        if self._source is None:
            raise BakeoffError(f"{path} is in no {SOURCE}; bring the module anew", code="not-readable")
        found: Any = self._source
        for part in name.split("."):
            found = getattr(found, part)
        return found

    def _empty(self, index: int) -> Any:
        if index not in self._made:
            self._made[index] = self._make(self._entries[index])
        return self._made[index]

    def _make(self, entry: Entry) -> Any:
        match entry:
            case TensorEntry():
                return _tensor(entry, self._tensors[entry.name])
            case ModuleEntry():
                return self._new(entry.cls, ())
            case InstanceEntry():
                return self._new(entry.cls, entry.args)
            case ListEntry():
                return []
            case SetEntry():
                return set()
            case DictEntry(kind="dict"):
                return {}
            case DictEntry(kind="OrderedDict"):
                return OrderedDict()
            case DictEntry():
                return defaultdict()

    def _new(self, path: str, args: tuple[Node, ...]) -> Any:
        kind = self._import(path)
        if not isinstance(kind, type):
            raise BakeoffError(f"{path} is no class; bring the module anew", code="bad-user-code")
        return kind.__new__(kind, *self._all(args))

    def _fill(self, entry: Entry, value: Any) -> None:
        match entry:
            case TensorEntry(attributes=attributes) if attributes:
                vars(value).update(self._attributes(attributes))
            case ModuleEntry():
                held = vars(nn.Module()) | self._attributes(entry.attributes)
                held["_parameters"] = self._attributes(entry.parameters)
                held["_buffers"] = self._attributes(entry.buffers)
                held["_modules"] = self._attributes(entry.modules)
                vars(value).update(held)
            case InstanceEntry():
                self._fill_instance(entry, value)
            case ListEntry(items):
                value.extend(self._all(items))
            case SetEntry(items):
                value.update(self._all(items))
            case DictEntry(pairs, _, factory):
                value.update((self.decode(key), self.decode(item)) for key, item in pairs)
                if isinstance(value, defaultdict):
                    value.default_factory = self.decode(factory)

    def _fill_instance(self, entry: InstanceEntry, value: Any) -> None:
        own = getattr(value, "__dict__", None)
        for key, item in self._attributes(entry.attributes).items():
            if own is not None and not _is_slot(type(value), key):
                own[key] = item
            else:
                object.__setattr__(value, key, item)
        if entry.items:
            list.extend(value, self._all(entry.items))
        put: Callable[..., None] = OrderedDict.__setitem__ if isinstance(value, OrderedDict) else dict.__setitem__
        for first, second in entry.pairs:
            put(value, self.decode(first), self.decode(second))

    def _finish(self, entry: ModuleEntry, value: nn.Module) -> None:
        """What a module of some classes needs once its parts are there."""
        for hooks in (value._forward_hooks, value._forward_pre_hooks):
            RemovableHandle.next_id = max(RemovableHandle.next_id, *(key + 1 for key in hooks), 0)
        if entry.parametrized:
            parametrize._inject_new_class(value)
            for name in entry.parametrized:
                parametrize._inject_property(value, name)
        elif type(value).__getstate__ is not nn.Module.__getstate__:
            value.__setstate__(dict(vars(value)))


def _is_slot(kind: type, name: str) -> bool:
    return any(isinstance(vars(base).get(name), types.MemberDescriptorType) for base in kind.__mro__)


def _tensor(entry: TensorEntry, values: Tensor) -> Any:
    if entry.kind == "array":
        return values.numpy()
    if entry.kind == "scalar":
        return values.numpy()[()]
    if entry.kind == "parameter":
        return nn.Parameter(values, requires_grad=entry.requires_grad)
    if entry.kind == "buffer":
        return torch.nn.Buffer(values)
    return values.requires_grad_(entry.requires_grad)
