"""What a sweep says below its tables: where its time went, and what its budget left out."""

from collections.abc import Mapping, Sequence

from bakeoff.models.words import counted
from bakeoff.plan.budget import budget_text
from bakeoff.record.schema import MEASURED
from bakeoff.record.store import Stored
from bakeoff.report.document import Block, Command, Listed, Section, Text, blocks, listed
from bakeoff.report.format import duration
from bakeoff.sweeps.time_limit import LeftOut, OutOfTime

_LEAST_S = 1.0
"""Parts that took less are not named."""
_SHOWN = 12
"""Rows that are named; the others are counted."""


def spent(spent_s: Mapping[str, float]) -> str:
    """Total and parts, as in `8 min 12 s: builds 41%, sampling 30%`, in the order of `spent_s`."""
    total = sum(spent_s.values())
    parts = ", ".join(f"{part} {seconds / total:.0%}" for part, seconds in spent_s.items() if seconds >= _LEAST_S)
    return ": ".join(filter(None, (duration(total * 1000), parts)))


def out_of_time(what: OutOfTime, stored: Sequence[Stored], resume: str) -> tuple[Block | Section, ...]:
    """What was left out for lack of time, and `resume`, the command that goes on."""
    tried = [entry.record.status in MEASURED for entry in stored if entry.record.wall_s]
    notes = [Text(_progress(what, sum(tried), len(tried)), tone="open")]
    if what.left_out:
        notes.append(Text(f"Left out: {_named(what.left_out)}."))
    if len(what.undecided) == 1:
        notes.append(Text(f"No final was run, so which of {what.undecided[0]} is faster is not decided."))
    several = what.undecided if len(what.undecided) > 1 else ()
    return blocks(
        Listed(tuple(notes)),
        listed(several, "No final was run, so which of these is faster is not decided"),
        Text("To go on:"),
        Command(resume),
    )


def nothing_measured(what: OutOfTime) -> str:
    """One sentence for a budget in which no row could be measured."""
    said = f"nothing was measured within {budget_text(what.budget_s)}"
    able = [row for row in what.left_out if row.expected_s]
    if not able:
        return said
    least = min(able, key=lambda row: row.expected_s)
    return f"{said}: {least.label} alone takes {_about(least.expected_s)}; give a larger --budget"


def _progress(what: OutOfTime, measured: int, tried: int) -> str:
    counts = f"{measured} of {counted(tried + len(what.left_out), 'variant')} measured"
    budget = budget_text(what.budget_s)
    if what.used_s >= what.budget_s:
        return f"{budget} are up: {counts}."
    return f"{counts} in {what.used_s:.0f} s; nothing else is expected to fit into {budget}."


def _named(left: Sequence[LeftOut]) -> str:
    named = [
        f"{row.label} ({'stopped while it ran' if row.begun else _about(row.expected_s)})" for row in left[:_SHOWN]
    ]
    return ", ".join([*named, *([f"{len(left) - _SHOWN} more"] if len(left) > _SHOWN else [])])


def _about(seconds: float) -> str:
    return f"about {seconds:.0f} s" if seconds < 120 else f"about {duration(seconds * 1000)}"
