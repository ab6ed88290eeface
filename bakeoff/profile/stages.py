"""Named ranges of time as a tree, in which every nanosecond counts once.

A range's own time is its time without the ranges within it. The own times of all ranges and of the root add up to the
root's time exactly, however they are nested; adding up the times of nested ranges would count inner ones twice.

Ranges of threads, and of coroutines that run in turns, overlap. Each then belongs to the range that its own context was
in, and what overlaps is more than the parent's time: the parent's own time is negative by that much, and the sum still
holds.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from bakeoff.record.session import RangeKind, RangeTotal

MOST_STAGES = 2_000
"""Different paths; ranges of further names count as `others` of their parent."""
MOST_DEPTH = 32
"""Ranges within so many others are not told apart from the one they are in."""
MOST_LETTERS = 200
OTHERS = "others"


@dataclass(slots=True)
class Stage:
    """All ranges of one name and kind within one parent."""

    name: str
    kind: RangeKind
    depth: int
    calls: int = 0
    """Ranges that have ended."""
    open: int = 0
    ns: int = 0
    """Sum of the ends minus the sum of the starts: for a range that is open only its start is in it."""
    device_ns: int | None = None
    is_overflow: bool = False
    """Whether it stands for names beyond those that are kept."""
    children: dict[tuple[RangeKind, str], "Stage"] = field(default_factory=dict)

    def total_ns(self, now: int) -> int:
        """Time of its ranges until `now`; those that are open count as if they ended then."""
        return max(0, self.ns + self.open * now)

    def own_ns(self, now: int) -> int:
        """The same without the ranges within them."""
        return self.total_ns(now) - sum(child.total_ns(now) for child in list(self.children.values()))

    def walk(self, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], "Stage"]]:
        """Path and stage of all within it, parents first."""
        for child in list(self.children.values()):
            path = (*above, child.name)
            yield path, child
            yield from child.walk(path)


class StageTree:
    """The ranges of one session. `child` is called with the recording's lock held."""

    __slots__ = ("_count", "nowhere", "root")

    def __init__(self) -> None:
        self.root = Stage("", "session", 0)
        self.nowhere = Stage(OTHERS, "stage", MOST_DEPTH)
        """Stage of ranges that are not kept; it belongs to no parent, so that their time stays with what is kept."""
        self._count = 1

    def child(self, parent: Stage, kind: RangeKind, name: object) -> Stage:
        """Return the stage of this kind and name within the parent, made where there is none."""
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
        """All ranges until `now`, the root first, parents before what is within them."""
        root = RangeTotal((), "session", 1, self.root.total_ns(now), self.root.own_ns(now), self.root.device_ns)
        return (root, *within(self.root, now))


def within(root: Stage, now: int) -> tuple[RangeTotal, ...]:
    """All ranges within a stage, without itself."""
    return tuple(
        RangeTotal(path, each.kind, each.calls + each.open, each.total_ns(now), each.own_ns(now), each.device_ns)
        for path, each in root.walk()
    )


def clean(name: object) -> str:
    """A name as it is kept: text of bounded length that can be encoded."""
    try:
        text = name if isinstance(name, str) else repr(name)
    except Exception as error:  # noqa: BLE001  # whatever somebody's __repr__ raises must not reach their pipeline
        text = f"{type(name).__name__} ({type(error).__name__})"
    return text[:MOST_LETTERS].encode("utf-8", "replace").decode()
