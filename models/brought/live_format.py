"""The files of a live module's folder: an object graph as JSON, whose tensors lie in safetensors files.

Objects that can be shared or changed (modules, tensors, lists, dicts, instances) are entries of one list; a `Ref` is an
index in it, so what was one object stays one, and cycles are allowed. Classes and functions are named by import path.
"""

from collections.abc import Callable
from logging import getLogger
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import torch

from bakeoff.models.signature import Signature

LIVE, WEIGHTS, SOURCE = "live.json", "weights.safetensors", "source.py"
INPUTS, INPUT_TENSORS = "inputs.json", "inputs.safetensors"
SCHEMA: Final = 1
MAIN = "__main__"
"""Module name, in import paths, of what lies in source.py."""


class Ref(msgspec.Struct, frozen=True, tag="ref", tag_field="is"):
    """Entry `id` of the list of objects."""

    id: int


class Import(msgspec.Struct, frozen=True, tag="import", tag_field="is"):
    """A class, function, module or singleton by its path, `package.module:Name.inner`; a module has an empty name."""

    path: str


class Call(msgspec.Struct, frozen=True, tag="call", tag_field="is"):
    """A value that one of `MAKERS` makes of its arguments."""

    maker: str
    args: tuple["Node", ...]


class Tuple(msgspec.Struct, frozen=True, tag="tuple", tag_field="is"):
    items: tuple["Node", ...]


class FrozenSet(msgspec.Struct, frozen=True, tag="frozenset", tag_field="is"):
    items: tuple["Node", ...]


class Member(msgspec.Struct, frozen=True, tag="member", tag_field="is"):
    """An enum's member; `value` is set for combined flags, which have no name."""

    cls: str
    name: str | None = None
    value: int | None = None


class Partial(msgspec.Struct, frozen=True, tag="partial", tag_field="is"):
    """A functools.partial."""

    function: "Node"
    args: tuple["Node", ...]
    kwargs: tuple[tuple[str, "Node"], ...]


class Method(msgspec.Struct, frozen=True, tag="method", tag_field="is"):
    """A function bound to an object of the graph."""

    function: "Node"
    self: "Node"


class WeakRef(msgspec.Struct, frozen=True, tag="weak-ref", tag_field="is"):
    target: Ref


Node = None | bool | int | float | str | Ref | Import | Call | Tuple | FrozenSet | Member | Partial | Method | WeakRef

Attributes = dict[str, Node]


class TensorEntry(msgspec.Struct, frozen=True, tag="tensor", tag_field="is"):
    """A tensor whose values are those called `name` in `Live.tensors`."""

    name: str
    kind: Literal["tensor", "parameter", "buffer", "array", "scalar"]
    """`buffer` is a torch.nn.Buffer that no module has registered, `array` a numpy array and `scalar`
    a number of numpy."""
    requires_grad: bool = False
    attributes: Attributes = {}


class ModuleEntry(msgspec.Struct, frozen=True, tag="module", tag_field="is"):
    path: str
    """Its first name in the tree."""
    cls: str
    attributes: Attributes
    parameters: Attributes = {}
    buffers: Attributes = {}
    modules: Attributes = {}
    parametrized: tuple[str, ...] = ()
    """Tensors that torch.nn.utils.parametrize computes."""


class InstanceEntry(msgspec.Struct, frozen=True, tag="instance", tag_field="is"):
    """An object as the copy module takes it apart."""

    cls: str
    args: tuple[Node, ...] = ()
    """Of `__new__`."""
    attributes: Attributes = {}
    """Of `__dict__` and `__slots__`."""
    state: Node = None
    """For `__setstate__`, where the class has one; `attributes` are empty then."""
    items: tuple[Node, ...] = ()
    """Of a subclass of list."""
    pairs: tuple[tuple[Node, Node], ...] = ()
    """Of a subclass of dict."""


class ListEntry(msgspec.Struct, frozen=True, tag="list", tag_field="is"):
    items: tuple[Node, ...]


class SetEntry(msgspec.Struct, frozen=True, tag="set", tag_field="is"):
    items: tuple[Node, ...]


class DictEntry(msgspec.Struct, frozen=True, tag="dict", tag_field="is"):
    pairs: tuple[tuple[Node, Node], ...]
    kind: Literal["dict", "OrderedDict", "defaultdict"] = "dict"
    factory: Node = None
    """Of a defaultdict."""


Entry = TensorEntry | ModuleEntry | InstanceEntry | ListEntry | SetEntry | DictEntry


class Layout(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a tensor's values lie in a safetensors file."""

    key: str
    shape: tuple[int, ...]
    stride: tuple[int, ...] | None = None
    """Of the tensor in memory, in elements; None: contiguous."""
    dtype: str = ""
    """Set where the entry `key` holds bytes of a storage, of which the tensor is a view at `offset` (in elements)."""
    offset: int = 0


class Live(msgspec.Struct, frozen=True):
    """live.json."""

    name: str
    module: Ref
    objects: tuple[Entry, ...]
    tensors: dict[str, Layout]
    code: dict[str, str]
    """SHA-256 of every Python module of the user's own that the tree needs; installed packages are not here."""
    import_folders: tuple[str, ...] = ()
    """Where these modules are imported from."""
    state: dict[str, str] = {}
    """As in `bakeoff.models.brought.model.Model`, and so the next four."""
    keep_fp32: tuple[str, ...] = ()
    hold: tuple[str, ...] = ()
    place: str = ""
    tolerance_fp32: float | None = None
    schema: int = SCHEMA


class Inputs(msgspec.Struct, frozen=True):
    """inputs.json. The tensors of a call are called `SET/CALL/NAME`, CALL counting from 0."""

    sets: dict[str, tuple[Signature, ...]]
    tensors: dict[str, Layout]
    schema: int = SCHEMA


MAKERS: dict[str, Callable[..., Any]] = {
    "float": float,
    "hexadecimal": lambda text: int(text, 16),
    "complex": complex,
    "bytes": bytes.fromhex,
    "range": range,
    "slice": slice,
    "path": Path,
    "device": torch.device,
    "size": torch.Size,
    "logger": getLogger,
}
"""What makes values that JSON has no form for."""
