"""Writes a live module and its inputs to a folder, as data: nothing is pickled.

A module's class is named, its attributes are written as JSON and its tensors to a safetensors file; classes that a
script or notebook defines are copied to source.py. What is written is read again and compared before it counts.

What no forward pass needs is left out: hooks of the backward pass, hooks that act when weights are saved or loaded, and
what `Module.compile()` made. Changes that a program made to classes of installed packages are not seen.
"""

import copyreg
import enum
import functools
import hashlib
import inspect
import logging
import math
import os
import shutil
import site
import sys
import sysconfig
import tempfile
import types
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from bakeoff.models.brought import live_tensors
from bakeoff.models.brought.live_format import (
    INPUT_TENSORS,
    INPUTS,
    LIVE,
    MAIN,
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
from bakeoff.models.brought.live_read import module_of, read_source
from bakeoff.models.brought.live_source import SourceFile, import_path
from bakeoff.models.errors import BakeoffError
from bakeoff.models.signature import describe_call, flatten_call
from bakeoff.models.weights import refuse_unusable

InputSets = Mapping[str, Sequence[tuple[tuple[Any, ...], dict[str, Any]]]]
"""Calls, as positional and keyword arguments, of every named set of inputs."""

LEFT_OUT = (
    "_backward_hooks",
    "_backward_pre_hooks",
    "_is_full_backward_hook",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)
_SHOWN = 12
_DEEPEST = 100
_INT64 = 1 << 63
_ADVICE = "give a function that makes the module in a file instead: bakeoff sweep mine.py:model"


def write_module(
    module: nn.Module,
    folder: Path,
    *,
    name: str = "",
    state: Mapping[str, str] | None = None,
    keep_fp32: Sequence[str] = (),
    hold: Sequence[str] = (),
    place: str = "",
    tolerance_fp32: float | None = None,
) -> None:
    """Write live.json, weights.safetensors and, where `__main__` defines what the module needs, source.py to `folder`.

    The options are those of bakeoff.Model; the name is the class's in lower case unless one is given. Raises
    BakeoffError: `cannot-travel` naming every part that is no data, `target-exists` where a module was written before.
    """
    if (folder / LIVE).exists():
        raise BakeoffError(f"{folder} holds a module already; choose another folder", code="target-exists")
    graph = _Graph()
    root = graph.encode(module, "")
    graph.refuse_problems(type(module).__name__)
    assert isinstance(root, Ref)
    content, layouts = live_tensors.pack(graph.tensors)
    roots = _user_modules(graph.modules)
    live = Live(
        name=name or type(module).__name__.lower(),
        module=root,
        objects=tuple(graph.objects),
        tensors=layouts,
        code={name: hashlib.sha256(file.read_bytes()).hexdigest() for name, (file, _) in sorted(roots.items())},
        import_folders=tuple(sorted({str(folder) for _, folder in roots.values()})),
        state=dict(state or {}),
        keep_fp32=tuple(keep_fp32),
        hold=tuple(hold),
        place=place,
        tolerance_fp32=tolerance_fp32,
    )
    source = graph.source.text()
    with _placed(folder) as temporary:
        live_tensors.save(temporary / WEIGHTS, content)
        if source:
            (temporary / SOURCE).write_text(source, encoding="utf-8")
        (temporary / LIVE).write_bytes(_json(live))
        _verify(graph, live, temporary, type(module).__name__)


def write_inputs(sets: InputSets, folder: Path) -> None:
    """Write inputs.json and inputs.safetensors to `folder`: every call of every set, with its tensors.

    Raises BakeoffError (`cannot-travel`) naming every argument that is neither a tensor nor a plain value, nor made of
    such.
    """
    problems: list[str] = []
    tensors: dict[str, Tensor] = {}
    signatures = {}
    for name, calls in sets.items():
        described = []
        for index, (args, kwargs) in enumerate(calls):
            place = f"{name}/{index}/"
            try:
                signature = describe_call(args, kwargs)
            except BakeoffError as error:
                problems.append(str(error))
                continue
            names = signature.names
            problems += [
                f"{one} is the name of two tensors" for one in sorted({x for x in names if names.count(x) > 1})
            ]
            described.append(signature)
            found = flatten_call(signature, args, kwargs)
            for key, value in found.items():
                refuse_unusable(value, f"{name}: the input {key}", "cannot-travel")
                why = live_tensors.why_unwritable(value)
                problems += [f"{key} {why}"] if why else []
                tensors[place + key] = value
        signatures[name] = tuple(described)
    if problems:
        raise _cannot("what the inputs hold", _listed(problems))
    content, layouts = live_tensors.pack(tensors)
    with _placed(folder) as temporary:
        live_tensors.save(temporary / INPUT_TENSORS, content)
        (temporary / INPUTS).write_bytes(
            msgspec.json.format(msgspec.json.encode(Inputs(signatures, layouts)), indent=1)
        )


class _Graph:
    """What `encode` has met: objects, tensors, what of `__main__` they need, and the parts that cannot travel."""

    def __init__(self, made_of: types.ModuleType | None = None) -> None:
        """`made_of`: the imported source.py, whose classes then count as those of `__main__`."""
        self.objects: list[Entry] = []
        self.tensors: dict[str, Tensor] = {}
        self.source = SourceFile()
        self.modules: set[str] = set()
        self.problems: list[str] = []
        self._ids: dict[int, int] = {}
        self._kept: list[object] = []
        self._source_module = made_of
        self._depth = 0

    def refuse_problems(self, name: str) -> None:
        """Raise BakeoffError if any part met so far cannot travel."""
        if self.problems:
            raise _cannot(name, _listed(list(dict.fromkeys(self.problems))))

    def encode(self, value: Any, path: str) -> Node:
        """The node of a value; parts that cannot travel become problems, named by their path."""
        kind = type(value)
        if value is None or kind in (bool, str) or (kind is int and -_INT64 <= value < _INT64):
            return self._text(value, path) if kind is str else value
        if kind is float and math.isfinite(value):
            return value
        if id(value) in self._ids:
            return Ref(self._ids[id(value)])
        if self._depth > _DEEPEST:
            return self._nothing(path, "is nested too deeply")
        self._depth += 1
        try:
            found = self._plain(value, path)
            return found if found is not None else self._object(value, path)
        finally:
            self._depth -= 1

    def _text(self, value: str, path: str) -> Node:
        try:
            value.encode()
        except UnicodeEncodeError:
            return self._nothing(path, "is text that is not Unicode")
        return value

    def _problem(self, path: str, problem: str) -> ListEntry:
        """Note it, and return what stands for the part until `refuse_problems` is called."""
        self.problems.append(f"{path or 'the module'} {problem}")
        return ListEntry(())

    def _nothing(self, path: str, problem: str) -> Node:
        self._problem(path, problem)
        return None

    def _all(self, values: Any, path: str) -> tuple[Node, ...]:
        return tuple(self.encode(value, _join(path, str(index))) for index, value in enumerate(values))

    def _attributes(self, values: Mapping[str, Any], path: str) -> Attributes:
        return {str(key): self.encode(value, _join(path, str(key))) for key, value in values.items()}

    def _plain(self, value: Any, path: str) -> Node:
        """The node of a value that is the same wherever it is; None for others."""
        kind = type(value)
        if isinstance(value, torch.dtype | torch.layout | torch.memory_format):
            return Import(str(value).replace("torch.", "torch:", 1))
        if value is Ellipsis or value is NotImplemented:
            return Import(f"builtins:{value!r}")
        if isinstance(value, enum.Enum):
            cls = self._class(kind, path)
            return Member(cls, value.name) if value.name in kind.__members__ else Member(cls, None, value.value)
        made = _made(value)
        if made is not None:
            return Call(made[0], self._all(made[1], path))
        if kind is tuple:
            return Tuple(self._all(value, path))
        if kind is frozenset:
            return FrozenSet(self._all(_ordered(value), path))
        if kind is functools.partial:
            named = tuple((key, self.encode(item, _join(path, key))) for key, item in value.keywords.items())
            return Partial(self.encode(value.func, path), self._all(value.args, path), named)
        if isinstance(value, types.MethodType) and not isinstance(value.__self__, type | types.ModuleType):
            return Method(self.encode(value.__func__, path), self.encode(value.__self__, f"{path} (bound to)"))
        if kind is weakref.ref:
            target = value()
            found = None if target is None else self.encode(target, path)
            return WeakRef(found) if isinstance(found, Ref) else self._nothing(path, "is a weak reference to nothing")
        if isinstance(value, type | types.ModuleType) or _is_function(value):
            return self._import(value, path)
        return None

    def _import(self, value: Any, path: str) -> Node:
        found = self._path(value)
        if found:
            return Import(found)
        if isinstance(value, types.ModuleType):
            return self._nothing(path, f"is the Python module {value.__name__}, made by a program")
        name = getattr(value, "__qualname__", "")
        if "<lambda>" in name:
            return self._nothing(path, "is a lambda")
        return self._nothing(path, f"is {name or repr(value)[:80]}, {_why_not_imported(value)}")

    def _path(self, value: Any) -> str:
        """The import path of a class or function; "" where it has none. Definitions of `__main__` go to source.py."""
        made_of = self._source_module
        if made_of is not None and getattr(value, "__module__", None) == made_of.__name__:
            return f"{MAIN}:{value.__qualname__}"
        path = import_path(value)
        if path.startswith(f"{MAIN}:"):
            why = self.source.need(path)
            self.problems += [why] if why else []
        elif path:
            self.modules.add(path.partition(":")[0])
        return path

    def _class(self, kind: type, path: str) -> str:
        found = self._path(kind)
        if not found:
            self._problem(path, f"is of class {kind.__qualname__}, {_why_not_imported(kind)}")
        return found

    def _object(self, value: Any, path: str) -> Node:
        index = self._ids[id(value)] = len(self.objects)
        self._kept.append(value)  # an id is an object's only as long as it lives
        self.objects.append(ListEntry(()))
        self.objects[index] = self._entry(value, path)
        return Ref(index)

    def _entry(self, value: Any, path: str) -> Entry:
        kind = type(value)
        if isinstance(value, Tensor):
            return self._tensor(value, path)
        if kind is np.ndarray or isinstance(value, np.generic):
            return self._array(value, path)
        if isinstance(value, nn.Module):
            return self._module(value, path)
        if kind is list:
            return ListEntry(self._all(value, path))
        if kind is set:
            return SetEntry(self._all(_ordered(value), path))
        if kind in (dict, OrderedDict, defaultdict):
            pairs = self._pairs(value.items(), path)
            factory = self.encode(value.default_factory, f"{path} (its factory)") if kind is defaultdict else None
            return DictEntry(pairs, kind.__name__, factory)  # type: ignore[arg-type]  # one of the three names
        return self._instance(value, path)

    def _pairs(self, pairs: Any, path: str) -> tuple[tuple[Node, Node], ...]:
        return tuple(
            (self.encode(key, f"{path} (a key)"), self.encode(item, _join(path, str(key)))) for key, item in pairs
        )

    def _tensor(self, value: Tensor, path: str) -> Entry:
        refuse_unusable(value, path, "cannot-travel")
        why = live_tensors.why_unwritable(value)
        if why:
            return self._problem(path, why)
        name = self._named(value, path)
        is_parameter = isinstance(value, nn.Parameter)
        attributes = {key: held for key, held in vars(value).items() if key != "_is_buffer"}
        return TensorEntry(
            name,
            "parameter" if is_parameter else "buffer" if getattr(value, "_is_buffer", False) else "tensor",
            value.requires_grad and value.is_leaf,
            self._attributes(attributes, path),
        )

    def _named(self, value: Tensor, path: str) -> str:
        name = path
        while name in self.tensors:
            name += "'"
        self.tensors[name] = value
        return name

    def _array(self, value: Any, path: str) -> Entry:
        try:
            tensor = torch.from_numpy(np.array(value))
        except TypeError:
            return self._problem(path, f"is a numpy array of {value.dtype}, which torch has no dtype for")
        return TensorEntry(self._named(tensor, path), "scalar" if isinstance(value, np.generic) else "array")

    def _module(self, value: nn.Module, path: str) -> Entry:
        kind: Any = type(value)
        parametrized: tuple[str, ...] = ()
        held: Any = dict(vars(value))
        if isinstance(value, torch.jit.ScriptModule):
            return self._problem(path, "is a module of torch.jit, which has no Python class")
        if "_orig_mod" in held.get("_modules", {}) and kind.__module__.startswith("torch._dynamo"):
            return self._problem(path, "was returned by torch.compile; give the module that was compiled")
        if parametrize.is_parametrized(value):
            parametrized = tuple(value.parametrizations.keys())  # type: ignore[operator,union-attr]  # a ModuleDict
            kind = kind.__mro__[1]
        elif kind.__getstate__ is not nn.Module.__getstate__:  # as torch.nn.LSTM, which drops its weak references
            held = value.__getstate__()
        if not isinstance(held, dict):
            return self._problem(path, f"has a __getstate__ that returns a {type(held).__name__}, not a dict")
        held.pop("_compiled_call_impl", None)
        default = vars(nn.Module())
        groups = {
            group: self._attributes(held.pop(group, {}), path) for group in ("_parameters", "_buffers", "_modules")
        }
        attributes = {
            key: item for key, item in held.items() if key not in LEFT_OUT and not _is_default(item, default.get(key))
        }
        return ModuleEntry(
            path,
            self._class(kind, path),
            self._attributes(attributes, path),
            groups["_parameters"],
            groups["_buffers"],
            groups["_modules"],
            parametrized,
        )

    def _instance(self, value: Any, path: str) -> Entry:
        kind: Any = type(value)
        what = f"is a {kind.__module__}.{kind.__qualname__}".replace("builtins.", "")
        protocol = (kind.__reduce_ex__, kind.__reduce__)
        custom = protocol != (object.__reduce_ex__, object.__reduce__) or kind in copyreg.dispatch_table
        by_attributes = isinstance(value, OrderedDict | types.SimpleNamespace)  # which have a protocol of their own
        if custom and not by_attributes:
            return self._problem(path, what)
        args: Any
        state: Any
        try:
            if by_attributes:
                args, state, items = (), dict(vars(value)), None
                pairs = value.items() if isinstance(value, OrderedDict) else None
            else:
                maker, args, state, items, pairs = (*value.__reduce_ex__(4), None, None, None)[:5]
                if maker is not copyreg.__newobj__:  # type: ignore[attr-defined]  # not in typeshed
                    raise TypeError
                args = args[1:]
        except Exception:  # noqa: BLE001  # classes raise what they like here
            return self._problem(path, what)
        cls = self._class(kind, path)
        made = self._all(args, path)
        if state is not None and hasattr(kind, "__setstate__"):
            return InstanceEntry(cls, made, {}, self.encode(state, path), self._all(items or (), path))
        own, slots = state if isinstance(state, tuple) else (state, None)
        return InstanceEntry(
            cls,
            made,
            self._attributes({**(own or {}), **(slots or {})}, path),
            None,
            self._all(items or (), path),
            self._pairs(pairs or (), path),
        )


def _made(value: Any) -> tuple[str, Sequence[Any]] | None:
    """Maker and arguments, as in `live_format.MAKERS`."""
    kind = type(value)
    if kind is float:
        return "float", [str(value)]
    if kind is int:
        return "hexadecimal", [hex(value)]
    if kind is complex:
        return "complex", [str(value)]
    if kind is bytes:
        return "bytes", [value.hex()]
    if kind is range or kind is slice:
        return kind.__name__, [value.start, value.stop, value.step]
    if kind is torch.Size:
        return "size", [tuple(value)]
    if isinstance(value, torch.device):
        return "device", [str(value)]
    if isinstance(value, logging.Logger):
        return "logger", [value.name]
    if isinstance(value, PurePath):
        return "path", [str(value)]
    return None


def _is_function(value: Any) -> bool:
    return (
        inspect.isroutine(value)
        or isinstance(value, functools._lru_cache_wrapper)
        or (callable(value) and bool(import_path(value)))
    )


def _why_not_imported(value: Any) -> str:
    """Why a class or function has no import path, as the end of a sentence."""
    name = getattr(value, "__qualname__", "")
    module = getattr(value, "__module__", None)
    if "<locals>" in name:
        return "defined inside a function; define it at the top of its file"
    if module == MAIN and hasattr(sys.modules[MAIN], name.partition(".")[0]):
        return "which has been defined again since; make the module again"
    return f"which cannot be imported from {module or 'any module'}"


def _is_default(value: Any, default: Any) -> bool:
    """Whether an attribute is as nn.Module makes it."""
    return default is not None and type(value) is type(default) and not value and not default


def _ordered(values: Any) -> list[Any]:
    """The items of a set, in an order that does not change between processes."""
    return sorted(values, key=lambda value: (type(value).__name__, repr(value)))


def _cannot(what: str, why: str) -> BakeoffError:
    return BakeoffError(f"{what} cannot travel to another process: {why}; {_ADVICE}", code="cannot-travel")


def _json(value: Live | Inputs) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _listed(problems: Sequence[str]) -> str:
    more = f", and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
    return ", ".join(problems[:_SHOWN]) + more


def _user_modules(needed: set[str]) -> dict[str, tuple[Path, Path]]:
    """Python modules of the user's own: those needed and what they import, with file and the folder they come from.

    Installed packages, the standard library and bakeoff itself are not among them.
    """
    found: dict[str, tuple[Path, Path]] = {}
    pending, seen = sorted(needed), set()
    while pending:
        name = pending.pop()
        module = sys.modules.get(name)
        if name in seen or module is None:
            continue
        seen.add(name)
        place = _own_file(module)
        if place is None:
            continue
        found[name] = place
        parts = name.split(".")
        pending += [".".join(parts[:count]) for count in range(1, len(parts))]
        for value in list(vars(module).values()):
            other = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
            if isinstance(other, str) and other != MAIN:
                pending.append(other)
    return found


def _own_file(module: types.ModuleType) -> tuple[Path, Path] | None:
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or not file.endswith(".py") or module.__name__.partition(".")[0] == "bakeoff":
        return None
    path = Path(file).absolute()
    installed = [*sysconfig.get_paths().values(), *site.getsitepackages(), site.getusersitepackages()]
    if not path.is_file() or any(path.is_relative_to(folder) for folder in installed):
        return None
    depth = module.__name__.count(".") + (path.name == "__init__.py")
    return path, path.parents[depth]


def _verify(graph: _Graph, live: Live, folder: Path, name: str) -> None:
    """Read the folder and compare. Raises BakeoffError (`cannot-travel`) naming what came out otherwise."""
    source = read_source(folder)
    changed = graph.source.changes(source) if source is not None else []
    if changed:
        text = f"{_listed(changed)} {'is' if len(changed) == 1 else 'are'} not as in the source, "
        raise BakeoffError(
            f"{name} cannot travel to another process: {text}so run it again; or {_ADVICE}", "cannot-travel"
        )
    again = _Graph(source)
    again.encode(module_of(live, folder, source), "")
    different = [_entry_name(one) for one, other in zip(graph.objects, again.objects, strict=False) if one != other] + [
        key
        for key, tensor in graph.tensors.items()
        if key not in again.tensors or not live_tensors.same_bits(tensor, again.tensors[key])
    ]
    different += again.problems
    if different or len(graph.objects) != len(again.objects):
        raise _cannot(name, f"{_listed(different) or 'its tree'} would not arrive as it is")


def _entry_name(entry: Entry) -> str:
    match entry:
        case ModuleEntry(path=path):
            return path or "the module"
        case TensorEntry(name=name):
            return name
        case InstanceEntry(cls=cls):
            return f"a {cls}"
    return "a container"


@contextmanager
def _placed(folder: Path) -> Iterator[Path]:
    """A folder whose files are moved to `folder` at the end, or deleted where the block raises."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=folder, prefix=".writing-"))
    except OSError as error:
        raise _unwritable(folder, error) from error
    try:
        yield temporary
        for file in sorted(temporary.iterdir(), key=lambda file: file.name == LIVE):  # live.json last: it is complete
            os.replace(file, folder / file.name)
    except OSError as error:
        raise _unwritable(folder, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _unwritable(folder: Path, error: OSError) -> BakeoffError:
    text = f"{folder} cannot be written: {error.strerror or error}; make room or choose another folder"
    return BakeoffError(text, code="not-writable")
