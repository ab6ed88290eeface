"""How a module is called and what it returns, as data: pytrees whose leaves are tensors with names.

torch's own pytrees (torch.utils._pytree) hold classes and functions, which only pickle writes down. These trees are
JSON: an artifact's manifest and the description of a model hold them, and nothing of them runs but the import of a
class that `rebuild` is asked to make. No torch is imported here: a tensor is what `is_tensor` says.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, Literal

import msgspec

from bakeoff.models.errors import BakeoffError, a_type


class TensorLeaf(msgspec.Struct, frozen=True, tag="tensor"):
    """A tensor, called `name` among all of its tree."""

    name: str


class Constant(msgspec.Struct, frozen=True, tag="constant"):
    """A value that every call has in this place."""

    value: str | int | float | bool | None


class Items(msgspec.Struct, frozen=True, tag="items"):
    kind: Literal["list", "tuple"]
    items: tuple["Node", ...]


class Entries(msgspec.Struct, frozen=True, tag="entries"):
    """A dict or another mapping; its keys are text."""

    entries: dict[str, "Node"]


class Fields(msgspec.Struct, frozen=True, tag="fields"):
    """A dataclass or a named tuple, such as the outputs of diffusers and transformers, or another object with
    attributes, such as a cache."""

    cls: str
    """As package.module:Class."""
    fields: dict[str, "Node"]


Node = TensorLeaf | Constant | Items | Entries | Fields


class Signature(msgspec.Struct, frozen=True):
    """The arguments of a call."""

    args: tuple[Node, ...]
    kwargs: dict[str, Node]

    @property
    def names(self) -> tuple[str, ...]:
        """Of all tensors, in the order of the arguments."""
        return tuple(name for node in (*self.args, *self.kwargs.values()) for name in leaves(node))


def describe_call(
    args: Sequence[Any], kwargs: Mapping[str, Any], names: Sequence[str], is_tensor: Callable[[Any], bool]
) -> Signature:
    """The signature of one call. `names` are those of the positional parameters, as far as there are names.

    A tensor inside an argument is called by its path, as in `batch.ids` or `cache.0.1`. Raises BakeoffError naming the
    argument that is neither a tensor, a plain value, nor made of such.
    """
    found = Signature(
        tuple(describe(value, name, is_tensor) for name, value in zip(_taken(names, len(args)), args, strict=True)),
        {name: describe(value, name, is_tensor) for name, value in kwargs.items()},
    )
    twice = next((name for name in found.names if found.names.count(name) > 1), None)
    if twice is not None:
        raise _cannot(twice, "is the name of two tensors; rename a key")
    return found


def map_constants(signature: Signature, names: Sequence[str], change: Callable[[str, Constant], Node]) -> Signature:
    """The signature with `change(path, constant)` in the place of each plain value; `names` as in `describe_call`."""
    args = zip(_taken(names, len(signature.args)), signature.args, strict=True)
    kwargs = signature.kwargs.items()
    return Signature(
        tuple(_map_constants(node, name, change) for name, node in args),
        {name: _map_constants(node, name, change) for name, node in kwargs},
    )


def _map_constants(node: Node, path: str, change: Callable[[str, Constant], Node]) -> Node:
    match node:
        case Constant():
            return change(path, node)
        case Items(kind, items):
            return Items(kind, tuple(_map_constants(one, f"{path}.{at}", change) for at, one in enumerate(items)))
        case Entries(entries):
            return Entries({key: _map_constants(one, f"{path}.{key}", change) for key, one in entries.items()})
        case Fields(cls, entries):
            return Fields(cls, {key: _map_constants(one, f"{path}.{key}", change) for key, one in entries.items()})
    return node


def _taken(names: Sequence[str], count: int) -> list[str]:
    """Names of so many positional arguments."""
    return [*names[:count], *(f"arg{index}" for index in range(len(names), count))]


def describe(value: Any, name: str, is_tensor: Callable[[Any], bool]) -> Node:
    """The tree of one value, called `name`. Raises BakeoffError (`cannot-travel`) for a part that is no such tree."""
    if is_tensor(value):
        return TensorLeaf(name)
    if value is None or isinstance(value, str | int | float | bool):
        return Constant(value)
    fields = fields_of(value)
    if fields is not None:
        return Fields(
            _path_of(type(value), name),
            {key: describe(part, f"{name}.{key}", is_tensor) for key, part in fields.items()},
        )
    if isinstance(value, Mapping):
        wrong = [key for key in value if not isinstance(key, str)]
        if wrong:
            raise _cannot(name, f"has the key {wrong[0]!r}; keys must be text")
        return Entries({key: describe(part, f"{name}.{key}", is_tensor) for key, part in value.items()})
    if type(value) in (list, tuple):
        items = tuple(describe(part, f"{name}.{index}", is_tensor) for index, part in enumerate(value))
        return Items("list" if isinstance(value, list) else "tuple", items)
    raise _cannot(
        name,
        f"is a {type(value).__module__}.{type(value).__qualname__}, neither a tensor, a plain value nor made of such",
    )


def describe_output(value: Any, is_tensor: Callable[[Any], bool]) -> Node:
    """The tree of what a call returned. Its tensors are called `output`, `output.0`, or by the names of its fields."""
    fields = fields_of(value)
    plain = fields is None and isinstance(value, Mapping)
    if fields is None and not plain:
        return describe(value, "output", is_tensor)
    parts = {str(key): describe(part, str(key), is_tensor) for key, part in (fields or value).items()}
    return Entries(parts) if plain else Fields(_path_of(type(value), "output"), parts)


def leaves(node: Node) -> Iterator[str]:
    """The names of all tensors of a tree, in order."""
    if isinstance(node, TensorLeaf):
        yield node.name
    for part in _parts(node):
        yield from leaves(part)


def flatten_call(signature: Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors of a call by name. Raises BakeoffError (`bad-input`) where the call is not of this signature."""
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
    """Add the tensors of `value` to `found`, by name. Raises BakeoffError (`bad-input`) where it is not such a tree."""
    match node:
        case TensorLeaf(name):
            found[name] = value
        case Constant(wanted):
            if type(value) is not type(wanted) or value != wanted:
                raise BakeoffError(
                    f"an argument is {value!r} where {wanted!r} was recorded; record the model with this value",
                    "bad-input",
                )
        case Items(kind, items):
            if type(value).__name__ != kind or len(value) != len(items):
                raise _unlike(value, f"a {kind} of {len(items)}")
            for part, inner in zip(items, value, strict=True):
                flatten(part, inner, found)
        case Entries(entries):
            if not isinstance(value, Mapping) or value.keys() != entries.keys():
                raise _unlike(value, f"a dict with {', '.join(entries)}")
            for key, part in entries.items():
                flatten(part, value[key], found)
        case Fields(path, entries):
            fields = fields_of(value)
            if fields is None or fields.keys() != entries.keys():
                raise _unlike(value, f"{path} with {', '.join(entries)}")
            for key, part in entries.items():
                flatten(part, fields[key], found)


def rebuild(node: Node, tensors: Mapping[str, Any]) -> Any:
    """The value of a tree with these tensors. Imports the classes of its `Fields`: only for trees that are trusted.

    Raises BakeoffError (`bad-user-code`) where a class is gone or does not take the fields.
    """
    match node:
        case TensorLeaf(name):
            return tensors[name]
        case Constant(value):
            return value
        case Items(kind, items):
            parts = [rebuild(part, tensors) for part in items]
            return parts if kind == "list" else tuple(parts)
        case Entries(entries):
            return {key: rebuild(part, tensors) for key, part in entries.items()}
        case Fields(path, entries):
            try:
                return made_of(class_at(path), {key: rebuild(part, tensors) for key, part in entries.items()})
            except TypeError as error:
                raise BakeoffError(f"{path} cannot be made again: {error}", "bad-user-code") from error


def made_of(cls: Any, fields: Mapping[str, Any]) -> Any:
    """An object of a class with these fields; one of a class of its own kind is made without its constructor."""
    if dataclasses.is_dataclass(cls) or issubclass(cls, tuple):
        return cls(**fields)
    made = cls.__new__(cls)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def class_at(path: str) -> Any:
    """The class that `package.module:Class` names. Raises BakeoffError (`bad-user-code`) where it is gone."""
    module, _, name = path.partition(":")
    try:
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise BakeoffError(f"{path} cannot be imported: {error}", code="bad-user-code") from error
    return found


def _parts(node: Node) -> Sequence[Node]:
    match node:
        case Items(_, items):
            return items
        case Entries(entries) | Fields(_, entries):
            return tuple(entries.values())
    return ()


def fields_of(value: Any) -> dict[str, Any] | None:
    """The named parts of a dataclass, a named tuple or a plain object with attributes; None for other values.

    transformers' ModelOutput is a mapping too, which leaves out fields that are None, and so they are here.
    """
    if isinstance(value, type):
        return None
    if dataclasses.is_dataclass(value):
        mapping: Any = value
        if isinstance(mapping, Mapping):
            return {str(key): part for key, part in mapping.items()}
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, value, strict=True))
    return _attributes(value)


def _attributes(value: Any) -> dict[str, Any] | None:
    """The attributes of an object that has nothing else; None for modules, functions, and what libraries of C hold."""
    made: Any = type(value).__new__
    plain = made is object.__new__ and hasattr(value, "__dict__") and not callable(value)
    if not plain or isinstance(value, ModuleType) or hasattr(type(value), "__slots__"):
        return None
    return dict(vars(value)) or None


def _path_of(kind: type, name: str) -> str:
    if "<locals>" in kind.__qualname__:
        raise _cannot(name, f"is of class {kind.__qualname__}, which is defined in a function; define it in a module")
    return f"{kind.__module__}:{kind.__qualname__}"


def _cannot(name: str, problem: str) -> BakeoffError:
    return BakeoffError(f"{name} {problem}", code="cannot-travel")


def _unlike(value: Any, wanted: str) -> BakeoffError:
    return BakeoffError(
        f"called with {a_type(type(value))} where {wanted} was recorded; call it as it was recorded",
        code="bad-input",
    )
