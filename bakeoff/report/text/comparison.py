"""Two variants held against each other: `bakeoff compare`."""

from bakeoff.machine.terminal import lines_of
from bakeoff.record.diff import differences
from bakeoff.record.objective import LATENCY
from bakeoff.record.schema import Record
from bakeoff.record.store import StoredComparison
from bakeoff.record.verdict import AGREEING_PAIRS, CONFIDENCE, LEAST_DIFFERENCE, MOST_PAIRS, decide
from bakeoff.report.comparisons import sentence, sentence_apart
from bakeoff.report.groups import group_key, name_of
from bakeoff.report.recommendation import command

_RULE = (
    f"a verdict needs the {CONFIDENCE:.1%} interval of the pairs' ratios to exclude 1, a ratio beyond "
    f"{LEAST_DIFFERENCE:.0%}, and pairs of fresh processes that agree: all of {AGREEING_PAIRS}, or all but one of "
    f"{MOST_PAIRS}; fewer decide early where all show a large difference"
)
_SHOWN = 40
"""Differences between the two sides that are listed at most."""


def render(compared: StoredComparison) -> str:
    """A comparison in full: verdict, both sides, and what differs between them."""
    comparison = compared.comparison
    lines = [
        sentence(comparison),
        f"({_RULE}; ratios are B's time over A's)",
        *([f"objective: {comparison.objective}"] if comparison.objective != LATENCY else []),
        "",
    ]
    if comparison.rounds:
        verdict = decide(comparison)
        lines += [
            f"A  {verdict.a_ms:10.4f} ms  {comparison.a.variant}",
            f"B  {verdict.b_ms:10.4f} ms  {comparison.b.variant}",
        ]
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
    found = [str(entry) for entry in differences(a, b)]
    more = [f"  and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
    return ["differs, A | B:", *(f"  {text}" for text in found[:_SHOWN]), *more]
