"""Writes a live module and its inputs to a folder, for the lab's own workers: cloudpickle and safetensors.

Definitions in `__main__` or inside a function are pickled by value. Importable classes and functions, and the globals
of importable modules, are pickled by name, so that effects of the import (such as registering operators) occur in the
worker too. The same module gives the same bytes in every process, so that a sweep can be resumed.

Left out, since no forward pass needs them, are hooks of the backward pass, hooks that run when weights are saved or
loaded, and the result of `Module.compile()`. Changes that a program made to classes of importable modules are lost.
"""

import functools
import hashlib
import io
import sys
import types
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import cloudpickle
import msgspec
import torch
from cloudpickle import cloudpickle as internals
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.storage import TypedStorage, UntypedStorage

from bakeoff.models.brought import live_read
from bakeoff.models.brought.about import LIVE
from bakeoff.models.brought.live_read import Head
from bakeoff.models.brought.model import InputSets, Model
from bakeoff.models.errors import BakeoffError
from bakeoff.models.lookup import is_users
from bakeoff.models.weights import refuse_unusable
from bakeoff.models.words import some_of

MAIN = "__main__"
FACTS = ("state", "keep_fp32", "buffers", "hold", "place", "tolerance_fp32")
"""Fields of a Model that are written with its module."""
_UNNAMED = ("_parameters", "_buffers", "_modules", "__globals__", "__closure__", "__func__", "__wrapped__")
"""Attributes that paths in error messages leave out."""
_PLAIN = str | bytes | int | float | Enum | torch.dtype
_SHOWN, _DEEPEST, _PROTOCOL = 12, 10_000, 5
_ADVICE = "give a function that makes the module in a file instead: bakeoff sweep mine.py:model"


def write_live(model: Model, calls: InputSets, folder: Path) -> None:
    """Write a module, its facts (`FACTS`) and the calls of its input sets to a new folder.

    Raises BakeoffError: with code `cannot-travel` and the path of every part that no other process can be given, such
    as an open file, a lock or a stream; with `not-writable` if the folder cannot be written.
    """
    content = io.BytesIO()
    writer = _Writer(content)
    for name, several in calls.items():
        for args, kwargs in several:
            inputs = {f"arg{index}": value for index, value in enumerate(args)} | kwargs
            writer.name_parts(f"{name}: the input ", [inputs])
    facts = {name: getattr(model, name) for name in FACTS}
    writer.write(model.module, (model.module, dict(calls), facts, writer.definitions))
    files = _user_files(writer.needed)
    head = Head(
        hashlib.sha256(content.getbuffer()).hexdigest(),
        {str(path): live_read.file_digest(path) for path in sorted(files)},
        tuple(sorted({str(place) for place in files.values()})),
    )
    try:
        folder.mkdir(parents=True)
        flat = {}
        for key, storage in writer.storages.items():
            flat[key] = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage).cpu()
        save_file(flat, folder / live_read.TENSORS)
        (folder / live_read.GRAPH).write_bytes(content.getbuffer())
        (folder / LIVE).write_bytes(msgspec.json.format(msgspec.json.encode(head), indent=1))
    except (OSError, SafetensorError) as error:
        text = f"{folder} cannot be written: {error}; make room or choose another folder"
        raise BakeoffError(text, "not-writable") from error


class _Globals(str):
    """Name of a Python module, which the pickle has in place of the module's globals."""


class _Writer(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    """Pickler of an object graph without tensor storages, which collects the parts that cannot be pickled."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=_PROTOCOL)
        self.storages: dict[str, UntypedStorage] = {}
        self.definitions: dict[str, Any] = {}
        """Classes and functions of `__main__`, pickled by value."""
        self.needed: set[str] = set()
        """Names of the Python modules that are imported to read the pickle."""
        self._keys: dict[tuple[str, int], str] = {}
        self._sets: dict[int, tuple[int, object]] = {}
        self._paths: dict[int, str] = {}
        self._problems: list[str] = []
        self._last: object = None

    def write(self, module: nn.Module, content: object) -> None:
        """Pickle `content`. Raises BakeoffError (`cannot-travel`) naming the parts that cannot be pickled."""
        limit = sys.getrecursionlimit()
        try:
            sys.setrecursionlimit(max(limit, _DEEPEST))  # functions of a script that call one another are nested
            self.dump(content)
        except BakeoffError:
            raise
        except Exception as error:  # noqa: BLE001  # classes raise what they like here
            deep = isinstance(error.__cause__ or error, RecursionError)
            self._problem(*((module, "is nested too deeply") if deep else (self._last,)))
        finally:
            sys.setrecursionlimit(limit)
        if self._problems:
            problems = some_of(dict.fromkeys(self._problems), _SHOWN)
            text = f"{type(module).__name__} cannot travel to another process: {problems}; {_ADVICE}"
            raise BakeoffError(text, "cannot-travel")

    def persistent_id(self, value: Any) -> Any:
        """Return the pickle's reference to a storage, set, globals or the name `__main__`; None for other values."""
        kind: Any = type(value)
        if kind is str:
            return ("main",) if value == MAIN else None
        if kind is _Globals:
            return "globals", str(value)
        if kind is TypedStorage:
            return "storage", self._key(value._untyped_storage), value.dtype
        if kind is UntypedStorage:
            return "storage", self._key(value), torch.uint8
        if kind in (set, frozenset) and all(isinstance(item, _PLAIN) for item in value):  # in a random order
            number, _ = self._sets.setdefault(id(value), (len(self._sets), value))
            return "set", number, kind, sorted(value, key=repr)
        return None

    def _key(self, storage: UntypedStorage) -> str:
        """Return the key of a storage; storages that begin at the same address share a key."""
        address = storage.data_ptr() or storage._cdata
        key = self._keys.setdefault((str(storage.device), address), str(len(self._keys)))
        if key not in self.storages or self.storages[key].nbytes() < storage.nbytes():
            self.storages[key] = storage
        return key

    def reducer_override(self, value: Any) -> Any:
        """Return the reduction of a value, and record the paths of its parts for error messages."""
        self._last = value
        try:
            found = self._taken_apart(value)
        except BakeoffError:
            raise
        except Exception:  # noqa: BLE001
            return self._problem(value)
        if isinstance(found, tuple):
            known = internals._DYNAMIC_CLASS_TRACKER_BY_ID  # random names, by which cloudpickle knows classes again
            args = tuple(None if type(one) is str and one in known else one for one in found[1])
            found = (found[0], args, *found[2:])
            self._name_parts_of(value, found)
        return found

    def _taken_apart(self, value: Any) -> Any:
        """Return the reduction of a value, in the form that `__reduce_ex__` returns."""
        kind: Any = type(value)
        if isinstance(value, Tensor):
            return self._tensor(value)
        if isinstance(value, nn.Module):
            return self._module(value)
        if isinstance(value, OrderedDict) and kind is not OrderedDict and kind.__reduce__ is OrderedDict.__reduce__:
            return live_read.new_of, (kind,), (dict(value), dict(vars(value))), None, None, live_read.fill_mapping
        if kind is weakref.ref and value() is not None:
            return weakref.ref, (value(),)
        if kind is io.TextIOWrapper and value not in (sys.stdout, sys.stderr):
            raise TypeError  # cloudpickle would read the file
        if kind is functools._lru_cache_wrapper and internals._lookup_module_and_qualname(value) is None:
            return live_read.cached, (value.__wrapped__, value.cache_parameters())
        if kind is types.CodeType:
            maker, args = internals._code_reduce(value)
            file = str(Path(value.co_filename).absolute()) if Path(value.co_filename).is_file() else args[10]
            return maker, (*args[:10], file, *args[11:])
        if (found := super().reducer_override(value)) is not NotImplemented:  # a class or function, by value
            name = getattr(value, "__name__", "")
            if vars(sys.modules[MAIN]).get(name) is value:
                self.definitions[name] = value
            return found
        if isinstance(value, type | types.FunctionType | types.ModuleType):
            module = value.__name__ if isinstance(value, types.ModuleType) else str(value.__module__)
            self.needed.add(module)
            if getattr(sys.modules.get(module.partition(".")[0]), "__spec__", None) is None:
                return self._problem(value, f"is of {module}, a Python module that no other process can import")
            if not isinstance(value, types.ModuleType):
                return found
        own = self.dispatch_table.get(kind)
        return own(value) if own else value.__reduce_ex__(_PROTOCOL)

    def _dynamic_function_reduce(self, func: types.FunctionType) -> Any:
        """Reduce a function as cloudpickle does, but refer to globals of `__main__` and importable modules by name."""
        name = str(func.__globals__.get("__name__"))
        module, globals_ = sys.modules.get(name), func.__globals__
        imported = getattr(module, "__spec__", None) and name != MAIN and vars(module) is globals_
        if imported or name == MAIN:
            self.globals_ref[id(globals_)] = _Globals(name)
        maker, args, (attributes, slots), *rest = super()._dynamic_function_reduce(func)
        if imported:
            self.needed.add(name)
            slots = {**slots, "__globals__": {}}
        return maker, args, (attributes, slots), *rest

    def _tensor(self, value: Tensor) -> Any:
        refuse_unusable(value, self._paths.get(id(value), ""), "cannot-travel")
        if torch.nn.parameter.is_lazy(value):
            return self._problem(value, "has no values yet; call the module once")
        if not value.is_leaf:
            value = value.detach()
        elif value.device.type != "cpu" and type(value) not in (Tensor, nn.Parameter):  # it names its device
            moved = value.detach().cpu()
            value = nn.Parameter(moved, value.requires_grad) if isinstance(value, nn.Parameter) else moved
        return value.__reduce_ex__(_PROTOCOL)

    def _module(self, value: nn.Module) -> Any:
        kind, nothing = type(value), vars(nn.Module()).items()
        if isinstance(value, torch.jit.ScriptModule):
            return self._problem(value, "is a module of torch.jit, which has no Python class")
        if "_orig_mod" in value._modules and kind.__module__.startswith("torch._dynamo"):
            return self._problem(value, "was returned by torch.compile; give the module that was compiled")
        left_out = {name: empty for name, empty in nothing if "backward" in name or "state_dict" in name}
        if parametrize.is_parametrized(value):
            names = tuple(value.parametrizations)  # type: ignore[arg-type]  # a ModuleDict
            state = {**vars(value), **left_out, "_compiled_call_impl": None}
            return live_read.new_of, (kind.__mro__[1],), (state, names), None, None, live_read.fill_parametrized
        found = value.__reduce_ex__(_PROTOCOL)
        if isinstance(found, tuple) and len(found) > 2 and isinstance(found[2], dict):
            found = (*found[:2], {**found[2], **left_out}, *found[3:])
        return found

    def _problem(self, value: Any, problem: str = "") -> Any:
        """Record that a value cannot be pickled, for `write` to raise; return the reduction of a placeholder."""
        kind = type(value)
        what = problem or f"is a {kind.__module__}.{kind.__qualname__}".replace("builtins.", "")
        self._problems.append(f"{self._paths.get(id(value)) or 'the module'} {what}")
        return list, ()

    def _name_parts_of(self, value: Any, found: tuple[Any, ...]) -> None:
        """Record the paths of the parts to which an object was reduced."""
        path = self._paths.get(id(value), "")
        if isinstance(value, types.FunctionType):
            for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
                self._paths.setdefault(id(cell), _join(path, name))
        parts = [part for one in found[1:3] for part in (one if isinstance(one, tuple) else [one])]
        parts += [kind(value) for kind in (dict, list) if isinstance(value, kind)]
        self.name_parts(path, parts)

    def name_parts(self, path: str, parts: Sequence[Any]) -> None:
        """Record the path of every object in plain containers, made of the keys that lead to it."""
        waiting, seen = [(path, part) for part in reversed(parts)], set()
        while waiting:
            path, part = waiting.pop()
            kind = type(part)
            if kind not in (dict, list, tuple, set, frozenset):
                self._paths.setdefault(id(part), path)
            elif id(part) not in seen:
                seen.add(id(part))
                pairs = part.items() if kind is dict else enumerate(part)
                waiting += reversed([(_join(path, str(key)), item) for key, item in pairs])


def _join(path: str, name: str) -> str:
    if name in _UNNAMED:
        return path
    return f"{path}.{name}" if path and not path.endswith(" ") else f"{path}{name}"


def _user_files(needed: set[str]) -> dict[Path, Path]:
    """Return the user's own files that these Python modules import, each with the folder that it is imported from.

    Installed packages, the standard library and bakeoff itself are left out.
    """
    found: dict[Path, Path] = {}
    pending, seen = sorted(needed), {MAIN}
    while pending:
        name = pending.pop()
        module = sys.modules.get(name)
        file = Path(getattr(module, "__file__", None) or "/").absolute()
        if name in seen or file.suffix != ".py" or not is_users(file) or name.partition(".")[0] == "bakeoff":
            continue
        seen.add(name)
        found[file] = file.parents[name.count(".") + (file.name == "__init__.py")]
        parts = name.split(".")
        pending += [".".join(parts[:count]) for count in range(1, len(parts))]
        for value in list(vars(module).values()):
            key = "__name__" if isinstance(value, types.ModuleType) else "__module__"
            pending.append(str(getattr(value, key, "")))
    return found
