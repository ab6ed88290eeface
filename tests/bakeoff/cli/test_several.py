"""Sweeps of several components by one command: one time limit for all, and the exit code of the worst."""

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from bakeoff.cli import sweep
from bakeoff.cli.options import SweepOptions
from bakeoff.plan.plan import make_plan
from bakeoff.plan.request import Request


def swept(monkeypatch: pytest.MonkeyPatch, codes: dict[str, int], limit: str | None = None) -> tuple[int, list[float]]:
    """The exit code and the time limits of components whose sweeps end with these codes at once."""
    limits = []
    plan = make_plan(Request("toy", presets=("tiny",), backends=("eager",), dtypes=("fp32",), device="cpu"))

    def run(title: str, plan: Any, *_: Any) -> tuple[dict[str, object], int]:
        limits.append(plan.request.time_limit_s)
        return {"sweep": title}, codes[title]

    monkeypatch.setattr(sweep, "_plans", lambda requests, _: [plan] * len(requests))
    monkeypatch.setattr(sweep, "_sweep", run)
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    options = SweepOptions([], time_limit=limit, as_json=True, started=70.0)
    results, code = sweep._sweep_components(options, [(title, Request("toy")) for title in codes])
    assert results == {title: {"sweep": title} for title in codes}
    return code, limits


def test_each_has_an_equal_part_of_the_time_that_is_left_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a minute of two is over, and each of the first takes no time; a limit counts from the begin."""
    assert swept(monkeypatch, {"a": 0, "b": 0, "c": 0}, "2m") == (0, [60.0, 75.0, 120.0])
    assert swept(monkeypatch, {"a": 0, "b": 0}) == (0, [0.0, 0.0])


def test_modules_of_a_loop_know_which_one_it_calls_next(monkeypatch: pytest.MonkeyPatch) -> None:
    followed = list[tuple[str, str]]()
    plan = make_plan(Request("toy", presets=("tiny",), backends=("eager",), dtypes=("fp32",), device="cpu"))

    def run(_title: str, plan: Any, *_: Any) -> tuple[dict[str, object], int]:
        followed.append((plan.request.component, plan.request.next_slot))
        return {}, 0

    monkeypatch.setattr(sweep, "_sweep", run)
    for of_loop in (True, False):
        requests = [replace(plan.request, component=name) for name in ("a", "b", "c")]
        plans = [replace(plan, request=request) for request in requests]
        monkeypatch.setattr(sweep, "_plans", lambda *_, plans=plans: plans)
        sweep._sweep_components(SweepOptions([]), [(each.component, each) for each in requests], of_loop)
    assert followed == [("a", "b"), ("b", "c"), ("c", "a"), ("a", ""), ("b", ""), ("c", "")]


def test_the_exit_code_is_that_of_the_worst(monkeypatch: pytest.MonkeyPatch) -> None:
    assert swept(monkeypatch, {"a": 0, "b": 3, "c": 0})[0] == 3


def test_of_several_a_finished_one_is_left_out_and_one_that_was_not_begun_is_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from bakeoff.sweeps import resume

    states = {"done": SimpleNamespace(finished=True, sweep="1"), "half": SimpleNamespace(finished=False, sweep="2")}
    monkeypatch.setattr(resume, "find_newest", lambda key, *_: states.get(key))
    options = SweepOptions([], resume=True)
    found = {key: sweep._resumed(key, SimpleNamespace(key=key), options, 3) for key in ("done", "half", "new")}
    assert found == {"done": None, "half": True, "new": False}
    assert sweep._resumed("new", SimpleNamespace(key="new"), options, 1) is True, "which then says that there is none"
