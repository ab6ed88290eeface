"""Sides that are measured against each other: opened fresh, then a block of each at a time, in random order.

A side is whatever can be opened, warmed up, asked for a block and closed: a live worker of a row or of a mix, or a
pipeline in this process. While one runs its block the others are to be idle.
"""

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, TypeVar

from bakeoff.process.phases import Block
from bakeoff.record.schema import Finding, new_finding

LARGEST_OFFSET = 2**20
"""Bytes: each process's heap begins at another offset, else memory layout may slow one side each time (Mytkowicz et
al., ASPLOS 2009)."""
_IDLE = 0.05
"""Share of a core: a side that takes more while others are measured is not idle."""


class Runs(Protocol):
    """Worker that takes part in rounds."""

    @property
    def live(self) -> bool:
        """Whether it takes part in further rounds."""

    def block(self) -> Block | None:
        """Time one block; None where the side ended instead."""


class Side(Runs, Protocol):
    """One of several processes. A context manager: entering it begins to open it, leaving it ends it."""

    beside: int
    """Number of others that may open at the same time."""

    def __enter__(self) -> object: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
    @property
    def label(self) -> str: ...
    def warm_up(self) -> None:
        """Get ready to be timed; nothing else runs meanwhile."""


S = TypeVar("S", bound=Side)


@dataclass(frozen=True, slots=True)
class Turns:
    """One round. Sides are named by their numbers."""

    order: tuple[int, ...]
    """In which they ran."""
    blocks: Mapping[int, Block]
    """Blocks of those that did not end instead."""


def open_sides(
    stack: ExitStack,
    sides: Collection[S],
    order: random.Random,
    wait_until_open: Callable[[Sequence[S]], None],
) -> None:
    """Open the sides in random order, then warm them up one after the other; `stack` closes them.

    `wait_until_open` waits for all that it is given: for one after the other, or for those that open beside each other.
    """
    drawn = order.sample([*sides], len(sides))
    beside = all(side.beside for side in drawn)
    for side in drawn:
        stack.enter_context(side)
        if not beside:
            wait_until_open([side])
    if beside:
        wait_until_open(drawn)
    for side in order.sample(drawn, len(drawn)):
        side.warm_up()


def take_turns(sides: Mapping[int, Runs], order: random.Random, goes_on: Callable[[int], bool]) -> list[Turns]:
    """Run rounds while a side is live and `goes_on`, which is told how many there were.

    Every live side runs in every round, whatever it has already: what changes on the machine meets all alike.
    """
    rounds: list[Turns] = []
    while (racing := [number for number, side in sides.items() if side.live]) and goes_on(len(rounds)):
        drawn = order.sample(racing, len(racing))
        found = {number: sides[number].block() for number in drawn}
        rounds.append(Turns(tuple(drawn), {number: block for number, block in found.items() if block is not None}))
    return rounds


def not_idle(sides: Mapping[int, Side], rounds: Sequence[Turns], of: str = "") -> list[Finding]:
    """A finding for each side that used the CPU while others ran; before its first block it had just been opened."""
    found = []
    for number, side in sides.items():
        own = [turns.blocks[number].idle_cpu_s for turns in rounds if number in turns.blocks][1:]
        others = [block for turns in rounds for other, block in turns.blocks.items() if other != number]
        others_s = sum(block.seconds for block in others)
        if others_s and sum(own) > _IDLE * others_s:
            text = f"{of}{side.label} took {sum(own) / others_s:.0%} of a core while the others ran"
            found.append(new_finding("not-idle", text))
    return found
