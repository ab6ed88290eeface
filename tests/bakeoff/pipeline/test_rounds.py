"""Mixes take turns: every one in every round, in an order that is drawn for each."""

import random
from typing import Any

import pytest

from bakeoff.pipeline import mix_worker
from bakeoff.pipeline.mix_worker import Limits, take_turns
from bakeoff.sweeps.progress import Unheard


class Mix:
    """What a round needs of a worker; its units are steady after the first `filling`."""

    label = "mix"

    def __init__(self, name: str, ran: list[str], filling: int = 0) -> None:
        self.name, self.mix, self.ran, self.filling = name, self, ran, filling
        self.live, self.steady, self.unsettled = True, 0, 0
        self.blocks: list[Any] = []

    def run_unit(self) -> None:
        self.ran.append(self.name)
        self.steady = max(0, self.ran.count(self.name) - self.filling)


def test_every_round_draws_its_order() -> None:
    ran: list[str] = []
    workers: Any = [Mix(name, ran) for name in "abc"]
    take_turns(workers, Limits(20, 100, 1e9), random.Random(0), Unheard())
    turns = ["".join(ran[place : place + 3]) for place in range(0, len(ran), 3)]
    assert len(turns) == 20
    assert {"".join(sorted(turn)) for turn in turns} == {"abc"}, "each mix once in every round"
    assert {turn[0] for turn in turns} == {turn[-1] for turn in turns} == set("abc")


def test_a_mix_that_has_its_units_runs_until_all_have() -> None:
    ran: list[str] = []
    workers: Any = [Mix("a", ran), Mix("b", ran, filling=7)]
    take_turns(workers, Limits(5, 100, 1e9), random.Random(0), Unheard())
    assert (ran.count("a"), ran.count("b")) == (12, 12)


def test_the_round_in_which_the_time_is_over_is_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    workers: Any = [Mix(name, ran) for name in "ab"]
    monkeypatch.setattr(mix_worker.time, "monotonic", lambda: 10.0 * len(ran))
    take_turns(workers, Limits(20, 100, 30.0), random.Random(0), Unheard())
    assert len(ran) == 4
