"""Attributes what a meter reads (a clock, a counter of FLOPs) to the modules that are being called, as a tree."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

OUTSIDE = 0
"""Index of the root of the tree."""


@dataclass(slots=True)
class Place:
    """One place of the tree: a module or a method that was called from `parent`."""

    name: str
    parent: int
    module: nn.Module
    method: str


@dataclass(slots=True)
class Pass:
    """Result of one pass: calls and the meter's differences by place, and what the attribution itself took."""

    calls: Counter[int] = field(default_factory=Counter)
    own: Counter[int] = field(default_factory=Counter)
    hooks: int = 0
    whole: int = 0
    other_threads: Counter[str] = field(default_factory=Counter)


Capture = Callable[[str, nn.Module, str, Sequence[Any], Mapping[str, Any]], None]
"""Gets name, module, method ("" for a call), positional and keyword arguments at each entry."""


def _nothing() -> None:
    pass


class Tree:
    """Places over all passes. `enter` and `leave` are called at each entry into a module and each exit from it."""

    def __init__(self, names: Mapping[int, str]) -> None:
        """`names` are those of known modules, by id."""
        self.places = [Place("", -1, nn.Module(), "")]
        """The first is the pass outside of modules."""
        self._names = names
        self._index: dict[tuple[int, str], int] = {}
        self._pass: Pass | None = None

    def begin(
        self, meter: Callable[[], int], synchronise: Callable[[], None] = _nothing, capture: Capture | None = None
    ) -> None:
        """Begin a pass on this thread. `synchronise` is called before each reading of the meter."""
        self._meter, self._synchronise, self._capture = meter, synchronise, capture
        self._thread = threading.get_ident()
        self._stack: list[tuple[int, int]] = [(OUTSIDE, 0)]
        self._active: Counter[int] = Counter()
        self._open: Counter[str] = Counter()
        self._unnamed: dict[int, tuple[str, nn.Module]] = {}
        self._numbers: Counter[str] = Counter()
        self._pass = Pass()
        synchronise()
        self._started = self._last = meter()

    def end(self) -> Pass:
        """End the pass, of which all calls are left."""
        self._synchronise()
        now = self._meter()
        done, self._pass = self._pass, None
        assert done is not None
        done.own[self._stack[-1][0]] += now - self._last
        done.whole = now - self._started
        return done

    def enter(self, module: nn.Module, method: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
        """A call of `module`, or of its `method`, begins; returns what `leave` gets, 0 where nothing is to be left.

        A method that is called while its module is (such as a helper of its forward) is part of that call.
        """
        current = self._pass
        if current is None:
            return 0
        if threading.get_ident() != self._thread:
            if not method:
                current.other_threads[self._names.get(id(module)) or type(module).__name__] += 1
            return 0
        if method and self._active[id(module)]:
            return 0
        self._synchronise()
        now = self._meter()
        current.own[self._stack[-1][0]] += now - self._last
        name = self._name_of(module)
        if method:
            name = f"{name}.{method}"
        place = self._place(name, module, method)
        current.calls[place] += 1
        self._stack.append((place, id(module)))
        self._active[id(module)] += 1
        self._open[name] += 1
        if self._capture is not None:
            self._capture(name, module, method, args, kwargs)
        depth = len(self._stack) - 1
        self._last = self._meter()
        current.hooks += self._last - now
        return depth

    def leave(self, depth: int) -> None:
        """The call ends, by a return or an exception, and with it those within it that were not left."""
        current = self._pass
        if not depth or current is None or depth >= len(self._stack):
            return
        self._synchronise()
        now = self._meter()
        current.own[self._stack[-1][0]] += now - self._last
        for place, module in self._stack[depth:]:
            self._active[module] -= 1
            self._open[self.places[place].name] -= 1
        del self._stack[depth:]
        self._last = self._meter()
        current.hooks += self._last - now

    def _name_of(self, module: nn.Module) -> str:
        """The name of a module; a number after its class, by the order of first calls in a pass, where it has none."""
        known = self._names.get(id(module))
        if known is not None:
            return known
        if id(module) not in self._unnamed:
            kind = type(module).__name__
            self._numbers[kind] += 1
            self._unnamed[id(module)] = f"{kind}#{self._numbers[kind]}", module
        return self._unnamed[id(module)][0]

    def _place(self, name: str, module: nn.Module, method: str) -> int:
        """The place of a call below the present one; that of the call which it is part of, where it is recursive."""
        if self._open[name]:
            return next(place for place, _ in reversed(self._stack) if self.places[place].name == name)
        key = self._stack[-1][0], name
        if key not in self._index:
            self._index[key] = len(self.places)
            self.places.append(Place(name, key[0], module, method))
        return self._index[key]
