"""The rates of a gate's decisions by simulated pairs, what each row comes to, and records of a commit."""

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from records import record

from bakeoff.models.errors import BakeoffError
from bakeoff.record.commits import records_of
from bakeoff.record.gate import (
    LARGEST_SIZE,
    LOOKS,
    SAME_PAIRS,
    Change,
    Expected,
    GatedRow,
    change_of_pairs,
    change_of_records,
    exit_code,
    size_of,
)
from bakeoff.record.store import save


def words(spread: float, rows: int, slower: bool, times: int = 400) -> dict[str, int]:
    """How often each word ends a gate of pairs with this spread, unchanged or slower by the size that it states."""
    random, found = np.random.default_rng(7), dict[str, int]()
    for _ in range(times):
        same = list(random.normal(0, spread, SAME_PAIRS))
        size = size_of(same, rows)
        pairs = list(random.normal(size if slower else 0.0, spread, LOOKS[-1]))
        made = (change_of_pairs(same, pairs[:count], rows, size) for count in range(1, LOOKS[-1] + 1))
        word = next(change.word for change in made if change is not None)
        found[word] = found.get(word, 0) + 1
    return found


@pytest.mark.parametrize("rows", [1, 8])
@pytest.mark.parametrize("spread", [0.002, 0.05])
def test_a_change_of_the_stated_size_is_found_and_no_change_is_not(spread: float, rows: int) -> None:
    assert words(spread, rows, slower=True).get("slower", 0) >= 0.97 * 400
    assert words(spread, rows, slower=False).get("slower", 0) <= 0.01 * 400


def test_the_size_grows_with_the_spread_and_the_rows_and_has_a_least() -> None:
    assert 0.015 < size_of([0.0] * SAME_PAIRS, 1) == size_of([0.001] * SAME_PAIRS, 1) < 0.025
    assert size_of([0.02] * SAME_PAIRS, 1) < size_of([0.02] * SAME_PAIRS, 8) < size_of([0.04] * SAME_PAIRS, 8)


def test_pairs_are_taken_until_they_decide() -> None:
    same = [0.01, -0.01, 0.01, -0.01, 0.01]
    size = size_of(same, 1)
    assert change_of_pairs(same, [size] * (LOOKS[0] - 1), 1, size) is None
    slower = change_of_pairs(same, [size] * LOOKS[0], 1, size)
    assert slower is not None
    assert (slower.word, slower.pairs) == ("slower", LOOKS[0])
    assert slower.low < slower.ratio < slower.high
    assert slower.ratio == pytest.approx(slower.size)
    wide = [size * sign for sign in (2, -1) * 6]
    assert change_of_pairs(same, wide[: LOOKS[0]], 1, size) is None
    assert change_of_pairs(same, [3 * size] * (LOOKS[0] + 1), 1, size) is None
    assert change_of_pairs(same, wide[: LOOKS[-1]], 1, size).word == "undecided"  # type: ignore[union-attr]


def test_records_are_compared_where_there_are_enough_of_them() -> None:
    five = [0.0, 0.01, -0.01, 0.0, 0.0]
    assert change_of_records(five, [], 1) is None
    assert change_of_records([0.0, 0.1], [0.0], 1) is None
    assert change_of_records(five, [0.0], 1).word == "no change shown"  # type: ignore[union-attr]
    assert change_of_records([each + 0.1 for each in five], five, 1).word == "slower"  # type: ignore[union-attr]
    assert change_of_records([each - 0.1 for each in five], five, 1).word == "faster"  # type: ignore[union-attr]


def test_a_row_is_unchanged_only_if_a_change_of_half_as_much_again_would_be_found() -> None:
    """A regression that is larger still is shown by pairs of such a spread."""

    def of_records(spread: float) -> Change:
        found = change_of_records([0.0, spread, -spread, 0.0, 0.0], [0.0, spread, -spread, 0.0, 0.0], 1)
        assert found is not None
        return found

    assert (of_records(0.1).word, of_records(0.3).word) == ("no change shown", "undecided")
    assert of_records(0.1).size < LARGEST_SIZE < of_records(0.3).size
    same = [0.2, -0.2, 0.2, -0.2, 0.2]
    size = size_of(same, 1)
    assert size > LARGEST_SIZE - 1
    assert change_of_pairs(same, same, 1, size) is None
    for change, word in ((0.0, "undecided"), (2 * size, "slower")):
        ended = change_of_pairs(same, [change] * LOOKS[-1], 1, size)
        assert ended is not None
        assert ended.word == word


SAME = Change("no change shown", 1.0, 0.99, 1.01, 1.02, 4)
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
        ({"change": None, "candidate": "unstable"}, "not measured", 3),
        ({"baseline": "unstable"}, "unchanged", 0),
        ({"change": None, "baseline": "crashed"}, "now ok", 0),
        ({"change": None, "candidate": "crashed", "expected": "known"}, "expected failure", 0),
        ({"change": None, "candidate": "crashed", "expected": "known", "expects": "crashed"}, "expected failure", 0),
        ({"change": None, "candidate": "oom", "expected": "known", "expects": "crashed"}, "status changed", 1),
        ({"expected": "known"}, "unexpected pass", 0),
        ({"expected": "known", "change": SLOWER}, "unexpected pass", 1),
    ],
)
def test_outcomes(changes: dict[str, Any], outcome: str, code: int) -> None:
    row = replace(ROW, **changes)
    assert (row.outcome, exit_code([row])) == (outcome, code)
    assert exit_code([row, replace(ROW, change=None)]) == code
    assert exit_code([row, ROW]) == (1 if code == 1 else 0)


def test_an_expected_row_may_stand_for_several() -> None:
    assert Expected("*/inductor[freezing]/*", "why").fits("toy:tiny.world/inductor[freezing]/fp32@cpu")
    assert not Expected("*/inductor/*", "why").fits("toy:tiny.world/inductor[freezing]/fp32@cpu")
    assert not Expected("toy:tiny.world/eager/fp32", "why").fits("toy:tiny.world/eager/fp32@cpu")


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
