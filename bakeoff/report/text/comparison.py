"""Two variants held against each other: `bakeoff compare`."""

from itertools import groupby
from textwrap import wrap

from bakeoff.machine.terminal import lines_of
from bakeoff.record.diff import Difference, differences
from bakeoff.record.objective import LATENCY
from bakeoff.record.schema import Record
from bakeoff.record.store import StoredComparison
from bakeoff.record.verdict import AGREEING_PAIRS, CONFIDENCE, LEAST_DIFFERENCE, MOST_PAIRS
from bakeoff.report.comparisons import from_the_faster, sentence, sentence_apart
from bakeoff.report.format import shorten
from bakeoff.report.groups import group_key, name_of
from bakeoff.report.recommendation import command

_RULE = (
    f"a verdict needs the {CONFIDENCE:.1%} interval of the pairs' ratios to exclude 1, a ratio beyond "
    f"{LEAST_DIFFERENCE:.0%}, and pairs of fresh processes that agree: all of {AGREEING_PAIRS}, or all but one of "
    f"{MOST_PAIRS}; fewer decide early where all show a large difference"
)
_LISTED = 6
"""Differences of one kind that are listed at most; more are counted."""
_COLUMNS = 80


def render(compared: StoredComparison) -> str:
    """A comparison in full: verdict, both sides, and what differs between them."""
    comparison = compared.comparison
    lines = [
        sentence(comparison),
        f"({_RULE})",
        *([f"objective: {comparison.objective}"] if comparison.objective != LATENCY else []),
        "",
    ]
    if comparison.rounds:
        a, b, verdict = from_the_faster(comparison)
        lines += [f"{verdict.a_ms:13.4f} ms  {a.variant}", f"{verdict.b_ms:13.4f} ms  {b.variant}"]
    lines += [f"note: {finding.text}" for finding in comparison.findings]
    for side in (comparison.a, comparison.b):
        lines += [f"{name_of(side)}: {side.status}: {side.measurement.reason}"] if side.measurement.reason else []
    lines += ["", *_differing(comparison.a, comparison.b)]
    return lines_of([*lines, "", f"seed {comparison.seed}, stored as {compared.id}"])


def render_apart(a: Record, b: Record) -> str:
    """Two records made at different times: their medians and what differs between them, without a verdict."""
    lines = [
        sentence_apart(a, b),
        *([f"To measure both now: {command(a, b, LATENCY)}"] if _can_be_measured_together(a, b) else []),
        "",
        _side("A", a),
        _side("B", b),
        "",
        *_differing(a, b),
    ]
    lines += [
        f"note: {name_of(record)} is {record.status} and is not ranked" for record in (a, b) if record.status != "ok"
    ]
    return lines_of(lines)


def _can_be_measured_together(a: Record, b: Record) -> bool:
    """Whether they are two variants that compute the same from the same weights."""
    return group_key(a) == group_key(b) and str(a.variant) != str(b.variant)


def _side(name: str, record: Record) -> str:
    median_ms = record.latency.median_ms if record.latency is not None else float("nan")
    return f"{name}  {median_ms:10.4f} ms  {record.variant}  {record.created[:19]}  {record.status}"


def _differing(a: Record, b: Record) -> list[str]:
    """A line for each difference that fits a terminal, or several indented ones."""
    lines = []
    for kinds, group in groupby(differences(a, b), key=lambda entry: entry.kinds):
        found = list(group)
        if not kinds or len(found) <= _LISTED:
            lines += [line for entry in found for line in _lines(entry.what, entry, "  ")]
            continue
        lines.append(f"  {len(found)} {kinds} differ:")
        lines += [line for entry in found[:_LISTED] for line in _lines(entry.name, entry, "    ")]
        lines.append(f"    and {len(found) - _LISTED} more")
    return ["differs, A | B:", *lines] if lines else ["nothing differs but what was measured"]


def _lines(name: str, entry: Difference, indent: str) -> list[str]:
    values = (shorten(value, 2 * _COLUMNS) or "none" for value in (entry.a, entry.b))
    text = f"{shorten(name, _COLUMNS - 20)}: {' | '.join(values)}"
    return wrap(text, _COLUMNS, initial_indent=indent, subsequent_indent=f"{indent}    ", break_on_hyphens=False)
