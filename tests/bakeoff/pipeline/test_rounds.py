"""Mixes take turns: every one in every round, in an order that is drawn for each."""

import random
from types import SimpleNamespace
from typing import Any

import pytest

from bakeoff.pipeline import mix_worker
from bakeoff.pipeline.mix_worker import Limits, MixWorker, run_rounds
from bakeoff.process.phases import Block
from bakeoff.sweeps.progress import Unheard


class Mix(MixWorker):
    """A worker without a process; its units are steady after the first `filling`, and take `ns` each."""

    def __init__(self, name: str, ran: list[str], limits: Limits, filling: int = 0, ns: int = 200_000_000) -> None:
        mix: Any = SimpleNamespace(label=name)
        nothing: Any = None
        super().__init__(nothing, mix, {}, nothing, 0, limits, Unheard())
        self.ran, self.filling, self.ns = ran, filling, ns

    def block(self) -> Block:
        self.ran.append(self.label)
        kind = "steady" if self.ran.count(self.label) > self.filling else "filling"
        units, resumed = self.units_a_turn if kind == "steady" else (1, 0)
        self.blocks.append(Block((2 * self.ns,) * resumed + (self.ns,) * units, 0.0, kind, resumed))
        return self.blocks[-1]


def run(ran: list[str], limits: Limits, **filling: int) -> None:
    """Let mixes take turns, by their names, with how many units fill their windows."""
    workers = [Mix(name, ran, limits, count) for name, count in filling.items()]
    run_rounds(workers, limits, random.Random(0), Unheard())


def test_every_round_draws_its_order() -> None:
    ran: list[str] = []
    run(ran, Limits(20, 100, 1e9), a=0, b=0, c=0)
    turns = ["".join(ran[place : place + 3]) for place in range(0, len(ran), 3)]
    assert len(turns) == 20
    assert {"".join(sorted(turn)) for turn in turns} == {"abc"}, "each mix once in every round"
    assert {turn[0] for turn in turns} == {turn[-1] for turn in turns} == set("abc")


def test_a_mix_that_has_its_units_runs_until_all_have() -> None:
    ran: list[str] = []
    run(ran, Limits(5, 100, 1e9), a=0, b=7)
    assert (ran.count("a"), ran.count("b")) == (12, 12)


def test_the_round_in_which_the_time_is_over_is_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    monkeypatch.setattr(mix_worker.time, "monotonic", lambda: 10.0 * len(ran))
    run(ran, Limits(20, 100, 30.0), a=0, b=0)
    assert len(ran) == 4


def test_a_mix_that_does_not_settle_is_given_up() -> None:
    ran: list[str] = []
    run(ran, Limits(30, 20, 1e9), a=0, b=99)
    assert (ran.count("a"), ran.count("b")) == (30, 20)


def test_units_that_are_short_run_in_turns_of_the_same_number_once_all_are_steady() -> None:
    limits = Limits(20, 100, 1e9)
    fast, slow = Mix("fast", [], limits, 3, ns=1_000_000), Mix("slow", [], limits, 5, ns=2_000_000)
    run_rounds([fast, slow], limits, random.Random(0), Unheard())
    counts = [len(block.samples_ns) for block in fast.blocks]
    assert counts == [len(block.samples_ns) for block in slow.blocks]
    assert counts[:6] == [1] * 6, "one by one until both have settled"
    assert counts[6] == 3 + 7, "by the cold units before it"
    assert set(counts[7:]) == {5 + 13}, "25 ms of the slower one, after 5 ms of the faster one that do not count"
    assert len(counts[6:]) == 8, "20 units would be two turns, and each turn meets the machine at another time"
    assert fast.steady == slow.steady == 7 + 7 * 13, "none of those that ran one by one"


def test_long_units_all_count() -> None:
    limits = Limits(20, 100, 1e9)
    mix = Mix("long", [], limits, 2, ns=100_000_000)
    run_rounds([mix], limits, random.Random(0), Unheard())
    assert {(len(block.samples_ns), block.resumed) for block in mix.blocks} == {(1, 0)}
