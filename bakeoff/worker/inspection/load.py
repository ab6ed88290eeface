"""Loads the user's callable for an inspection: what one pass runs, and the modules that it refers to, with names."""

import functools
import inspect
import sys
import sysconfig
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bakeoff.models.errors import BakeoffError, a_type
from bakeoff.models.lookup import take_from_file
from bakeoff.models.pipelines.pipeline import Pipeline
from bakeoff.worker.failures import users_code

_WANTED = "name a function without arguments that runs one pass, or returns the function that does"
_MOST_OBJECTS = 50_000
_DEEPEST = 6
_LIBRARIES = tuple({sysconfig.get_path(key) for key in ("stdlib", "platstdlib", "purelib", "platlib")})
_PLAIN = (str, bytes, int, float, complex, type(None), type, torch.Tensor, torch.dtype, torch.device)
_OWN_OF_MODULES = frozenset(vars(nn.Module()))


def load_pass(file: Path, name: str) -> tuple[Callable[[], Any], Any]:
    """Return a function that runs one pass, and the user's callable, from which a search for modules starts.

    The function `name` is called once. If it returns a callable, or a pair of a callable and its keyword arguments,
    that is what a pass runs; otherwise a pass runs the function itself. Raises BakeoffError if there is no such
    function, it needs arguments, or user code raises.
    """
    what = f"{file.name}:{name}"
    found = take_from_file(file, name)
    if not callable(found):
        raise BakeoffError(f"{what} is {a_type(type(found))}; {_WANTED}", "bad-user-code")
    if isinstance(found, type) and issubclass(found, Pipeline):
        text = "its phases are measured by bakeoff pipeline, and its modules swept by bakeoff sweep"
        raise BakeoffError(f"{what} is a pipeline; {text}", "bad-user-code")
    _check_arguments(found, {}, what)
    with users_code(what):
        returned = found()
    subject: Callable[..., Any] = found
    arguments: dict[str, Any] = {}
    if isinstance(returned, tuple) and len(returned) == 2 and callable(returned[0]) and isinstance(returned[1], dict):
        subject, arguments = returned
    elif callable(returned):
        subject = returned
    _check_arguments(subject, arguments, what)

    def run() -> Any:
        with users_code(what):
            return _bound(subject)(**arguments)

    return run, subject


def _bound(subject: Callable[..., Any]) -> Callable[..., Any]:
    """If `subject` is a bound method, look it up again on its object; otherwise return it unchanged.

    A method that was bound before its class was instrumented would not be seen.
    """
    if isinstance(subject, types.MethodType):
        return getattr(subject.__self__, subject.__name__, subject)
    return subject


def _check_arguments(found: Callable[..., Any], arguments: Mapping[str, Any], what: str) -> None:
    """Raise BakeoffError if `found` cannot be called with these keyword arguments."""
    try:
        signature = inspect.signature(found.forward if isinstance(found, nn.Module) else found)
    except ValueError:
        return  # of C, without a signature
    try:
        signature.bind(**arguments)
    except TypeError as error:
        given = f"with {', '.join(arguments)}" if arguments else "without arguments"
        raise BakeoffError(f"{what} cannot be called {given}: {error}; {_WANTED}", "bad-user-code") from error


def find_modules(root: Callable[..., Any]) -> list[tuple[str, nn.Module]]:
    """Return the modules that a callable refers to, each with its shortest path: `pipe.unet`, `pipe.unet.down.0`.

    The search covers closures, globals that a function's code names, default arguments, `self` of methods, arguments of
    partials, attributes, dicts, lists, tuples and sets, up to six levels deep. An attribute of the callable itself, or
    of the object whose method it is, has no prefix.
    """
    found: dict[int, tuple[str, nn.Module]] = {}
    seen = {id(root): root}  # held, so that no id is used again
    queue: deque[tuple[Any, str, int]] = deque([(root, "", 0)])
    while queue and len(seen) < _MOST_OBJECTS:
        value, name, depth = queue.popleft()
        if isinstance(value, nn.Module):
            for path, module in value.named_modules():
                steps = _joined(name, path).split(".")
                full = ".".join(step for step in steps if step != "_orig_mod") or type(module).__name__
                if id(module) not in found or full.count(".") < found[id(module)][0].count("."):
                    found[id(module)] = full, module
        if depth >= _DEEPEST:
            continue
        for label, part in _parts(value):
            if id(part) not in seen and not isinstance(part, _PLAIN):
                seen[id(part)] = part
                queue.append((part, _joined(name, label), depth + 1))
    return list(found.values())


def _joined(name: str, label: str) -> str:
    return f"{name}.{label}" if name and label else name or label


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield (name, object) for each object that a value refers to; the name is "" if it adds nothing to the path."""
    match value:
        case types.FunctionType():
            yield from _parts_of_function(value)
        case types.MethodType():
            yield "", value.__self__
            yield "", value.__func__
        case functools.partial():
            yield "", value.func
            yield from enumerate_named(value.args)
            yield from value.keywords.items()
        case Mapping():
            yield from ((str(key), part) for key, part in list(value.items()))
        case list() | tuple() | set() | frozenset() | deque():
            yield from enumerate_named(value)
        case nn.Module():
            yield from ((key, part) for key, part in vars(value).items() if key not in _OWN_OF_MODULES)
        case types.ModuleType():
            return
        case _:
            yield from list(getattr(value, "__dict__", {}).items())
            for kind in type(value).__mro__:
                slots = vars(kind).get("__slots__", ())
                for key in [slots] if isinstance(slots, str) else slots:
                    if not key.startswith("__") and hasattr(value, key):
                        yield key, getattr(value, key)
            if callable(value) and isinstance(type(value).__call__, types.FunctionType):
                yield "", type(value).__call__


def enumerate_named(values: Any) -> Iterator[tuple[str, Any]]:
    return ((str(index), part) for index, part in enumerate(values))


def _parts_of_function(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    if hasattr(function, "__wrapped__"):  # by a decorator, such as torch.inference_mode
        yield "", function.__wrapped__
    if function.__code__.co_filename.startswith(_LIBRARIES):
        return
    for label, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield label, cell.cell_contents
        except ValueError:  # the cell is empty
            continue
    yield from enumerate_named(function.__defaults__ or ())
    yield from (function.__kwdefaults__ or {}).items()
    used = set(_names_in(function.__code__))
    for label in sorted(used & function.__globals__.keys()):
        value = function.__globals__[label]
        if isinstance(value, types.ModuleType):
            yield from _parts_of_python_module(label, value, used)
        else:
            yield label, value


def _parts_of_python_module(label: str, module: types.ModuleType, used: set[str]) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of a user's own Python module that a function's code names, given as `used`."""
    file = getattr(module, "__file__", None) or ""
    if module.__name__.partition(".")[0] in sys.stdlib_module_names or not file or file.startswith(_LIBRARIES):
        return
    for key in sorted(used & vars(module).keys()):
        yield f"{label}.{key}", vars(module)[key]


def _names_in(code: types.CodeType) -> Iterator[str]:
    """Yield the global and attribute names in a function's code and in that of functions defined in it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)
