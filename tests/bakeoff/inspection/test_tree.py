"""The tree of calls: who is charged with which time, by a meter that the test moves by hand."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn

from bakeoff.worker.inspection.inspect import public_methods, watched_calls
from bakeoff.worker.inspection.load import find_modules
from bakeoff.worker.inspection.tree import OUTSIDE, Pass, Tree


class Meter:
    """A clock that moves only when it is told to."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


METER = Meter()


def spend(units: int) -> None:
    METER.now += units


class Leaf(nn.Module):
    def __init__(self, units: int) -> None:
        super().__init__()
        self.units = units

    def forward(self) -> None:
        spend(self.units)


class Parent(nn.Module):
    def __init__(self, *children: nn.Module) -> None:
        super().__init__()
        self.children_ = nn.ModuleList(children)

    def forward(self) -> None:
        spend(1)
        for child in self.children_:
            child()
        self.helper()

    def helper(self) -> None:
        spend(2)

    def decode(self) -> None:
        spend(3)
        self.helper()
        self.children_[0]()

    def frames(self) -> Iterator[int]:
        yield 1

    @property
    def size(self) -> int:
        return 1


class Recursive(nn.Module):
    def forward(self, depth: int) -> None:
        spend(10)
        if depth:
            self(depth - 1)
            spend(1)


class Failing(nn.Module):
    def forward(self) -> None:
        spend(5)
        raise ValueError("on purpose")


def watch(run: Callable[[], Any], **options: Any) -> tuple[Tree, Pass]:
    found = find_modules(run)
    tree = Tree({id(module): name for name, module in found})
    METER.now = 0
    with watched_calls(tree, [type(module) for _, module in found]):
        tree.begin(METER, **options)
        try:
            run()
        finally:
            done = tree.end()
    assert sum(done.own.values()) == done.whole
    return tree, done


def charged(tree: Tree, done: Pass) -> dict[tuple[str, ...], tuple[int, int]]:
    """Calls and own units by the path of places."""
    found = {}
    for index, place in enumerate(tree.places):
        path: list[str] = []
        while place.parent >= 0:
            path.insert(0, place.name)
            place = tree.places[place.parent]
        found[tuple(path)] = done.calls[index], done.own[index]
    return found


def test_own_units_are_those_without_what_is_below() -> None:
    leaf = Leaf(7)
    parent = Parent(leaf, Leaf(4))

    def run() -> None:
        spend(100)
        parent()
        leaf()
        parent.decode()

    assert charged(*watch(run)) == {
        (): (0, 100),
        ("parent",): (1, 3),
        ("parent", "leaf"): (1, 7),
        ("parent", "parent.children_.1"): (1, 4),
        ("leaf",): (1, 7),
        ("parent.decode",): (1, 5),
        ("parent.decode", "leaf"): (1, 7),
    }


def test_a_helper_of_a_running_module_is_part_of_it() -> None:
    parent = Parent()
    assert charged(*watch(lambda: parent()))[("parent",)] == (1, 3)
    assert charged(*watch(lambda: parent.helper()))[("parent.helper",)] == (1, 2)


def test_forward_called_directly_is_a_method_of_its_own() -> None:
    leaf = Leaf(7)
    assert charged(*watch(lambda: leaf.forward())) == {(): (0, 0), ("leaf.forward",): (1, 7)}


def test_recursion_is_one_place() -> None:
    module = Recursive()
    assert charged(*watch(lambda: module(3))) == {(): (0, 0), ("module",): (4, 43)}


def test_a_shared_module_has_a_place_below_each_caller() -> None:
    shared = Leaf(5)
    first, second = Parent(shared), Parent(shared, shared)

    def run() -> None:
        first()
        second()

    places = charged(*watch(run))
    assert places["first", "first.children_.0"] == (1, 5)
    assert places["second", "first.children_.0"] == (2, 10)


def test_an_exception_that_the_callable_handles_unwinds() -> None:
    outer, leaf = Parent(Failing()), Leaf(3)

    def run() -> None:
        with pytest.raises(ValueError, match="on purpose"):
            outer()
        leaf()
        spend(2)

    places = charged(*watch(run))
    assert places["outer", "outer.children_.0"] == (1, 5)
    assert places["outer",] == (1, 1)
    assert places["leaf",] == (1, 3)
    assert places[()] == (0, 2)


def test_an_exception_of_the_pass_leaves_no_hook() -> None:
    module, original = Failing(), nn.Module.__call__
    helper = vars(Parent)["helper"]
    with pytest.raises(ValueError, match="on purpose"):
        watch(lambda: module())
    assert nn.Module.__call__ is original
    assert vars(Parent)["helper"] is helper


@pytest.mark.parametrize("guard", [torch.no_grad, torch.inference_mode])
def test_modules_under_a_decorator_of_torch_have_names(guard: Callable[[], Any]) -> None:
    leaf = Leaf(3)

    @guard()
    def run() -> None:
        leaf()

    assert charged(*watch(run))["leaf",] == (1, 3)


def test_calls_on_other_threads_are_listed_and_not_timed() -> None:
    leaf, mine = Leaf(3), Leaf(2)

    def run() -> None:
        thread = threading.Thread(target=leaf)
        thread.start()
        thread.join()
        mine()

    tree, done = watch(run)
    assert done.other_threads == {"leaf": 1}
    assert charged(tree, done) == {(): (0, 3), ("mine",): (1, 2)}


def test_modules_made_in_the_pass_are_numbered_by_class() -> None:
    def run() -> None:
        for units in (1, 2):
            Leaf(units)()

    assert charged(*watch(run)) == {(): (0, 0), ("Leaf#1",): (1, 1), ("Leaf#2",): (1, 2)}


def test_the_device_is_waited_for_before_each_reading() -> None:
    """Queued work is done only when it is waited for: without that all of it would be charged to the outside."""
    queue: list[int] = []

    class Launching(nn.Module):
        def forward(self, units: int) -> None:
            queue.append(units)

    first, second = Launching(), Launching()

    def run() -> None:
        first(30)
        second(12)
        queue.append(1)

    def synchronise() -> None:
        spend(sum(queue))
        queue.clear()

    found = {(): (0, 1), ("first",): (1, 30), ("second",): (1, 12)}
    assert charged(*watch(run, synchronise=synchronise)) == found


def test_what_the_hooks_take_is_charged_to_nobody() -> None:
    leaf = Leaf(7)

    def slow(*_: object) -> None:
        spend(1000)

    found = find_modules(lambda: leaf())
    tree = Tree({id(module): name for name, module in found})
    with watched_calls(tree, [Leaf]):
        tree.begin(METER, capture=slow)
        leaf()
        done = tree.end()
    assert (done.hooks, done.whole) == (1000, 1007)
    assert dict(done.own) == {OUTSIDE: 0, 1: 7}


def test_public_methods_are_those_of_the_users_classes() -> None:
    names = {name for _, name, _ in public_methods([Parent, nn.Linear])}
    assert names == {"forward", "helper", "decode"}


@contextmanager
def eager_compile() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def test_compiled_code_is_not_looked_into_and_not_traced_again() -> None:
    inner = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    with eager_compile():
        compiled = torch.compile(inner, backend="eager")
        x = torch.ones(2, 4)
        compiled(x)
        graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        tree, done = watch(lambda: compiled(x))
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == graphs
    assert [place.name for place in tree.places[1:]] == ["compiled"]
    assert sum(done.calls.values()) == 1
