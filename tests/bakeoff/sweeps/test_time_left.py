"""The seconds that are left of a sweep, from estimates and from what rows took."""

from dataclasses import replace

import pytest

from bakeoff.plan.dry_run import estimate
from bakeoff.plan.history import history_of
from bakeoff.plan.plan import make_plan
from bakeoff.plan.request import Request
from bakeoff.sweeps.run import Costs, estimate_costs, seconds_left

A, B, C, NEVER = KEYS = [(name, 1, 1, 1) for name in ("a", "b", "c", "never")]
COSTS = Costs({A: 30.0, B: 60.0, C: 90.0, NEVER: 0.0}, 100.0)


def test_before_the_first_row_the_estimate_holds() -> None:
    assert seconds_left(COSTS, KEYS) == 280.0


def test_what_is_left_is_scaled_by_what_rows_took() -> None:
    assert seconds_left(COSTS, [C, NEVER], [A, B], 90.0) == 90.0 + 100.0, "as estimated"
    half = seconds_left(COSTS, [C, NEVER], [A, B], 45.0)
    assert half == pytest.approx(90.0 * (45 + 60) / (90 + 60) + 100.0), "the finals are not scaled"
    assert seconds_left(COSTS, [C, NEVER], [A, B], 180.0) > 190.0


def test_the_first_row_alone_says_little() -> None:
    assert seconds_left(COSTS, [B, C], [A], 0.0) > 100.0 + 150.0 / 2
    assert seconds_left(COSTS, [B, C], [A], 60.0) < 100.0 + 150.0 * 2


def test_rows_that_cannot_run_take_no_time() -> None:
    assert seconds_left(COSTS, [B, C], [A, NEVER], 30.0) == 250.0
    assert seconds_left(COSTS, [NEVER], [A, B, C], 500.0) == 100.0
    assert seconds_left(Costs({NEVER: 0.0}), [NEVER]) == 0.0


def test_after_the_rows_the_finals_are_left() -> None:
    assert seconds_left(COSTS, [], KEYS, 1000.0) == 100.0


def test_costs_are_those_of_the_dry_run() -> None:
    request = Request("toy", backends=("eager", "inductor", "inductor[mode=reduce-overhead]"), device="cpu")
    plan = make_plan(replace(request, dtypes=("fp32",)))
    costs, shown = estimate_costs(plan, history_of(())), estimate(plan, history_of(()))
    assert list(costs.rows) == [row.key for row in plan.rows]
    assert list(costs.rows.values()) == [line.seconds for line in shown.lines]
    assert costs.finals > plan.request.final_s > 0
    assert shown.references_s > 0
    assert seconds_left(costs, costs.rows) == pytest.approx(shown.seconds - shown.references_s)
