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


def test_a_range_that_is_open_counts_until_now() -> None:
    tree = StageTree()
    load = tree.child(tree.root, "stage", "load")
    spend(load, 10)
    load.open, load.ns = 1, load.ns - 100
    assert load.total_ns(130) == 40
    assert tree.totals(130)[1].calls == 2


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
