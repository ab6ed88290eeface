"""Which sides of a race are not to be trusted, by their blocks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
from ceilings import CEILINGS
from records import record

from bakeoff.record.schema import Record, Round, Samples
from bakeoff.record.sides import side_findings

Times = Callable[[int, int], float]
"""Microseconds of a side in a pair and round."""
SIDES = {0: record("inductor"), 1: record("aoti"), 2: record("eager")}


def rounds_of(*sides: Times, pairs: int = 3, rounds: int = 9) -> list[Round]:
    return [
        Round(tuple(range(len(sides))), tuple(Samples([round(1000 * side(pair, turn))]) for side in sides), pair)
        for pair in range(pairs)
        for turn in range(rounds)
    ]


def found(
    rounds: Sequence[Round], idle: Sequence[Mapping[int, float]] = (), sides: Mapping[int, Record] = SIDES
) -> list[tuple[int, str]]:
    return [(number, finding.code) for number, finding in side_findings(sides, rounds, idle)]


def steady(_pair: int, _turn: int) -> float:
    return 100.0


def hastening(_pair: int, turn: int) -> float:
    return 200.0 / (1 + turn)


def slowing(_pair: int, turn: int) -> float:
    return 100.0 + 20 * turn


@pytest.mark.parametrize("trend", [hastening, slowing])
def test_a_trend_within_each_process_is_the_sides_own_if_its_rivals_have_none(trend: Times) -> None:
    assert found(rounds_of(steady, trend, steady)) == [(1, "drift")]
    assert found(rounds_of(trend, trend, trend)) == [], "the machine's"
    assert found(rounds_of(steady, trend, steady, pairs=2)) == [], "two processes are too few"
    assert found(rounds_of(steady, trend, steady, rounds=5)) == [], "and so are few rounds"
    assert found(rounds_of(steady, lambda pair, turn: trend(pair, turn) if pair else 100.0, steady)) == []


def test_modes_of_the_machine_are_no_trend() -> None:
    def switching(pair: int, turn: int) -> float:
        return 100.0 if (turn + pair) % 4 < 2 else 170.0

    assert found(rounds_of(switching, steady, steady)) == []


@pytest.mark.parametrize(
    ("shares", "bad"),
    [([0.04] * 7, False), ([0.1, 0.1], False), ([0.1] * 3, True), ([0.25], True), ([0.0, 0.0], False)],
)
def test_a_side_must_be_idle_while_others_are_timed(shares: list[float], bad: bool) -> None:
    idle = [{0: 0.0, 1: share, 2: 0.0} for share in shares]
    assert found(rounds_of(steady, steady, steady), idle) == ([(1, "not-idle")] if bad else [])


def test_a_side_below_its_floor_is_found() -> None:
    sides = {
        number: replace(side, flops=10**8, minimum_bytes=1000, ceilings=CEILINGS) for number, side in SIDES.items()
    }
    times: tuple[Times, ...] = (lambda *_: 400.0, lambda *_: 2000.0, lambda *_: 2000.0)
    assert found(rounds_of(*times), sides=sides) == [(0, "below_floor")]


def test_a_side_that_has_failed_is_not_told_again_after_each_pair() -> None:
    failed = {**SIDES, 1: record("aoti", status="unstable")}
    assert found(rounds_of(steady, hastening, steady)) == [(1, "drift")]
    assert found(rounds_of(steady, hastening, steady), sides=failed) == []


def test_a_baseline_that_ran_in_the_first_pairs_alone_is_looked_at_there() -> None:
    both, two = rounds_of(steady, steady, hastening), rounds_of(steady, steady, pairs=2)
    later = [replace(entry, pair=entry.pair + 3) for entry in two]
    assert found([*both, *later]) == [(2, "drift")]
