"""The rates of a gate's decisions by simulated pairs, what each row comes to, and records of a commit."""

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from answers import present
from records import record

from bakeoff.models.errors import BakeoffError
from bakeoff.record.commits import records_of
from bakeoff.record.gate import (
    LOOKS,
    MOST_PAIRS,
    SAME_PAIRS,
    Change,
    GatedRow,
    change_of_pairs,
    change_of_records,
    exit_code,
    pairs_needed,
    size_of,
)
from bakeoff.record.store import save


def words(spread: float, rows: int, change: float, find: float, times: int = 400) -> dict[str, int]:
    """How often each word ends a gate of pairs with this spread, for a candidate that takes this much longer."""
    random, found = np.random.default_rng(7), dict[str, int]()
    for _ in range(times):
        same = list(random.normal(0, spread, SAME_PAIRS))
        pairs = list(random.normal(np.log1p(change), spread, LOOKS[-1]))
        made = (change_of_pairs(same, pairs[:count], rows, find) for count in range(1, LOOKS[-1] + 1))
        word = next(each.word for each in made if each is not None)
        found[word] = found.get(word, 0) + 1
    return found


@pytest.mark.parametrize("rows", [1, 8])
@pytest.mark.parametrize("spread", [0.002, 0.02, 0.05, 0.2])
def test_no_slowdown_that_matters_passes_and_no_unchanged_row_fails(spread: float, rows: int) -> None:
    """What a host cannot tell stays undecided: a noisy one leaves more, and is never wrong more often."""
    assert words(spread, rows, 0.2, 0.1).get("no change shown", 0) <= 0.01 * 400
    assert words(spread, rows, 0.1, 0.1).get("no change shown", 0) <= 0.01 * 400
    assert words(spread, rows, 0.0, 0.1).get("slower", 0) <= 0.01 * 400


@pytest.mark.parametrize("rows", [1, 8])
def test_a_host_of_usual_noise_decides(rows: int) -> None:
    assert words(0.02, rows, 0.2, 0.1) == {"slower": 400}
    assert words(0.02, rows, 0.0, 0.1).get("no change shown", 0) >= 0.97 * 400
    assert words(0.005, rows, 0.03, 0.1).get("slower", 0) == 0, "a slowdown that does not matter fails nothing"
    assert words(0.05, 1, 0.0, 0.02).get("undecided", 0) >= 0.9 * 400


def test_a_change_of_the_size_that_a_host_can_find_is_found() -> None:
    random, found = np.random.default_rng(3), 0
    for _ in range(400):
        same = list(random.normal(0, 0.02, SAME_PAIRS))
        size = size_of(same, 1)
        pairs = list(random.normal(size, 0.02, LOOKS[-1]))
        made = (change_of_pairs(same, pairs[:count], 1, 0.02) for count in range(1, LOOKS[-1] + 1))
        found += next(change.word for change in made if change is not None) == "slower"
    assert found >= 0.97 * 400


def test_the_pairs_that_would_decide_are_told_and_do() -> None:
    same = [0.15, -0.15, 0.15, -0.15, 0.15]
    first = pairs_needed(same, 1, 0.1)
    assert LOOKS[-1] < first < MOST_PAIRS == pairs_needed([1.0, -1.0] * 3, 1, 0.02)
    assert pairs_needed(same, 1, 0.2) < first < pairs_needed(same, 8, 0.1)
    noisy = present(change_of_pairs(same, [0.15, -0.15] * 5 + [0.0], 1, 0.1))
    assert (noisy.word, noisy.pairs) == ("undecided", LOOKS[-1])
    enough = present(change_of_pairs(same, ([0.15, -0.15] * MOST_PAIRS)[: noisy.pairs + noisy.more + 2], 1, 0.1))
    assert enough.word == "no change shown"
    fewer = present(
        change_of_pairs(same, ([0.15, -0.15] * MOST_PAIRS)[: (noisy.pairs + noisy.more) // 2 * 2 - 4], 1, 0.1)
    )
    assert fewer.word == "undecided"


def test_the_size_grows_with_the_spread_and_the_rows_and_has_a_least() -> None:
    assert 0.015 < size_of([0.0] * SAME_PAIRS, 1) == size_of([0.001] * SAME_PAIRS, 1) < 0.025
    assert size_of([0.02] * SAME_PAIRS, 1) < size_of([0.02] * SAME_PAIRS, 8) < size_of([0.04] * SAME_PAIRS, 8)


def test_pairs_are_taken_until_they_decide() -> None:
    same = [0.01, -0.01, 0.01, -0.01, 0.01]
    assert change_of_pairs(same, [0.2] * (LOOKS[0] - 1), 1, 0.1) is None
    slower = present(change_of_pairs(same, [0.2] * LOOKS[0], 1, 0.1))
    assert (slower.word, slower.pairs, slower.more) == ("slower", LOOKS[0], 0)
    assert 1.1 < slower.low < slower.ratio < slower.high
    wide = [0.3, -0.15] * 6
    assert change_of_pairs(same, wide[: LOOKS[0]], 1, 0.1) is None
    assert change_of_pairs(same, [0.2] * (LOOKS[0] + 1), 1, 0.1) is None
    assert change_of_pairs(same, wide[: LOOKS[-1]], 1, 0.1).word == "undecided"  # type: ignore[union-attr]


def test_records_are_compared_where_there_are_enough_of_them() -> None:
    five = [0.0, 0.01, -0.01, 0.0, 0.0]
    assert change_of_records(five, [], 1, 0.1) is None
    assert change_of_records([0.0, 0.1], [0.0], 1, 0.1) is None
    words = {
        shift: change_of_records([each + shift for each in five], five, 1, 0.1) for shift in (0.0, 0.05, 0.2, -0.1)
    }
    told = [found and found.word for found in words.values()]
    assert told == ["no change shown", "no change shown", "slower", "faster"]
    wide = [10 * each for each in five]
    assert change_of_records(wide, wide, 1, 0.1).word == "undecided"  # type: ignore[union-attr]


def test_an_interval_that_reaches_the_size_is_never_unchanged() -> None:
    """A host's noise let +7.1% [-8.8%, +25.9%] pass as unchanged, for a candidate that was 20 % slower."""
    random = np.random.default_rng(1)
    for _ in range(300):
        same = list(random.normal(0, 0.15, SAME_PAIRS))
        found = present(change_of_pairs(same, list(random.normal(np.log(1.2), 0.15, LOOKS[-1])), 2, 0.1))
        assert (found.word == "no change shown") == (found.high < 1.1)
        assert (found.word == "slower") == (found.low > 1)


SAME = Change("no change shown", 1.0, 0.99, 1.01, 4)
SLOWER = replace(SAME, word="slower", ratio=1.1)
ROW = GatedRow("toy:tiny.world/eager/fp32@cpu", 1, "ok", "ok", change=SAME)


@pytest.mark.parametrize(
    ("changes", "outcome", "code"),
    [
        ({}, "unchanged", 0),
        ({"change": SLOWER}, "regression", 1),
        ({"change": replace(SAME, word="faster")}, "faster", 0),
        ({"change": replace(SAME, word="undecided")}, "undecided", 3),
        ({"change": None}, "not measured", 3),
        ({"change": None, "baseline": None}, "not measured", 3),
        ({"change": None, "candidate": "crashed"}, "status changed", 1),
        ({"change": None, "candidate": "crashed", "baseline": "timeout"}, "status changed", 1),
        ({"change": None, "candidate": "crashed", "baseline": "crashed"}, "not measured", 3),
        ({"change": None, "candidate": "unstable"}, "undecided", 3),
        ({"change": None, "candidate": None}, "gone", 1),
        ({"change": SLOWER, "live": False}, "suspected", 3),
        ({"live": False}, "unchanged", 0),
        ({"baseline": "unstable"}, "unchanged", 0),
        ({"change": None, "baseline": "crashed"}, "now ok", 0),
    ],
)
def test_outcomes(changes: dict[str, Any], outcome: str, code: int) -> None:
    row = replace(ROW, **changes)
    assert (row.outcome, exit_code([row])) == (outcome, code)
    assert exit_code([row, replace(ROW, change=None)]) == code
    assert exit_code([row, ROW]) == (0 if outcome == "not measured" else code), "one open row keeps a gate open"


def test_the_records_of_a_commit_and_of_a_folder(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        name = ["-c", "user.name=a", "-c", "user.email=a@a.example"]
        subprocess.run(["git", *name, "-C", str(tmp_path), *arguments], check=True, capture_output=True)

    runs = tmp_path / "bench" / "runs"
    first = save(runs, record("eager", [2.0] * 20))
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "x")
    git("tag", "before")
    second = save(runs, record("inductor", [1.0] * 20))
    published = save(runs / "published", record("aoti", [1.0] * 20))
    assert [stored.id for stored in records_of("before", runs).current] == [first]
    assert {stored.id for stored in records_of(str(runs), runs).current} == {first, second, published}
    with pytest.raises(BakeoffError, match="'main2' is neither a folder of records nor a commit"):
        records_of("main2", runs)
    with pytest.raises(BakeoffError, match="commit before has no folder other"):
        records_of("before", tmp_path / "other")
