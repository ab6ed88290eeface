"""What `bakeoff sweep --budget` says below its table: what was left out for lack of time, and how to go on."""

from collections.abc import Sequence

from bakeoff.models.words import counted
from bakeoff.plan.budget import budget_text
from bakeoff.record.schema import MEASURED
from bakeoff.record.store import Stored
from bakeoff.sweeps.time_limit import LeftOut, OutOfTime

_SHOWN = 12
"""Rows that are named; the others are counted."""


def render(what: OutOfTime, stored: Sequence[Stored], resume: str) -> str:
    """Plain sentences; `resume` is the command that goes on."""
    tried = [entry.record.status in MEASURED for entry in stored if entry.record.wall_s]
    lines = [_progress(what, sum(tried), len(tried)), *_rows(what.left_out), *_finals(what)]
    return "\n".join([*lines, f"To go on: {resume}"])


def nothing_measured(what: OutOfTime) -> str:
    """One sentence for a budget in which no row could be measured."""
    said = f"nothing was measured within {budget_text(what.budget_s)}"
    able = [row for row in what.left_out if row.expected_s]
    if not able:
        return said
    least = min(able, key=lambda row: row.expected_s)
    return f"{said}: {least.label} alone takes {_about(least.expected_s)}; give a larger --budget"


def _progress(what: OutOfTime, measured: int, tried: int) -> str:
    total = tried + len(what.left_out)
    counts = f"{measured} of {counted(total, 'variant')} measured"
    budget = budget_text(what.budget_s)
    if what.used_s >= what.budget_s:
        return f"{budget} are up: {counts}."
    return f"{counts} in {what.used_s:.0f} s; nothing else is expected to fit into {budget}."


def _rows(left: Sequence[LeftOut]) -> list[str]:
    if not left:
        return []
    named = [f"{row.label} ({'stopped while it ran' if row.begun else _about(row.expected_s)})" for row in left]
    more = [f"{len(left) - _SHOWN} more"] if len(left) > _SHOWN else []
    return [f"Left out: {', '.join([*named[:_SHOWN], *more])}."]


def _finals(what: OutOfTime) -> list[str]:
    if not what.undecided:
        return []
    if len(what.undecided) == 1:
        return [f"No final was run, so which of {what.undecided[0]} is faster is not decided."]
    return ["No final was run, so which of these is faster is not decided:", *(f"  {pair}" for pair in what.undecided)]


def _about(seconds: float) -> str:
    return f"about {seconds:.0f} s" if seconds < 120 else f"about {seconds / 60:.0f} min"
