"""Reads a live module and its inputs from the folder that `live_write` made.

The folder has `module.pickle`, the object graph; `tensors.safetensors`, each storage as one flat entry of bytes; and
`live.json`, the hashes that the pickle and the user's code must have. Unpickling runs code: such a folder is written
and read by one user on one machine, and is trusted as that user's Python files are.
"""

import functools
import hashlib
import importlib
import io
import pickle
import sys
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
from safetensors import SafetensorError, safe_open
from torch import nn
from torch.nn.utils import parametrize
from torch.storage import TypedStorage, UntypedStorage
from torch.utils.hooks import RemovableHandle

from bakeoff.models.brought.about import LIVE
from bakeoff.models.brought.model import InputSets, Model
from bakeoff.models.errors import BakeoffError
from bakeoff.models.lookup import one_line
from bakeoff.models.plain_file import read_plain

GRAPH, TENSORS = "module.pickle", "tensors.safetensors"


class Head(msgspec.Struct, frozen=True):
    """Contents of live.json."""

    graph: str
    """SHA-256 of the pickle."""
    code: dict[str, str]
    """SHA-256, by path, of each of the user's own files that the module imports."""
    import_folders: tuple[str, ...]
    """Folders from which these files are imported."""


def read_live(folder: Path) -> tuple[Model, InputSets]:
    """Read a live module with its facts, and the calls of its input sets.

    The module is on the CPU, in the mode (training or eval) in which it was written. Raises BakeoffError with code
    `not-readable` if the folder is damaged or of another version, and `bad-user-code` if the user's code was changed
    since or cannot be imported.
    """
    try:
        head = msgspec.json.decode(_read(folder / LIVE), type=Head)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BakeoffError(f"{folder / LIVE}: {error}; bring the module anew", "not-readable") from error
    content = _read(folder / GRAPH)
    if hashlib.sha256(content).hexdigest() != head.graph:
        raise BakeoffError(f"{folder / GRAPH} is not what was written; bring the module anew", "not-readable")
    for path, written in head.code.items():
        if not Path(path).is_file() or file_digest(Path(path)) != written:
            raise BakeoffError(f"{path} was changed after the module was written; bring it anew", "bad-user-code")
    sys.path += [place for place in head.import_folders if place not in sys.path]
    try:
        with safe_open(folder / TENSORS, framework="pt") as tensors:
            module, calls, facts = _Reader(content, tensors).read()
    except (OSError, SafetensorError) as error:
        text = f"{folder / TENSORS} cannot be read: {one_line(error)}; bring the module anew"
        raise BakeoffError(text, "not-readable") from error
    except Exception as error:  # of a user's classes
        text = f"{folder / GRAPH} cannot be made into a module: {type(error).__name__}: {one_line(error)}"
        imports = isinstance(error, ImportError | AttributeError)
        raise BakeoffError(f"{text}; bring the module anew", "bad-user-code" if imports else "not-readable") from error
    return Model(module, **facts), calls


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(_read(path)).hexdigest()


def _read(path: Path) -> bytes:
    try:
        return read_plain(path)
    except OSError as error:
        raise BakeoffError(f"{path}: {error.strerror}; bring the module anew", "not-readable") from error


class _Reader(pickle.Unpickler):
    """Unpickler that resolves the persistent ids of `live_write`, with a new Python module in the place of `__main__`.

    It is a real module, since compilers look up a function's globals in the module that the function names.
    """

    def __init__(self, content: bytes, tensors: Any) -> None:
        super().__init__(io.BytesIO(content))
        self._tensors = tensors
        self._storages: dict[str, UntypedStorage] = {}
        self._sets: dict[int, Any] = {}
        name = f"bakeoff_live_{hashlib.sha256(content).hexdigest()[:16]}"
        while name in sys.modules:
            name += "_"
        self._main = sys.modules[name] = ModuleType(name)

    def read(self) -> tuple[nn.Module, InputSets, dict[str, Any]]:
        try:
            module, calls, facts, definitions = self.load()
        except BaseException:
            del sys.modules[self._main.__name__]
            raise
        vars(self._main).update(definitions)
        hooks = (key for part in module.modules() for key in (*part._forward_hooks, *part._forward_pre_hooks))
        RemovableHandle.next_id = max(RemovableHandle.next_id, *(key + 1 for key in hooks), 0)
        return module, calls, facts

    def persistent_load(self, written: Any) -> Any:
        match written:
            case ("main",):
                return self._main.__name__
            case ("globals", name):
                return vars(importlib.import_module(name))
            case ("set", index, kind, items):
                return self._sets.setdefault(index, kind(items))
            case ("storage", key, dtype):
                if key not in self._storages:
                    self._storages[key] = self._tensors.get_tensor(key).clone().untyped_storage()
                return TypedStorage(wrap_storage=self._storages[key], dtype=dtype, _internal=True)
        raise pickle.UnpicklingError(f"unknown reference {written!r}")


def new_of(kind: Any) -> Any:
    """Return an object of a class, made without calling its constructor."""
    return kind.__new__(kind)


def fill_mapping(made: OrderedDict[Any, Any], state: tuple[dict[Any, Any], dict[str, Any]]) -> None:
    """Put items and attributes into a mapping that may refuse changes, such as diffusers' configs."""
    items, attributes = state
    for key, value in items.items():
        OrderedDict.__setitem__(made, key, value)
    vars(made).update(attributes)


def fill_parametrized(module: nn.Module, state: tuple[dict[str, Any], tuple[str, ...]]) -> None:
    """Put attributes into a module, and make torch.nn.utils.parametrize compute the named tensors again."""
    attributes, names = state
    vars(module).update(attributes)
    parametrize._inject_new_class(module)
    for name in names:
        parametrize._inject_property(module, name)


def cached(function: Callable[..., Any], parameters: dict[str, Any]) -> Any:
    """Return the function wrapped in a functools.lru_cache with these parameters."""
    return functools.lru_cache(**parameters)(function)
