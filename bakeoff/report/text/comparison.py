"""What a comparison says: one sentence for tables and histories, and the whole of it for reading."""

from collections.abc import Sequence

from bakeoff.record.difference import differences
from bakeoff.record.schema import MEASURED, Comparison, Record
from bakeoff.record.store import StoredComparison
from bakeoff.record.verdict import (
    AGREEING_PAIRS,
    CONFIDENCE,
    LEAST_DIFFERENCE,
    MOST_PAIRS,
    Verdict,
    decide_unpaired,
    judge,
)
from bakeoff.report.groups import group_key, name_of

_WORDS = {
    "faster": "is faster than",
    "slower": "is slower than",
    "no difference shown": "against",
}
RULE = (
    f"a verdict needs the rounds' {CONFIDENCE:.1%} interval to exclude 1, a ratio beyond {LEAST_DIFFERENCE:.0%}, and "
    f"pairs of fresh processes that agree: all of {AGREEING_PAIRS}, or all but one of {MOST_PAIRS}"
)
_SHOWN = 40


def final_of(a: Record, b: Record, comparisons: Sequence[StoredComparison]) -> Comparison | None:
    """The newest comparison between the variants of two records on the same machine and subject, whichever came first.

    One in which a side did not stay ok decides nothing.
    """
    wanted = {str(a.variant), str(b.variant)}
    fitting = [
        entry.comparison
        for entry in comparisons
        if {str(entry.comparison.a.variant), str(entry.comparison.b.variant)} == wanted
        and group_key(entry.comparison.a) == group_key(a)
        and entry.comparison.a.status == entry.comparison.b.status == "ok"
        and entry.comparison.rounds
    ]
    return max(fitting, key=lambda comparison: comparison.created, default=None)


def sentence(comparison: Comparison) -> str:
    """The verdict in one line, with its figures."""
    a, b = comparison.a, comparison.b
    if not (a.status == b.status == "ok") or not comparison.rounds:
        wrong = a if a.status != "ok" else b
        return f"{name_of(a)} against {name_of(b)}: no verdict, {name_of(wrong)} was {wrong.status}"
    verdict = judge(comparison)
    text = f"{name_of(a)} {_WORDS[verdict.word]} {name_of(b)}: {figures(verdict)}, {how(comparison)}"
    return text if verdict.word != "no difference shown" else f"{text}: no difference shown"


def figures(verdict: Verdict) -> str:
    """The ratio of times, B over A, with its interval."""
    return f"{verdict.ratio:.3f}x [{verdict.low:.3f}, {verdict.high:.3f}], p = {verdict.p:.1g}"


def how(comparison: Comparison) -> str:
    pairs = len({entry.pair for entry in comparison.rounds})
    if comparison.how == "in turn":
        return f"{len(comparison.rounds)} pairs of fresh processes in turn"
    return f"{len(comparison.rounds)} interleaved rounds in {pairs} pair{'s' * (pairs > 1)} of fresh processes"


def render(compared: StoredComparison) -> str:
    """A comparison in full: verdict, both sides, and what differs between them."""
    comparison = compared.comparison
    lines = [
        sentence(comparison),
        f"({RULE}; ratios are B's time over A's)",
        "",
    ]
    if comparison.rounds:
        verdict = judge(comparison)
        lines += [
            f"A  {verdict.a_ms:10.4f} ms  {comparison.a.variant}",
            f"B  {verdict.b_ms:10.4f} ms  {comparison.b.variant}",
        ]
    lines += [f"note: {finding.text}" for finding in comparison.findings]
    for side in (comparison.a, comparison.b):
        lines += [f"{name_of(side)}: {side.status}: {side.measurement.reason}"] if side.measurement.reason else []
    lines += ["", *_differing(comparison.a, comparison.b)]
    return "\n".join([*lines, "", f"seed {comparison.seed}, kept as {compared.id}"])


def render_apart(a: Record, b: Record) -> str:
    """Two records made at different times, which is said. Raises ValueError where one has no samples."""
    verdict = decide_unpaired(a, b)
    lines = [
        f"{name_of(a)} {_WORDS[verdict.word]} {name_of(b)}: {figures(verdict)}"
        + (f": {verdict.word}" if verdict.word == "no difference shown" else ""),
        "NOT interleaved: these records were made at different times, and what the host did meanwhile is in the ratio; "
        f"bakeoff compare '{a.variant}' '{b.variant}' measures both now",
        "",
        f"A  {verdict.a_ms:10.4f} ms  {a.variant}  {a.created[:19]}  {a.status}",
        f"B  {verdict.b_ms:10.4f} ms  {b.variant}  {b.created[:19]}  {b.status}",
        "",
        *_differing(a, b),
    ]
    unranked = [record for record in (a, b) if record.status not in MEASURED[:1]]
    lines += [f"note: {name_of(record)} is {record.status} and not to be ranked" for record in unranked]
    return "\n".join(lines)


def _differing(a: Record, b: Record) -> list[str]:
    found = [str(entry) for entry in differences(a, b)]
    more = [f"  and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
    return ["differs, A | B:", *(f"  {text}" for text in found[:_SHOWN]), *more]
