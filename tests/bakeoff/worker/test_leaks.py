"""A leak is distinguished from other growth of memory, and is confirmed by what further calls leave allocated."""

import pytest

pytest.importorskip("torch", reason="a worker's modules import it")

from bakeoff.worker.checks.growth import confirmed_leak, suspected_leak

MIB = 1 << 20
CLIMBING = [300 * MIB + index * 2 * MIB for index in range(20)]


def test_a_leak_by_hand() -> None:
    assert suspected_leak(CLIMBING) == CLIMBING[-1] - CLIMBING[10] == 18 * MIB


@pytest.mark.parametrize(
    "sizes",
    [
        [300 * MIB] * 20,
        [300 * MIB + (40 * MIB if index > 4 else 0) for index in range(20)],  # an arena, early on
        [300 * MIB + (index % 2) * 50 * MIB for index in range(20)],
        [300 * MIB - index * MIB for index in range(20)],
        [300 * MIB + index * (MIB >> 4) for index in range(20)],  # what the samples themselves take, and more
        [0, 100 * MIB],
        [],
    ],
    ids=["still", "step", "saw", "falling", "slow", "few", "none"],
)
def test_what_is_no_leak(sizes: list[int]) -> None:
    assert suspected_leak(sizes) == 0


def test_a_leak_is_what_half_of_the_windows_calls_keep() -> None:
    asked: list[int] = []

    def kept(rounds: int) -> int:
        asked.append(rounds)
        return rounds * 4 * MIB // 10

    assert confirmed_leak(CLIMBING, 400, 4, 1_000_000, kept) == 50 * 4 * MIB // 10
    assert asked == [50], "half of 400 calls, in rounds of 4"


def test_slow_calls_are_repeated_for_seconds_only_and_scaled() -> None:
    asked: list[int] = []

    def kept(rounds: int) -> int:
        asked.append(rounds)
        return rounds * MIB

    assert confirmed_leak(CLIMBING, 400, 4, 1_000_000_000, kept) == 50 * MIB
    assert asked == [1], "of 200 s of calls, 5 s"


def test_growth_that_calls_do_not_keep_is_no_leak() -> None:
    assert confirmed_leak(CLIMBING, 400, 4, 1_000_000, lambda _rounds: MIB) == 0
    assert confirmed_leak([300 * MIB] * 20, 400, 4, 1_000_000, lambda _rounds: pytest.fail("not suspected")) == 0
