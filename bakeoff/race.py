"""Measures sides in turns: each is opened fresh, then all time one block per round, in random order.

A side is anything that can be opened, warmed up, asked for a block and closed: a live worker of a row or of a mix.
While one side times its block, the others must be idle.
"""

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, TypeVar

from bakeoff.process.phases import Block
from bakeoff.record.finding import Finding, new_finding
from bakeoff.record.sides import IDLE

LARGEST_OFFSET = 2**20
"""Largest heap offset in bytes. Each process's heap begins at a random offset, since otherwise memory layout may slow
the same side in every process (Mytkowicz et al., ASPLOS 2009)."""

_LEAST_S = 0.05
"""Seconds that a round of others counts at least: of shorter ones the time between blocks is the larger part."""


class Side(Protocol):
    """One of several processes that are measured in turns.

    A context manager: entering it begins to open the process, leaving it ends the process.
    """

    beside: int
    """Number of other sides that may open at the same time."""

    def __enter__(self) -> object: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
    @property
    def label(self) -> str: ...
    @property
    def live(self) -> bool:
        """Whether this side takes part in further rounds."""

    def warm_up(self) -> None:
        """Prepare for timing; no other side runs meanwhile."""

    def block(self) -> Block | None:
        """Time one block and return it; None if the side ended instead."""


S = TypeVar("S", bound=Side)


@dataclass(frozen=True, slots=True)
class Turns:
    """One round: the order of the sides and their blocks, by the sides' numbers."""

    order: tuple[int, ...]
    """Numbers of the sides in the order in which they ran."""
    blocks: Mapping[int, Block]
    """Block of each side that did not end instead."""


def open_sides(
    stack: ExitStack,
    sides: Collection[S],
    order: random.Random,
    wait_until_open: Callable[[Sequence[S]], None],
) -> None:
    """Open the sides in random order, then warm them up one after the other. `stack` closes them.

    `wait_until_open` waits until all the sides that it gets are open: one at a time, or all sides if they may open at
    the same time.
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


def take_turns(sides: Mapping[int, Side], order: random.Random, goes_on: Callable[[int], bool]) -> list[Turns]:
    """Run rounds while a side is live and `goes_on(number of rounds so far)` is true; return the rounds.

    Every live side runs in every round, even if it has enough blocks, so that changes of the machine affect all sides
    alike.
    """
    rounds: list[Turns] = []
    while (racing := [number for number, side in sides.items() if side.live]) and goes_on(len(rounds)):
        drawn = order.sample(racing, len(racing))
        found = {number: sides[number].block() for number in drawn}
        rounds.append(Turns(tuple(drawn), {number: block for number, block in found.items() if block is not None}))
    return rounds


def idle_shares(sides: Mapping[int, Side], rounds: Sequence[Turns]) -> dict[int, float]:
    """Return the share of a core that each side took while other sides ran.

    The time before a side's first block does not count, since the side had just been opened.
    """
    shares = {}
    for number in sides:
        own = [turns.blocks[number].idle_cpu_s for turns in rounds if number in turns.blocks][1:]
        others_s = sum(block.seconds for turns in rounds for other, block in turns.blocks.items() if other != number)
        shares[number] = sum(own) / max(others_s, _LEAST_S * len(own)) if others_s else 0.0
    return shares


def not_idle(sides: Mapping[int, Side], rounds: Sequence[Turns], of: str = "") -> list[Finding]:
    """Return a finding for each side that used the CPU while other sides ran; its text begins with `of`."""
    return [
        new_finding("not-idle", f"{of}{sides[number].label} took {share:.0%} of a core while the others ran")
        for number, share in idle_shares(sides, rounds).items()
        if share > IDLE
    ]
