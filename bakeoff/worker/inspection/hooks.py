"""Lets a tree see every call of a module, and of the public methods of module classes, while a context is open."""

import functools
import inspect
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from bakeoff.worker.inspection.tree import Tree


@contextmanager
def watched_calls(tree: Tree, classes: Iterable[type]) -> Iterator[None]:
    """Replace `nn.Module.__call__` and the public methods of `classes` by functions that tell `tree`; restored at the
    end.

    Compiled code keeps running as it is: nothing within it is seen, and where it is traced meanwhile, the originals
    are.
    """
    changed: list[tuple[type, str, Any]] = []
    try:
        changed.append((nn.Module, "__call__", nn.Module.__call__))
        nn.Module.__call__ = _watched(tree, nn.Module.__call__, "")  # type: ignore[method-assign]
        for kind, name, function in public_methods(classes):
            changed.append((kind, name, function))
            setattr(kind, name, _watched(tree, function, name))
        yield
    finally:
        for kind, name, function in reversed(changed):
            setattr(kind, name, function)


def public_methods(classes: Iterable[type]) -> list[tuple[type, str, types.FunctionType]]:
    """The public methods that these classes, and those between them and nn.Module, define, `forward` included.

    Methods of torch's own classes, properties, class methods and generators are left out: a generator's work is not
    done by its call.
    """
    kinds = dict.fromkeys(base for kind in classes for base in kind.__mro__ if _is_users(base))
    return [
        (kind, name, function)
        for kind in kinds
        for name, function in list(vars(kind).items())
        if not name.startswith("_") and isinstance(function, types.FunctionType) and not _is_lazy(function)
    ]


def _is_users(kind: type) -> bool:
    return issubclass(kind, nn.Module) and kind is not nn.Module and kind.__module__.partition(".")[0] != "torch"


def _is_lazy(function: Callable[..., Any]) -> bool:
    function = inspect.unwrap(function)
    return inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function)


def _watched(tree: Tree, original: Callable[..., Any], method: str) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return original(module, *args, **kwargs)
        depth = tree.enter(module, method, args, kwargs)
        try:
            return original(module, *args, **kwargs)
        finally:
            tree.leave(depth)

    return call
