"""The source of classes and functions that a script or notebook defines, as one importable file.

A script's `__main__` cannot be imported in another process without running the script again. So the definitions that a
module needs are copied from it, with the definitions, imports and constants that they use in turn.
"""

import ast
import dis
import functools
import inspect
import linecache
import math
import sys
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from itertools import chain
from typing import Any

import torch

from bakeoff.models.brought.live_format import MAIN

_FUTURE_FLAG = 0x1000000
"""CO_FUTURE_ANNOTATIONS of code objects, and of compile()."""
_GLOBAL_READS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
_RUN_AT_ONCE = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
_MADE_IN_TORCH = ("torch:", "torch.nn.functional:", "torch:Tensor.", "math:", "operator:")


def import_path(value: Any) -> str:
    """`package.module:Name` under which a class, function or Python module can be imported; "" if under none.

    What `__main__` defines has such a path too, with that name as its module. A Python module has an empty name.
    """
    if inspect.ismodule(value):
        return f"{value.__name__}:" if _is_importable(value.__name__) else ""
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    if not isinstance(name, str) or "<" in name:
        return ""
    module = getattr(value, "__module__", None) or getattr(getattr(value, "__self__", None), "__name__", None)
    if isinstance(module, str) and _at(module, name) is value and (module == MAIN or _is_importable(module)):
        return f"{module}:{name}"
    if inspect.isbuiltin(value) or inspect.ismethoddescriptor(value):  # torch's say other names than one imports
        last = name.rpartition(".")[2]
        return next((place + last for place in _MADE_IN_TORCH if _at(*(place + last).split(":")) is value), "")
    return ""


def _at(module: str, name: str) -> Any:
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _is_importable(module: str) -> bool:
    """Whether another process can import it: it was loaded from somewhere, not made by a program."""
    found = sys.modules.get(module)
    if found is None or module == MAIN:
        return False
    spec = getattr(found, "__spec__", None)
    return (spec is not None and spec.loader is not None) or module.startswith("torch.")


@dataclass(frozen=True)
class _Part:
    """What one name of the file stands for."""

    text: str
    at_once: tuple[str, ...] = ()
    """Names that must be defined before it."""
    later: tuple[str, ...] = ()
    """Names that its functions use when they are called."""
    defined: Any = None
    """The live class or function, where it is a definition."""


class SourceFile:
    """The file source.py, as far as it is known what must be in it."""

    def __init__(self) -> None:
        self._names: dict[str, Any] = vars(sys.modules[MAIN])
        self._parts: dict[str, _Part] = {}
        self._problems: dict[str, str] = {}
        self._imports: dict[str, str] = {}
        self._future = False

    def need(self, path: str) -> str:
        """Put the definition of `__main__:Name.inner` into the file; returns why that is impossible, else ""."""
        name = path.partition(":")[2].partition(".")[0]
        self._add(name, "")
        pending, seen = [name], set()
        while pending:
            one = pending.pop()
            if one in self._problems:
                return self._problems[one]
            if one not in seen and one in self._parts:
                seen.add(one)
                pending += [*self._parts[one].at_once, *self._parts[one].later]
        return ""

    def text(self) -> str:
        """The file; empty where it defines nothing."""
        if not self._parts:
            return ""
        written: dict[str, str] = {}
        for name in sorted(self._parts, key=lambda name: not self._parts[name].text.startswith(("import ", "from "))):
            self._write(name, written)
        head = ['"""Definitions of a script or notebook that a module needs. Written by bakeoff."""']
        if self._future:
            head.append("from __future__ import annotations")
        head += [f"import {module} as {alias}" for module, alias in self._imports.items()]
        return "\n\n".join(["\n".join(head), *written.values()]) + "\n"

    def changes(self, module: types.ModuleType) -> list[str]:
        """What of the live definitions is not as in the file, which was imported as `module`."""
        found: list[str] = []
        for name, part in self._parts.items():
            if part.defined is not None:
                found += _differences(name, part.defined, getattr(module, name, None))
        return found

    def _write(self, name: str, written: dict[str, str]) -> None:
        part = self._parts.get(name)
        if part is None or name in written:
            return
        written[name] = ""
        for other in part.at_once:
            self._write(other, written)
        del written[name]  # after what it needs
        written[name] = part.text
        for other in part.later:
            self._write(other, written)

    def _add(self, name: str, user: str) -> None:
        if name in self._parts or name in self._problems:
            return
        value = self._names[name]
        user = user or name
        if inspect.ismodule(value):
            self._parts[name] = _Part(f"import {value.__name__} as {name}")
            if not import_path(value):
                self._problems[name] = f"{user} uses {name}, a module made by a program"
        elif _is_defined_there(value, name):
            self._define(name, value)
        else:
            needed: list[str] = []
            text = self._expression(value, needed)
            if text is None:
                what = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
                self._problems[name] = f"{user} uses the global {name}, a {what}"
                return
            owner, _, inner = import_path(value).partition(":")
            imported = inner and "." not in inner and owner != MAIN
            text = f"from {owner} import {inner} as {name}" if imported else f"{name} = {text}"
            self._parts[name] = _Part(text, tuple(needed))
            for other in needed:
                self._add(other, name)

    def _define(self, name: str, value: Any) -> None:
        found = _definition(name, value)
        if isinstance(found, str):
            self._problems[name] = found
            return
        text, node, future = found
        self._future |= future
        code = compile(text, f"<{name}>", "exec", flags=_FUTURE_FLAG if future else 0, dont_inherit=True)
        own = {one for one in self._names if one != name and not one.startswith("__")}
        at_once = [one for one in dict.fromkeys(_reads(code, called=False)) if one in own]
        later = [one for one in dict.fromkeys(_reads(code, called=True)) if one in own]
        for module in sorted(set(self._submodules(node))):
            self._alias(module)
        self._parts[name] = _Part(text, tuple(at_once), tuple(later), value)
        for other in (*at_once, *later):
            self._add(other, name)

    def _submodules(self, tree: ast.AST) -> Iterator[str]:
        """Modules that are reached as attributes of a package, as `torch.nn.utils.parametrize` of `torch`."""
        for node in ast.walk(tree):
            chain_, inner = [], node
            while isinstance(inner, ast.Attribute):
                chain_.append(inner.attr)
                inner = inner.value
            if not chain_ or not isinstance(inner, ast.Name):
                continue
            found = self._names.get(inner.id)
            for attribute in reversed(chain_):
                found = getattr(found, attribute, None) if inspect.ismodule(found) else None
                if inspect.ismodule(found) and sys.modules.get(found.__name__) is found and import_path(found):
                    yield found.__name__

    def _alias(self, module: str) -> str:
        return self._imports.setdefault(module, f"_bakeoff_{module.replace('.', '_')}")

    def _expression(self, value: Any, needed: list[str]) -> str | None:
        """Python that makes an equal value, or None; `needed` gets the names of the file that it uses."""
        kind = type(value)
        if value is None or value is Ellipsis or kind in (bool, int, str, bytes):
            return repr(value)
        if kind in (float, complex):
            plain = math.isfinite(value) if kind is float else False
            return repr(value) if plain else f"{kind.__name__}({str(value)!r})"
        if isinstance(value, torch.dtype | torch.layout | torch.memory_format):
            return f"{self._alias('torch')}.{str(value).removeprefix('torch.')}"
        if isinstance(value, torch.device):
            return f"{self._alias('torch')}.device({str(value)!r})"
        if isinstance(value, Enum):
            owner = self._expression(kind, needed)
            return f"{owner}[{value.name!r}]" if owner and value.name else None
        if kind in (list, tuple, set, frozenset, torch.Size):
            return self._several(kind, value, needed)
        if kind is dict:
            items = [self._expression(list(pair), needed) for pair in value.items()]
            return None if None in items else f"dict([{', '.join(filter(None, items))}])"
        return self._typing(value, needed) or self._made(value, needed) or self._named(value, needed)

    def _several(self, kind: type, values: Any, needed: list[str]) -> str | None:
        items = [self._expression(item, needed) for item in values]
        if None in items:
            return None
        text = f"[{', '.join(filter(None, items))}]"
        maker = f"{self._alias('torch')}.Size" if kind is torch.Size else kind.__name__
        return text if kind is list else f"{maker}({text})"

    def _named(self, value: Any, needed: list[str]) -> str | None:
        path = import_path(value)
        if not path:
            return None
        module, _, name = path.partition(":")
        if module != MAIN:
            return f"{self._alias(module)}.{name}" if name else self._alias(module)
        needed.append(name.partition(".")[0])
        return name

    def _made(self, value: Any, needed: list[str]) -> str | None:
        """A partial function, a namespace or a dataclass as the call that makes it."""
        if isinstance(value, functools.partial) and type(value) is functools.partial:
            maker, args, named = f"{self._alias('functools')}.partial", [value.func, *value.args], value.keywords
        elif type(value) is types.SimpleNamespace:
            maker, args, named = f"{self._alias('types')}.SimpleNamespace", [], vars(value)
        elif is_dataclass(value) and not isinstance(value, type) and all(field.init for field in fields(value)):
            owner = self._named(type(value), needed)
            if owner is None:
                return None
            maker, args, named = owner, [], {field.name: getattr(value, field.name) for field in fields(value)}
        else:
            return None
        first, second = self._expression(list(args), needed), self._expression(dict(named), needed)
        return None if first is None or second is None else f"{maker}(*{first}, **{second})"

    def _typing(self, value: Any, needed: list[str]) -> str | None:
        """A type hint, such as `dict[str, Tensor]`."""
        if isinstance(value, typing.TypeVar):
            return f"{self._alias('typing')}.TypeVar({value.__name__!r})"
        origin, parts = typing.get_origin(value), typing.get_args(value)
        if origin is None or not parts:
            return None
        special = {typing.Literal: "Literal", typing.Union: "Union", types.UnionType: "Union"}.get(origin)
        base = f"{self._alias('typing')}.{special}" if special else self._named(origin, needed)
        items = [self._expression(part, needed) for part in parts]
        return None if base is None or None in items else f"{base}[{', '.join(filter(None, items))}]"


def _is_defined_there(value: Any, name: str) -> bool:
    """Whether a `def` or `class` statement of `__main__` made it, perhaps under a decorator."""
    return (
        getattr(value, "__module__", None) == MAIN
        and getattr(value, "__qualname__", None) == name
        and (isinstance(value, type) or hasattr(inspect.unwrap(value), "__code__"))
        and "<" not in name
    )


def _definition(name: str, value: Any) -> tuple[str, ast.AST, bool] | str:
    """Text, tree and "are annotations postponed" of the statement that defined `value`, or why it is not to be had."""
    codes = [code for _, code in _codes(value)]
    for code in codes:
        found = _find(name, code.co_filename, code.co_firstlineno)
        if found is not None:
            return found[0], found[1], found[2] or bool(code.co_flags & _FUTURE_FLAG)
    if isinstance(value, type):  # one without methods does not say where it is from; the newest cell is tried first
        cells = [key for key in reversed(linecache.cache) if isinstance(key, str)]
        script = getattr(sys.modules[MAIN], "__file__", None)
        for file in filter(None, [script, *(cell for cell in cells if "ipykernel" in cell or cell.startswith("<"))]):
            found = _find(name, file, 0)
            if found is not None:
                return found
    where = next((code.co_filename for code in codes), "")
    origin = f" ({where})" if where else ""
    return f"the source of {name}{origin} is not to be had"


def _find(name: str, file: str, line: int) -> tuple[str, ast.AST, bool] | None:
    lines = linecache.getlines(file)
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError):
        return None
    future = any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body)
    chosen = None
    for node in _statements(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if not line or first <= line <= (node.end_lineno or line):
                chosen = (node, first)
    if chosen is None:
        return None
    node, first = chosen
    text = ast.unparse(node) if node.col_offset else "".join(lines[first - 1 : node.end_lineno]).rstrip()
    return text, node, future


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """All statements but those within functions and classes."""
    for node in ast.iter_child_nodes(tree):
        yield node
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _statements(node)


def _codes(value: Any) -> Iterator[tuple[str, types.CodeType]]:
    """The code of a function, or of each function that a class defines, by name."""
    if not isinstance(value, type):
        yield "", inspect.unwrap(value).__code__
        return
    for name, held in vars(value).items():
        inner = held.fget if isinstance(held, property) else getattr(held, "__func__", held)
        code = getattr(inspect.unwrap(inner) if callable(inner) else inner, "__code__", None)
        if isinstance(code, types.CodeType):
            yield name, code


def _reads(code: types.CodeType, called: bool) -> Iterator[str]:
    """Globals that are read when a statement runs or, with `called`, by the functions that it defines."""
    functions = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    is_function = bool(code.co_flags & inspect.CO_OPTIMIZED) and code.co_name not in _RUN_AT_ONCE
    if is_function == called:
        stored: set[str] = set()
        for instruction in dis.get_instructions(code):
            if instruction.opname == "STORE_NAME":
                stored.add(instruction.argval)
            elif instruction.opname in _GLOBAL_READS and instruction.argval not in stored:
                yield instruction.argval
    if is_function:
        yield from chain.from_iterable(_all_reads(inner) for inner in functions if called)
    else:
        yield from chain.from_iterable(_reads(inner, called) for inner in functions)


def _all_reads(code: types.CodeType) -> Iterator[str]:
    yield from _reads(code, called=False)
    yield from _reads(code, called=True)


def _differences(name: str, live: Any, copied: Any) -> list[str]:
    """How a live class or function differs from the one that its source makes."""
    wanted, found = dict(_codes(live)), dict(_codes(copied))
    different = [key for key in wanted if key not in found or not _same_code(wanted[key], found[key])]
    if isinstance(live, type) and isinstance(copied, type):
        for key, value in vars(live).items():
            plain = type(value) in (bool, int, float, str, type(None)) and not key.startswith("__")
            if plain and (key not in vars(copied) or repr(vars(copied)[key]) != repr(value)):
                different.append(key)
    return [".".join(filter(None, (name, key))) for key in different]


def _same_code(one: types.CodeType, other: types.CodeType) -> bool:
    """Whether two functions do the same, wherever they were defined."""
    if (one.co_code, one.co_names, one.co_varnames) != (other.co_code, other.co_names, other.co_varnames):
        return False
    pairs = list(zip(one.co_consts, other.co_consts, strict=False))
    return len(one.co_consts) == len(other.co_consts) and all(
        _same_code(mine, its) if isinstance(mine, types.CodeType) and isinstance(its, types.CodeType) else mine == its
        for mine, its in pairs
    )
