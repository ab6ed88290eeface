"""Sweeps of several recorded modules: one budget for all, and the exit code of the worst."""

from dataclasses import dataclass
from typing import Any

import pytest

from bakeoff.cli import recorded
from bakeoff.cli.recorded import RecordedOptions, _PlannedSweep, sweep_recorded
from bakeoff.plan.request import Request
from bakeoff.process.inspected import Recorded


@dataclass(frozen=True)
class Plan:
    """What is read of a plan where nothing runs."""

    request: Request


def swept(monkeypatch: pytest.MonkeyPatch, ends: dict[str, tuple[float, int]]) -> tuple[int, dict[str, float]]:
    """The exit code and the budgets of modules whose sweeps end so: seconds of the budget, and exit code."""
    budgets: dict[str, float] = {}
    plan: Any = Plan(Request("toy"))
    planned = [_PlannedSweep(name, f"/{name}", plan, seconds) for name, (seconds, _) in ends.items()]

    def run(one: _PlannedSweep, *_: Any) -> tuple[float, int]:
        budgets[one.name] = one.plan.request.budget_s
        return ends[one.name]

    monkeypatch.setattr(recorded, "_plan_all", lambda *_: (planned, 0))
    monkeypatch.setattr(recorded, "_run", run)
    asked = RecordedOptions(None, None, "2m", True, 0, None, dry_run=False, as_json=True)
    return sweep_recorded([Recorded(name, f"/{name}", 1, 1, ("call",)) for name in ends], asked, {}), budgets


def test_one_budget_is_of_all_sweeps_and_what_one_leaves_is_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    code, budgets = swept(monkeypatch, {"small": (10.0, 0), "large": (55.0, 0), "last": (55.0, 0)})
    assert (code, budgets) == (0, {"small": 40, "large": 55, "last": 55})


def test_the_exit_code_is_that_of_the_worst_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    assert swept(monkeypatch, {"small": (10.0, 0), "large": (20.0, 3), "last": (20.0, 0)})[0] == 3
