"""A rank's wall clock against rank 0's, through the key-value store of a process group, in bounded time.

A rank asks eight times and rank 0 answers with its time. The answer lies between the question and its return, so the
offset is known to half of the round trip (Cristian, 1989); the shortest of the eight is taken. Ranks take turns, in the
order in which they come.
"""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from bakeoff.models.words import counted

PINGS = 8
WAIT_S = 5.0
"""For all ranks together: ranks open a session at about the same time, or one of them never does."""
TURN_S = 1.0
"""For one rank that has its turn, so that one which died there does not use up the time of the others."""
STORE_ERRORS = (RuntimeError, OSError, ValueError, TypeError)
"""What torch's stores raise: DistError is a RuntimeError; a store that is no real one may return anything."""


class Store(Protocol):
    """The methods of torch.distributed.Store that are used."""

    def set(self, key: str, value: str) -> None: ...
    def get(self, key: str) -> bytes: ...
    def add(self, key: str, amount: int) -> int: ...
    def wait(self, keys: list[str], timeout: timedelta) -> None: ...
    def delete_key(self, key: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class Offset:
    """To be added to this rank's clock for rank 0's, in nanoseconds; None where it was not measured, and why."""

    ns: int | None
    error_ns: int | None
    text: str = ""


def agree(store: Store, key: str, proposal: str, seconds: float = WAIT_S) -> str:
    """The text that the first rank to come proposes, the same on all ranks. Raises one of STORE_ERRORS if it fails.

    The first one and not rank 0, so that nobody waits for a rank that comes late.
    """
    if store.add(f"{key}/first", 1) == 1:
        store.set(f"{key}/group", proposal)
        return proposal
    _wait(store, f"{key}/group", time.monotonic() + seconds)
    return store.get(f"{key}/group").decode()


def offset_to_rank_0(
    store: Store,
    key: str,
    rank: int,
    world: int,
    seconds: float = WAIT_S,
    clock: Callable[[], int] = time.time_ns,
) -> Offset:
    """This rank's offset; every rank of the world calls it, rank 0 to answer. Returns after `seconds` at the latest.

    `clock` is the wall clock in nanoseconds.
    """
    ends = time.monotonic() + seconds
    if rank == 0:
        answered = _answer(store, key, world, clock, ends)
        text = (
            ""
            if answered == world - 1
            else f"{answered} of {counted(world - 1, 'other rank')} opened a session within {seconds:g} s of rank 0; "
            "the rest have no clock offset"
        )
        return Offset(0, 0, text)
    try:
        return _ask(store, key, rank, clock, ends)
    except STORE_ERRORS as error:
        why = _first_line(error)
        return Offset(
            None, None, f"rank {rank} has no clock offset: rank 0 did not answer within {seconds:g} s ({why})"
        )


def _answer(store: Store, key: str, world: int, clock: Callable[[], int], ends: float) -> int:
    """Answer ranks in the order in which they come; returns how many got all answers."""
    answered = 0
    for turn in range(1, world):
        try:
            _wait(store, f"{key}/turn/{turn}", ends)
            rank = int(store.get(f"{key}/turn/{turn}"))
        except STORE_ERRORS:
            return answered
        turn_ends = min(ends, time.monotonic() + TURN_S)
        with contextlib.suppress(*STORE_ERRORS):
            for index in range(PINGS):
                _wait(store, f"{key}/{rank}/ping/{index}", turn_ends)
                store.set(f"{key}/{rank}/pong/{index}", str(clock()))
            answered += 1
        _delete(store, [f"{key}/turn/{turn}", *(f"{key}/{rank}/ping/{index}" for index in range(PINGS))])
    return answered


def _ask(store: Store, key: str, rank: int, clock: Callable[[], int], ends: float) -> Offset:
    turn = store.add(f"{key}/turns", 1)
    store.set(f"{key}/turn/{turn}", str(rank))
    found: list[tuple[int, int]] = []
    for index in range(PINGS):
        asked = clock()
        store.set(f"{key}/{rank}/ping/{index}", "")
        _wait(store, f"{key}/{rank}/pong/{index}", ends)
        told = clock()  # before the answer is fetched, which takes another round trip
        answer = int(store.get(f"{key}/{rank}/pong/{index}"))
        if told >= asked:  # else the clock was set back meanwhile
            found.append((told - asked, answer - (asked + told) // 2))
    _delete(store, [f"{key}/{rank}/pong/{index}" for index in range(PINGS)])
    if not found:
        return Offset(None, None, f"rank {rank} has no clock offset: its clock was set back while it was measured")
    trip, offset = min(found)
    return Offset(offset, (trip + 1) // 2)


def _wait(store: Store, key: str, ends: float) -> None:
    """Raises one of STORE_ERRORS when the time is over."""
    left = ends - time.monotonic()
    if left <= 0:
        raise TimeoutError(f"no {key} in time")
    store.wait([key], timedelta(seconds=max(left, 0.001)))


def _delete(store: Store, keys: list[str]) -> None:
    """Leave nothing behind in a store that lives as long as the process group; some stores cannot delete."""
    with contextlib.suppress(*STORE_ERRORS):
        for key in keys:
            store.delete_key(key)


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    return lines[0][:120] if lines else type(error).__name__
