"""Which sides of a race are told not to have been idle."""

from types import SimpleNamespace
from typing import Any

import pytest

from bakeoff.process.phases import Block
from bakeoff.race import Turns, not_idle


@pytest.mark.parametrize(("calls", "told"), [(1, ["a"]), (100, [])])
def test_a_queued_block_lasts_as_long_as_all_its_calls(calls: int, told: list[str]) -> None:
    """A fifth of a core beside calls of 60 ms, or a five hundredth beside blocks of a hundred of them."""
    sides: Any = {0: SimpleNamespace(label="a"), 1: SimpleNamespace(label="b")}
    block, other = (Block((60_000_000,), idle_s, calls_per_sample=calls) for idle_s in (0.012, 0.0))
    rounds = [Turns((0, 1), {0: block, 1: other})] * 2
    assert [found.text.split()[0] for found in not_idle(sides, rounds)] == told
