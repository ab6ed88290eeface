"""Named ranges of time as a tree, in which every nanosecond counts once.

A range's own time is its time without the ranges within it. The own times of all ranges and of the root add up to the
root's time exactly, however they are nested; adding up the times of nested ranges would count inner ones twice.

Ranges of coroutines that run in turns overlap. Each then belongs to the range that its own context was in, and what
overlaps is more than the parent's time: the parent's own time is negative by that much, and the sum still holds.
"""

from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from time import perf_counter_ns

MOST_STAGES = 2_000
"""Different paths; ranges of further ones count as `others` of their parent."""
OTHERS = "others"


@dataclass(slots=True)
class Stage:
    """All ranges of one name within one parent."""

    name: str
    depth: int
    calls: int = 0
    total_ns: int = 0
    inner_ns: int = 0
    """Of the ranges directly within it."""
    children: dict[str, "Stage"] = field(default_factory=dict)

    @property
    def own_ns(self) -> int:
        return self.total_ns - self.inner_ns

    def walk(self, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], "Stage"]]:
        """Path and stage of it and of all within it, parents first."""
        path = (*above, self.name)
        yield path, self
        for child in self.children.values():
            yield from child.walk(path)


@dataclass(slots=True)
class StageTree:
    """The ranges of one session."""

    root: Stage
    _count: int = 1

    def child(self, parent: Stage, name: str) -> Stage:
        """The stage of this name within the parent."""
        found = parent.children.get(name)
        if found is not None:
            return found
        if self._count >= MOST_STAGES:
            name = OTHERS
            found = parent.children.get(name)
            if found is not None:
                return found
        self._count += 1
        made = parent.children[name] = Stage(name, parent.depth + 1)
        return made

    @property
    def is_full(self) -> bool:
        """Whether names were left out."""
        return self._count >= MOST_STAGES


class Range:
    """A range that is open from `__enter__` to `__exit__`. Used once."""

    __slots__ = ("_parent", "_started", "_tree", "_within", "stage")

    def __init__(self, tree: StageTree, name: str, within: ContextVar[Stage]) -> None:
        self._tree, self._within = tree, within
        self._parent = within.get(tree.root)
        self.stage = tree.child(self._parent, name)
        self._started = 0

    def __enter__(self) -> "Range":
        self._within.set(self.stage)
        self._started = perf_counter_ns()
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> int:
        """End it; returns its nanoseconds."""
        ns = perf_counter_ns() - self._started
        self.stage.calls += 1
        self.stage.total_ns += ns
        self._parent.inner_ns += ns
        self._within.set(self._parent)
        return ns
