"""Whole inspections in this process: times against what modules measure of themselves, passes that differ, the GPU."""

import time
from typing import Any

import pytest
import torch
from torch import nn

from bakeoff.models.errors import BakeoffError
from bakeoff.process.inspected import Inspection
from bakeoff.worker.inspection import inspect as inspection_module
from bakeoff.worker.inspection.inspect import Subject, measure, warm_up
from bakeoff.worker.inspection.load import find_modules


def quiet(_phase: str, _detail: str = "") -> None:
    pass


def inspected(run: Any, passes: int = 3, **changes: Any) -> Inspection:
    facts: dict[str, Any] = {"synchronise": lambda: None, "device": "cpu", **changes}
    subject = Subject("mine.py:pipe", run, tuple(find_modules(run)), **facts)
    return measure(subject, passes, quiet, [1, 1], True)


class Busy(nn.Module):
    """Waits, and notes how long by the clock that the inspection uses."""

    def __init__(self, seconds: float, inner: nn.Module | None = None) -> None:
        super().__init__()
        self.seconds, self.inner, self.own_ns = seconds, inner, 0

    def forward(self) -> None:
        started = time.perf_counter_ns()
        while time.perf_counter_ns() - started < self.seconds * 5e8:
            pass
        time.sleep(self.seconds / 2)
        self.own_ns += time.perf_counter_ns() - started
        if self.inner is not None:
            self.inner()


def test_own_times_hold_what_modules_measure_of_themselves() -> None:
    """Each own time has what its module waited, and nothing else can have it: all own times sum to the pass."""
    inner = Busy(0.02)
    outer, other = Busy(0.01, inner), Busy(0.005)
    waited: list[dict[str, int]] = []

    def run() -> None:
        for module in (outer, inner, other):
            module.own_ns = 0
        outer()
        other()
        other()
        waited.append({"outer": outer.own_ns, "inner": inner.own_ns, "other": other.own_ns})

    found = inspected(run)
    own = {node.name: node.own_ns for node in found.nodes}
    assert own.keys() == {"outer", "inner", "other"}
    of_pass = [1, 4, 5]  # after the first one; plain and instrumented ones take turns in being first
    for index, position in enumerate(of_pass):
        for name, waited_ns in waited[position].items():
            assert own[name][index] >= waited_ns
        assert sum(node.own_ns[index] for node in found.nodes) + found.outside_ns[index] == found.pass_ns[index]


def test_facts_of_modules() -> None:
    linear = nn.Linear(8, 4)

    def run() -> torch.Tensor:
        return linear(linear(torch.ones(3, 8))[:, :1].expand(3, 8))

    (node,) = inspected(run).nodes
    assert (node.name, node.cls, node.calls, node.parameters) == ("linear", "Linear", (2, 2, 2), 36)


def test_a_pass_without_modules_is_refused() -> None:
    with pytest.raises(BakeoffError, match="calls no module"):
        inspected(lambda: torch.ones(1))


def test_passes_that_call_other_modules_differ_from_themselves() -> None:
    modules, passes = [nn.Identity(), nn.Identity()], iter(range(100))

    def run() -> None:
        modules[next(passes) // 3 % 2](1)

    with pytest.raises(BakeoffError, match=r"differs from itself: .* do not both call modules\.\d"):
        inspected(run)


def test_other_numbers_of_calls_are_kept() -> None:
    module, passes = nn.Identity(), iter(range(100))

    def run() -> None:
        for _ in range(1 + next(passes) % 2):
            module(1)

    (node,) = inspected(run).nodes
    assert set(node.calls) <= {1, 2}


def test_a_module_that_is_called_only_by_another_thread_is_named() -> None:
    from threading import Thread

    module = nn.Identity()

    def run() -> None:
        thread = Thread(target=module, args=(1,))
        thread.start()
        thread.join()

    with pytest.raises(BakeoffError, match="on other threads it calls module"):
        inspected(run)


def test_a_device_is_waited_for_where_modules_begin_and_end() -> None:
    """A queue that is worked off only when it is waited for stands in for a GPU's."""
    queue: list[float] = []

    class Launching(nn.Module):
        def forward(self, seconds: float) -> None:
            queue.append(seconds)

    def synchronise() -> None:
        time.sleep(sum(queue))
        queue.clear()

    first, second = Launching(), Launching()

    def run() -> None:
        first(0.02)
        second(0.01)

    found = inspected(run, passes=2, synchronise=synchronise, device="cuda")
    own = {node.name: min(node.own_ns) for node in found.nodes}
    assert own["first"] >= 20_000_000
    assert own["second"] >= 10_000_000
    assert (found.clock, found.device) == ("synchronised", "cuda")
    alone = {node.name: max(node.own_ns) for node in inspected(run, passes=2, device="cpu").nodes}
    assert alone.keys() == own.keys()


def test_warm_up_ends_where_passes_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0, 100, 200, 250, 300, 351, 400])
    monkeypatch.setattr(inspection_module, "now_ns", lambda: next(clock))
    assert warm_up(lambda: None) == ([100, 50, 51], True)


def test_warm_up_ends_where_they_never_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([position for index in range(10) for position in (0, 100 * 2**index)])
    monkeypatch.setattr(inspection_module, "now_ns", lambda: next(clock))
    samples, steady = warm_up(lambda: None)
    assert (len(samples), steady) == (10, False)
