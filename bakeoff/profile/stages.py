"""Tree of named ranges of time, in which every nanosecond counts once.

A range's own time is its time without the ranges within it. The own times of all ranges and of the root add up to the
root's time exactly, however they are nested; adding up the times of nested ranges would count inner ones twice.

Ranges of threads, and of coroutines that run in turns, overlap. Each belongs to the range around it in its own context.
If overlapping ranges add up to more than the parent's time, the parent's own time is negative, and the sum still holds.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from bakeoff.record.session import RangeKind, RangeTotal

MOST_STAGES = 2_000
"""Largest number of different paths; ranges of further names count as `others` of their parent."""
MOST_DEPTH = 32
"""Largest depth of nesting; deeper ranges are not told apart from the one around them."""
MOST_LETTERS = 200
OTHERS = "others"


@dataclass(slots=True)
class Stage:
    """Totals of all ranges of one name and kind within one parent."""

    name: str
    kind: RangeKind
    depth: int
    calls: int = 0
    """Number of ranges that have ended."""
    open: int = 0
    ns: int = 0
    """Sum of the ends minus the sum of the starts; an open range has only its start in it."""
    device_ns: int | None = None
    is_overflow: bool = False
    """Whether it stands for all names beyond `MOST_STAGES`."""
    children: dict[tuple[RangeKind, str], "Stage"] = field(default_factory=dict)

    def total_ns(self, now: int) -> int:
        """Return the time of its ranges up to `now`; open ranges count as if they ended then."""
        return max(0, self.ns + self.open * now)

    def own_ns(self, now: int) -> int:
        """Return the time of its ranges up to `now`, without the ranges within them."""
        return self.total_ns(now) - sum(child.total_ns(now) for child in list(self.children.values()))

    def walk(self, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], "Stage"]]:
        """Yield the path and stage of every stage within it, parents first."""
        for child in list(self.children.values()):
            path = (*above, child.name)
            yield path, child
            yield from child.walk(path)


class StageTree:
    """Tree of one session's ranges. Callers of `child` hold the recording's lock."""

    __slots__ = ("_count", "nowhere", "root")

    def __init__(self) -> None:
        self.root = Stage("", "session", 0)
        self.nowhere = Stage(OTHERS, "stage", MOST_DEPTH)
        """Stage of ranges that are not kept. It has no parent, so that their time remains with the range around
        them."""
        self._count = 1

    def child(self, parent: Stage, kind: RangeKind, name: object) -> Stage:
        """Return the parent's stage of this kind and name, made if there is none."""
        if parent.depth >= MOST_DEPTH or parent.is_overflow:
            return self.nowhere
        key = kind, clean(name)
        found = parent.children.get(key)
        if found is not None:
            return found
        full = self._count >= MOST_STAGES
        if full:
            key = "stage", OTHERS
            found = parent.children.get(key)
            if found is not None:
                return found
        self._count += 1
        made = parent.children[key] = Stage(key[1], key[0], parent.depth + 1, is_overflow=full)
        return made

    @property
    def is_full(self) -> bool:
        """Whether names or ranges were left out."""
        return self._count > MOST_STAGES or self.nowhere.calls > 0

    def totals(self, now: int) -> tuple[RangeTotal, ...]:
        """Return the totals of all ranges up to `now`, the root first and parents before children."""
        root = RangeTotal((), "session", 1, self.root.total_ns(now), self.root.own_ns(now), self.root.device_ns)
        return (root, *within(self.root, now))


def within(root: Stage, now: int) -> tuple[RangeTotal, ...]:
    """Return the totals up to `now` of all ranges within a stage, without the stage itself."""
    return tuple(
        RangeTotal(path, each.kind, each.calls + each.open, each.total_ns(now), each.own_ns(now), each.device_ns)
        for path, each in root.walk()
    )


def clean(name: object) -> str:
    """Return a name as it is recorded: text of bounded length that UTF-8 can encode."""
    try:
        text = name if isinstance(name, str) else repr(name)
    except Exception as error:  # noqa: BLE001  # whatever somebody's __repr__ raises must not reach their pipeline
        text = f"{type(name).__name__} ({type(error).__name__})"
    return text[:MOST_LETTERS].encode("utf-8", "replace").decode()
