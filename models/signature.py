"""Describes how a module is called and what it returns, as data: pytrees whose leaves are tensors with names.

torch's own pytrees (torch.utils._pytree) contain classes and functions, which only pickle can store. These trees are
JSON, stored in artifacts' manifests and descriptions of models. They contain no code; only `rebuild` imports the
classes that they name. No torch is imported here.
"""

import dataclasses
import sys
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from importlib import import_module
from types import ModuleType
from typing import Any, Literal

import msgspec

from bakeoff.models.errors import BakeoffError, a_type


class TensorLeaf(msgspec.Struct, frozen=True, tag="tensor"):
    """A tensor, by a name that is unique in its tree."""

    name: str


class Constant(msgspec.Struct, frozen=True, tag="constant"):
    """A plain value that is the same in every call."""

    value: str | int | float | bool | None


class Items(msgspec.Struct, frozen=True, tag="items"):
    kind: Literal["list", "tuple"]
    items: tuple["Node", ...]


class Entries(msgspec.Struct, frozen=True, tag="entries"):
    """A dict or another mapping; its keys are text."""

    entries: dict[str, "Node"]


class Fields(msgspec.Struct, frozen=True, tag="fields"):
    """A dataclass or a named tuple, such as the outputs of diffusers and transformers, a member of an enum, or another
    object with attributes, such as a cache."""

    cls: str
    """Name as package.module:Class."""
    fields: dict[str, "Node"]


Node = TensorLeaf | Constant | Items | Entries | Fields


class Signature(msgspec.Struct, frozen=True):
    """The structure of a call's arguments."""

    args: tuple[Node, ...]
    kwargs: dict[str, Node]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all tensors, in the order of the arguments."""
        return tuple(name for node in (*self.args, *self.kwargs.values()) for name in leaves(node))


def describe_call(args: Sequence[Any], kwargs: Mapping[str, Any], names: Sequence[str] = ()) -> Signature:
    """Return the signature of one call. `names` are the names of the positional parameters, as far as known.

    A tensor inside an argument is named by its path, as in `batch.ids` or `cache.0.1`. Raises BakeoffError, with the
    argument's name, for an argument that is neither a tensor nor a plain value, nor composed of these.
    """
    found = Signature(
        tuple(describe(value, name) for name, value in zip(_taken(names, len(args)), args, strict=True)),
        {name: describe(value, name) for name, value in kwargs.items()},
    )
    twice = next((name for name in found.names if found.names.count(name) > 1), None)
    if twice is not None:
        raise _cannot(twice, "is the name of two tensors; rename a key")
    return found


def _taken(names: Sequence[str], count: int) -> list[str]:
    """Return names of `count` positional arguments: those of `names`, then `arg` and a number."""
    return [*names[:count], *(f"arg{index}" for index in range(len(names), count))]


def describe(value: Any, name: str) -> Node:
    """Return the tree of a value, whose tensors are named by their paths from `name`.

    Raises BakeoffError (`cannot-travel`) for a part of an unsupported type.
    """
    torch = sys.modules.get("torch")  # a tensor can exist only where torch was imported
    if torch is not None and isinstance(value, torch.Tensor):
        return TensorLeaf(name)
    if isinstance(value, str | int | float | None) and not isinstance(value, Enum):
        return Constant(value)
    kind, parts = _opened(value, name)
    return _with_parts(kind, {key: describe(part, f"{name}.{key}") for key, part in parts.items()})


def describe_output(value: Any) -> Node:
    """Return the tree of a call's result. Its tensors are named `output`, `output.0`, or by the result's fields."""
    if not isinstance(value, Mapping) and fields_of(value) is None:
        return describe(value, "output")
    kind, parts = _opened(value, "output")
    return _with_parts(kind, {key: describe(part, key) for key, part in parts.items()})


def _opened(value: Any, name: str) -> tuple[Node, Mapping[str, Any]]:
    """Return a value's node without parts, and its parts by name. Raises BakeoffError for an unsupported type."""
    kind = type(value)
    fields = fields_of(value)
    if fields is not None:
        if "<locals>" in kind.__qualname__:
            raise _cannot(
                name, f"is of class {kind.__qualname__}, which is defined in a function; define it in a module"
            )
        return Fields(f"{kind.__module__}:{kind.__qualname__}", {}), fields
    if isinstance(value, Mapping):
        wrong = [key for key in value if not isinstance(key, str)]
        if wrong:
            raise _cannot(name, f"has the key {wrong[0]!r}; keys must be text")
        return Entries({}), value
    if isinstance(value, list | tuple):  # torch.Size among them
        return Items("list" if isinstance(value, list) else "tuple", ()), _numbered(value)
    raise _cannot(
        name,
        f"is a {kind.__module__}.{kind.__qualname__}, neither a tensor, a plain value nor made of such; "
        "give a module that calls yours with it",
    )


def _numbered(items: Sequence[Any]) -> dict[str, Any]:
    return {str(index): part for index, part in enumerate(items)}


def _parts(node: Node) -> dict[str, Node]:
    match node:
        case Items(_, items):
            return _numbered(items)
        case Entries(entries) | Fields(_, entries):
            return entries
    return {}


def _with_parts(node: Node, parts: dict[str, Node]) -> Node:
    """Return a node of the same kind with these parts."""
    match node:
        case Items(kind):
            return Items(kind, tuple(parts.values()))
        case Entries():
            return Entries(parts)
        case Fields(cls):
            return Fields(cls, parts)
    return node


def leaves(node: Node) -> Iterator[str]:
    """Yield the names of all tensors of a tree, in order."""
    if isinstance(node, TensorLeaf):
        yield node.name
    for part in _parts(node).values():
        yield from leaves(part)


def flatten_call(signature: Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tensors of a call by name. Raises BakeoffError (`bad-input`) if it does not match the signature."""
    if len(args) != len(signature.args) or kwargs.keys() != signature.kwargs.keys():
        wanted = [f"{len(signature.args)} positional", *signature.kwargs]
        raise BakeoffError(
            f"called with {', '.join([f'{len(args)} positional', *kwargs])} arguments, "
            f"recorded with {', '.join(wanted)}; call it as it was recorded",
            code="bad-input",
        )
    found: dict[str, Any] = {}
    pairs = [*zip(signature.args, args, strict=True), *((node, kwargs[key]) for key, node in signature.kwargs.items())]
    for node, value in pairs:
        flatten(node, value, found)
    return found


def flatten(node: Node, value: Any, found: dict[str, Any]) -> None:
    """Add the tensors of `value` to `found`, by name. Raises BakeoffError (`bad-input`) if it does not match `node`."""
    given: Mapping[str, Any] | None = None
    match node:
        case TensorLeaf(name):
            found[name] = value
            return
        case Constant(wanted):
            if type(value) is not type(wanted) or value != wanted:
                raise BakeoffError(
                    f"an argument is {value!r} where {wanted!r} was recorded; record the model with this value",
                    "bad-input",
                )
            return
        case Items(kind, items):
            given = _numbered(value) if isinstance(value, list if kind == "list" else tuple) else None
            what = f"a {kind} of {len(items)}"
        case Entries(entries):
            given, what = value if isinstance(value, Mapping) else None, f"a dict with {', '.join(entries)}"
        case Fields(path, entries):
            given, what = fields_of(value), f"{path} with {', '.join(entries)}"
    parts = _parts(node)
    if given is None or given.keys() != parts.keys():
        text = f"called with {a_type(type(value))} where {what} was recorded; call it as it was recorded"
        raise BakeoffError(text, code="bad-input")
    for key, part in parts.items():
        flatten(part, given[key], found)


def rebuild(node: Node, tensors: Mapping[str, Any]) -> Any:
    """Return the value of a tree with these tensors.

    Imports the classes of `Fields`, so the tree must be trusted. Raises BakeoffError (`bad-user-code`) if a class
    cannot be imported or does not take the fields.
    """
    parts = {key: rebuild(part, tensors) for key, part in _parts(node).items()}
    match node:
        case TensorLeaf(name):
            return tensors[name]
        case Constant(value):
            return value
        case Items(kind):
            return list(parts.values()) if kind == "list" else tuple(parts.values())
        case Entries():
            return parts
        case Fields(path):
            try:
                return made_of(class_at(path), parts)
            except TypeError as error:
                raise BakeoffError(f"{path} cannot be made again: {error}", "bad-user-code") from error


def made_of(cls: Any, fields: Mapping[str, Any]) -> Any:
    """Return an object of a class with these fields; dataclasses, tuples and enums alone are made by a call of it."""
    if dataclasses.is_dataclass(cls) or issubclass(cls, tuple | Enum):
        return cls(**fields)
    made = cls.__new__(cls)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def class_at(path: str) -> Any:
    """Return the class that `package.module:Class` names. Raises BakeoffError (`bad-user-code`) on failure."""
    module, _, name = path.partition(":")
    try:
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise BakeoffError(f"{path} cannot be imported: {error}", code="bad-user-code") from error
    return found


def fields_of(value: Any) -> dict[str, Any] | None:
    """Return the named parts of a dataclass, a named tuple or a plain object with attributes; None for other values.

    For a dataclass that is also a mapping, such as transformers' ModelOutput, these are its items: fields that are None
    are left out.
    """
    if isinstance(value, type):
        return None
    if dataclasses.is_dataclass(value):
        mapping: Any = value
        if isinstance(mapping, Mapping):
            return {str(key): part for key, part in mapping.items()}
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
    if isinstance(value, Enum):
        return {"value": value.value}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, value, strict=True))
    return _attributes(value)


def _attributes(value: Any) -> dict[str, Any] | None:
    """Return the attributes of a plain Python object; None for modules, functions, and objects of C libraries."""
    made: Any = type(value).__new__
    plain = made is object.__new__ and hasattr(value, "__dict__") and not callable(value)
    slots = any(getattr(each, "__slots__", ()) for each in type(value).__mro__)  # which abstract classes have empty
    if not plain or isinstance(value, ModuleType) or slots:
        return None
    return dict(vars(value)) or None


def _cannot(name: str, problem: str) -> BakeoffError:
    return BakeoffError(f"{name} {problem}", code="cannot-travel")
