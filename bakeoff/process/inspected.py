"""Defines the result of an inspection: calls of modules as a tree, with the own time of each in every pass.

A pass is one call of the user's callable. A node is a module or a method of one, called from one place of the tree. If
it is called again below itself (recursion), that time counts as its own. Only own times are kept: they and the time
outside modules sum to the pass, to the nanosecond, and the time of a node with all below it is a sum of own times.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Node:
    """A module, or a method of one, as called from `parent`."""

    name: str
    """Path from the callable, such as `pipe.unet` or `pipe.vae.decode`; `Linear#1` if none was found."""
    cls: str
    """Class of the module."""
    parent: int
    """Index of the node that it is called from, which comes before it; -1 if it is called from outside of all
    modules."""
    calls: tuple[int, ...]
    """Number of calls in each pass."""
    own_ns: tuple[int, ...]
    """Time in each pass, without the nodes below it."""
    parameters: int
    """Number of parameters of the module, including its submodules."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The recorded calls of one module or method, written as the folder of a live module."""

    name: str
    folder: str
    calls: int
    """Number of different calls; equal calls are counted once."""
    seen: int
    sets: tuple[str, ...]
    problem: str = ""
    """Reason why there is no folder."""


@dataclass(frozen=True, slots=True)
class Inspection:
    """Timed passes of one callable. Raises ValueError if the times do not sum to the passes."""

    nodes: tuple[Node, ...]
    """Nodes, each after its parent, in the order of their first calls."""
    pass_ns: tuple[int, ...]
    """Time of each instrumented pass without that of the instrumentation itself."""
    outside_ns: tuple[int, ...]
    hooks_ns: tuple[int, ...]
    """Time in the instrumentation, as far as it can be seen from within."""
    whole_ns: tuple[int, ...]
    """Time of each instrumented pass from start to end."""
    plain_ns: tuple[int, ...]
    """Times of passes without instrumentation, which alternate with the instrumented ones."""
    warm_ns: tuple[int, ...]
    steady: bool
    """Whether the last passes of the warm-up agree."""
    clock: Literal["host", "synchronised"]
    """`synchronised`: each entry and exit waits for the device, because the host's clock alone would show launches."""
    device: Literal["cpu", "cuda"]
    other_threads: dict[str, int]
    """Number of calls on other threads in the last pass, by name; they are not timed."""
    recorded: tuple[Recorded, ...] = ()
    """Modules and methods whose calls were to be recorded."""

    def __post_init__(self) -> None:
        for index, whole_ns in enumerate(self.whole_ns):
            own_ns = sum(node.own_ns[index] for node in self.nodes)
            pass_ns = own_ns + self.outside_ns[index]
            if pass_ns != self.pass_ns[index] or pass_ns + self.hooks_ns[index] != whole_ns:
                raise ValueError(f"pass {index + 1}: {pass_ns} ns of modules and outside, of {self.pass_ns[index]} ns")

    def below(self, index: int) -> tuple[int, ...]:
        """Return the indices of a node and of all nodes below it."""
        found = {index}
        for position in range(index + 1, len(self.nodes)):
            if self.nodes[position].parent in found:
                found.add(position)
        return tuple(sorted(found))

    def inclusive_ns(self, index: int) -> tuple[int, ...]:
        """Return the time of a node in each pass, with all below it."""
        return self.sum_ns(self.below(index))

    def sum_ns(self, indices: Sequence[int]) -> tuple[int, ...]:
        """Return the own times of these nodes in each pass."""
        return tuple(
            sum(self.nodes[index].own_ns[position] for index in indices) for position in range(len(self.pass_ns))
        )
