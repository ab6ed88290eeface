"""Attributes the readings of a clock to a tree of the modules that are being called."""

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
    """Result of one pass: calls and the meter's differences by place, and the cost of the attribution itself."""

    calls: Counter[int] = field(default_factory=Counter)
    own: Counter[int] = field(default_factory=Counter)
    hooks: int = 0
    whole: int = 0
    other_threads: Counter[str] = field(default_factory=Counter)


Capture = Callable[[str, nn.Module, str, Sequence[Any], Mapping[str, Any]], None]
"""Called at each entry with name, module, method ("" for a call of the module), positional and keyword arguments."""


def _nothing() -> None:
    pass


class Tree:
    """Places of all passes; instrumentation calls `enter` and `leave` at each entry into a module and each exit."""

    def __init__(self, names: Mapping[int, str]) -> None:
        """Start with the root only; `names` are the names of known modules, by id."""
        self.places = [Place("", -1, nn.Module(), "")]
        """Places by index; the first is the root, the part of a pass outside of modules."""
        self._names = names
        self._index: dict[tuple[int, str], int] = {}
        self._pass: Pass | None = None

    def begin(
        self, meter: Callable[[], int], synchronise: Callable[[], None] = _nothing, capture: Capture | None = None
    ) -> None:
        """Begin a pass on this thread; `capture` is called at each entry, `synchronise` before the meter is read."""
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
        """End the pass, after all its calls have ended, and return its result."""
        self._synchronise()
        now = self._meter()
        done, self._pass = self._pass, None
        assert done is not None
        done.own[self._stack[-1][0]] += now - self._last
        done.whole = now - self._started
        return done

    def enter(self, module: nn.Module, method: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
        """Record that a call of `module`, or of its `method`, begins; return the depth to pass to `leave`, or 0.

        A method that is called while its module is being called (such as a helper of its forward) is part of that call,
        and gives 0. So do calls on other threads, which are only counted, and calls outside of a pass.
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
        """Record that the call at `depth` ends, by return or exception, and with it all calls within it."""
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
        """Return a module's name; for an unknown one its class and a number, by the order of first calls in a pass."""
        known = self._names.get(id(module))
        if known is not None:
            return known
        if id(module) not in self._unnamed:
            kind = type(module).__name__
            self._numbers[kind] += 1
            self._unnamed[id(module)] = f"{kind}#{self._numbers[kind]}", module
        return self._unnamed[id(module)][0]

    def _place(self, name: str, module: nn.Module, method: str) -> int:
        """Return the index of the place of a call from the current one; a recursive call has the outer call's place."""
        if self._open[name]:
            return next(place for place, _ in reversed(self._stack) if self.places[place].name == name)
        key = self._stack[-1][0], name
        if key not in self._index:
            self._index[key] = len(self.places)
            self.places.append(Place(name, key[0], module, method))
        return self._index[key]
