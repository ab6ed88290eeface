"""Ranges as a tree: the own times add up to the root's, whatever is nested in what."""

import asyncio
import random
from contextvars import ContextVar

import pytest

from bakeoff.profile import stages
from bakeoff.profile.stages import OTHERS, Range, Stage, StageTree


class Clock:
    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(stages, "perf_counter_ns", made)
    return made


def tree() -> tuple[StageTree, ContextVar[Stage]]:
    return StageTree(Stage("session", 0)), ContextVar("within")


def close(made: StageTree, ns: int) -> dict[tuple[str, ...], int]:
    """End the root after `ns`; own times by path."""
    made.root.total_ns = ns
    return {path[1:]: stage.own_ns for path, stage in made.root.walk()}


def test_nested_ranges_count_once(clock: Clock) -> None:
    made, within = tree()
    with Range(made, "denoise", within):
        clock.ns += 10
        with Range(made, "step", within):
            clock.ns += 30
        with Range(made, "step", within):
            clock.ns += 20
        clock.ns += 5
    clock.ns += 7
    with Range(made, "step", within):
        clock.ns += 1
    own = close(made, clock.ns)
    assert own == {(): 7, ("denoise",): 15, ("denoise", "step"): 50, ("step",): 1}
    assert sum(own.values()) == clock.ns
    calls = {path[1:]: stage.calls for path, stage in made.root.walk()}
    assert calls[("denoise", "step")] == 2


@pytest.mark.parametrize("seed", range(20))
def test_own_times_add_up_for_any_nesting(seed: int, clock: Clock) -> None:
    chance = random.Random(seed)
    made, within = tree()
    opened: list[Range] = []
    for _ in range(300):
        clock.ns += chance.randrange(100)
        if opened and chance.random() < 0.5:
            opened.pop().close()
        elif len(opened) < 8:
            opened.append(Range(made, chance.choice("abc"), within).__enter__())
    while opened:
        clock.ns += chance.randrange(100)
        opened.pop().close()
    own = close(made, clock.ns)
    assert sum(own.values()) == clock.ns
    assert min(own.values()) >= 0


def test_a_range_that_raises_is_closed(clock: Clock) -> None:
    made, within = tree()

    def fail() -> None:
        with Range(made, "a", within):
            clock.ns += 3
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert close(made, clock.ns) == {(): 0, ("a",): 3}


def test_coroutines_keep_to_their_own_parents(clock: Clock) -> None:
    made, within = tree()

    async def work(name: str, ns: int) -> None:
        with Range(made, name, within):
            await asyncio.sleep(0)
            with Range(made, "inner", within):
                clock.ns += ns
                await asyncio.sleep(0)

    async def both() -> None:
        await asyncio.gather(work("a", 5), work("b", 7))

    asyncio.run(both())
    own = close(made, clock.ns)
    assert {path for path in own if len(path) == 2} == {("a", "inner"), ("b", "inner")}
    assert sum(own.values()) == clock.ns


def test_names_without_end_do_not_fill_memory(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "MOST_STAGES", 10)
    made, within = tree()
    for place in range(100):
        with Range(made, f"block_{place}", within):
            clock.ns += 1
    own = close(made, clock.ns)
    assert len(own) <= 11
    assert made.is_full
    assert own[(OTHERS,)] == 91
    assert sum(own.values()) == 100
