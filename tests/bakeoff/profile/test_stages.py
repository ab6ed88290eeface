"""The tree of ranges: what it keeps of names and nesting, and how its own times add up."""

import pytest

from bakeoff.profile import stages
from bakeoff.profile.stages import MOST_LETTERS, OTHERS, Stage, StageTree, clean


def spend(stage: Stage, ns: int) -> None:
    """One range of this length."""
    stage.calls += 1
    stage.ns += ns


def close(tree: StageTree, ns: int) -> dict[tuple[str, ...], int]:
    """Own times by path of a tree whose root took `ns`."""
    tree.root.ns = ns
    return {each.path: each.own_ns for each in tree.totals(0)}


def test_own_times_are_those_without_inner_ranges() -> None:
    tree = StageTree()
    denoise = tree.child(tree.root, "phase", "denoise")
    spend(denoise, 65)
    spend(tree.child(denoise, "step", "step"), 50)
    assert close(tree, 73) == {(): 8, ("denoise",): 15, ("denoise", "step"): 50}


def test_a_range_that_is_open_counts_until_now() -> None:
    tree = StageTree()
    load = tree.child(tree.root, "stage", "load")
    spend(load, 10)
    load.open, load.ns = 1, load.ns - 100
    assert load.total_ns(130) == 40
    assert tree.totals(130)[1].calls == 2


def test_kinds_of_one_name_are_apart() -> None:
    tree = StageTree()
    assert tree.child(tree.root, "phase", "a") is not tree.child(tree.root, "collective", "a")
    assert tree.child(tree.root, "phase", "a") is tree.child(tree.root, "phase", "a")


def test_names_without_end_do_not_fill_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "MOST_STAGES", 10)
    tree = StageTree()
    for place in range(100):
        spend(tree.child(tree.root, "stage", f"block_{place}"), 1)
    own = close(tree, 100)
    assert len(own) == 11
    assert tree.is_full
    assert own[(OTHERS,)] == 91
    assert sum(own.values()) == 100


def test_within_ranges_that_are_not_told_apart_nothing_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "MOST_STAGES", 2)
    tree = StageTree()
    stage = tree.child(tree.root, "stage", "a")
    for _ in range(50):
        stage = tree.child(stage, "stage", "a")
    assert stage is tree.nowhere
    assert len(tree.totals(0)) == 3


@pytest.mark.parametrize(
    ("name", "kept"),
    [("a", "a"), ("x" * 1_000, "x" * MOST_LETTERS), ("\ud800", "?"), (5, "5"), (["a"], "['a']"), (None, "None")],
)
def test_names_can_be_stored(name: object, kept: str) -> None:
    assert clean(name) == kept


def test_a_name_whose_text_raises_is_named_by_its_type() -> None:
    class Bad:
        def __repr__(self) -> str:
            raise RuntimeError

    assert clean(Bad()) == "Bad (RuntimeError)"
