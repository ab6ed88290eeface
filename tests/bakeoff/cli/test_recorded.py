"""Sweeps of several recorded modules: one time limit for all, and the exit code of the worst."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from bakeoff.cli import recorded
from bakeoff.cli.options import SweepOptions
from bakeoff.cli.recorded import _PlannedSweep, _with_references, sweep_recorded
from bakeoff.models.errors import BakeoffError
from bakeoff.plan.request import Request
from bakeoff.process.inspected import Recorded
from bakeoff.sweeps import row


@dataclass(frozen=True)
class Plan:
    """What is read of a plan where nothing runs."""

    request: Request
    rows: tuple[Any, ...] = ()


def swept(monkeypatch: pytest.MonkeyPatch, ends: dict[str, tuple[float, int]]) -> tuple[int, dict[str, float]]:
    """The exit code and the time limits of modules whose sweeps end so: seconds that they took, and exit code."""
    limits: dict[str, float] = {}
    plan: Any = Plan(Request("toy"))
    planned = [_PlannedSweep(name, f"/{name}", plan, seconds) for name, (seconds, _) in ends.items()]

    def run(one: _PlannedSweep, *_: Any) -> tuple[float, int]:
        limits[one.name] = one.plan.request.time_limit_s
        return ends[one.name]

    monkeypatch.setattr(recorded, "_plan_all", lambda *_: (planned, 0))
    monkeypatch.setattr(recorded, "_with_references", lambda planned, *_: (planned, 0))
    monkeypatch.setattr(recorded, "_run", run)
    asked = SweepOptions([], time_limit="2m", as_json=True)
    return sweep_recorded([Recorded(name, f"/{name}", 1, 1, ("call",)) for name in ends], asked, {}), limits


def test_one_time_limit_is_of_all_sweeps_and_what_one_leaves_is_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    code, limits = swept(monkeypatch, {"small": (10.0, 0), "large": (55.0, 0), "last": (55.0, 0)})
    assert (code, limits) == (0, {"small": 40, "large": 55, "last": 55})


def test_the_exit_code_is_that_of_the_worst_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    assert swept(monkeypatch, {"small": (10.0, 0), "large": (20.0, 3), "last": (20.0, 0)})[0] == 3


@pytest.mark.parametrize(("together", "swept"), [(False, ["first", "one set of two"]), (True, [])])
def test_modules_without_references_are_left_out_and_of_a_loop_nothing_is_swept(
    monkeypatch: pytest.MonkeyPatch, together: bool, swept: list[str]
) -> None:
    refused = {"first": 0, "deaf": 1, "one set of two": 1}
    sets = {"first": 1, "deaf": 1, "one set of two": 2}

    def refusals(plan: Plan, *_: Any) -> tuple[list[BakeoffError], float]:
        return [BakeoffError("too little", "insensitive")] * refused[plan.request.component], 3.0

    monkeypatch.setattr(row, "refused_subjects", refusals)
    planned = []
    for name, count in sets.items():
        plan: Any = Plan(Request(name), tuple(SimpleNamespace(subject=number) for number in range(count)))
        planned.append(_PlannedSweep(name, f"/{name}", plan, 1.0))
    asked, told = SweepOptions([], as_json=True), dict[str, object]()
    found, code = _with_references(planned, asked, told, together)
    assert ([one.name for one in found], code) == (swept, 2)
    assert all(one.checked_s == 3.0 for one in found)
    assert told["deaf"] == {"problem": "cannot be swept: too little", "code": "insensitive"}
