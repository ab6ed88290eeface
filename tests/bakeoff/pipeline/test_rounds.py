"""Mixes take turns: every one in every round, in an order that is drawn for each."""

import random
from typing import Any

import pytest

from bakeoff.pipeline import rounds
from bakeoff.pipeline.rounds import Limits, take_turns
from bakeoff.sweeps.progress import Unheard


class Mix:
    """What a round needs of a worker; every unit is steady."""

    label = "mix"

    def __init__(self, name: str, ran: list[str]) -> None:
        self.name, self.mix, self.ran = name, self, ran
        self.live, self.steady, self.unsettled = True, 0, 0
        self.blocks: list[Any] = []

    def run_unit(self) -> None:
        self.steady += 1
        self.ran.append(self.name)


def test_every_round_draws_its_order() -> None:
    ran: list[str] = []
    workers: Any = [Mix(name, ran) for name in "abc"]
    take_turns(workers, Limits(20, 100, 1e9), random.Random(0), Unheard())
    turns = ["".join(ran[place : place + 3]) for place in range(0, len(ran), 3)]
    assert len(turns) == 20
    assert {"".join(sorted(turn)) for turn in turns} == {"abc"}, "each mix once in every round"
    assert {turn[0] for turn in turns} == {turn[-1] for turn in turns} == set("abc")


def test_the_round_in_which_the_time_is_over_is_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    workers: Any = [Mix(name, ran) for name in "ab"]
    monkeypatch.setattr(rounds.time, "monotonic", lambda: 10.0 * len(ran))
    take_turns(workers, Limits(20, 100, 30.0), random.Random(0), Unheard())
    assert len(ran) == 4
