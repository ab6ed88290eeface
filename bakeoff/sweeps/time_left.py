"""How long the rest of a sweep takes: by the estimate of `--dry-run`, corrected by what the rows so far took."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from bakeoff.plan.dry_run import estimate
from bakeoff.plan.history import History
from bakeoff.plan.plan import Plan
from bakeoff.plan.rows import Key


@dataclass(frozen=True, slots=True)
class Costs:
    """Estimated seconds."""

    rows: Mapping[Key, float]
    """Zero for a row that cannot run."""
    finals: float = 0.0
    """Of all finals together."""


def estimate_costs(plan: Plan, history: History) -> Costs:
    """What the rows of a plan took in earlier records, or else a guess; without references, which are made once."""
    in_order = replace(plan, request=replace(plan.request, budget_s=0.0))  # a budget orders the lines otherwise
    found = estimate(in_order, history)
    rows = {row.key: line.seconds for row, line in zip(plan.rows, found.lines, strict=True)}
    return Costs(rows, max(0.0, found.seconds - found.references_s - sum(rows.values())))


def seconds_left(costs: Costs, left: Iterable[Key], done: Iterable[Key] = (), taken_s: float = 0.0) -> float:
    """Seconds that the rows `left` and the finals will take, where those `done` took `taken_s` together.

    Rows that overlap take less than the sum of their estimates, rows on a busy host more: what is left is scaled by the
    ratio so far. One average row that took as long as estimated is counted as done too, since the first row alone says
    little.
    """
    left_s = sum(costs.rows[key] for key in left)
    if not left_s:
        return costs.finals
    estimates = [seconds for seconds in costs.rows.values() if seconds]
    average_s = sum(estimates) / len(estimates)
    done_s = sum(costs.rows[key] for key in done)
    return left_s * (taken_s + average_s) / (done_s + average_s) + costs.finals
