"""What a comparison of two variants says, in the words that all pages share."""

from collections.abc import Sequence

from bakeoff.record.schema import Comparison, Record
from bakeoff.record.store import StoredComparison
from bakeoff.record.verdict import Verdict, decide
from bakeoff.report.groups import group_key, name_of

_WORDS = {
    "faster": "is faster than",
    "slower": "is slower than",
    "no difference shown": "against",
}


def final_of(a: Record, b: Record, comparisons: Sequence[StoredComparison]) -> Comparison | None:
    """The newest comparison of the two records' variants, in either order, on the same machine and subject.

    None where there is none with rounds in which both sides stayed ok.
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
    """The verdict on interleaved rounds in one line, with its figures."""
    a, b = comparison.a, comparison.b
    if not (a.status == b.status == "ok") or not comparison.rounds:
        wrong = a if a.status != "ok" else b
        return f"{name_of(a)} against {name_of(b)}: no verdict, {name_of(wrong)} was {wrong.status}"
    verdict = decide(comparison)
    return _stated(verdict, a, b, f"{ratio_text(verdict)}, {how(comparison)}")


def sentence_apart(a: Record, b: Record, verdict: Verdict) -> str:
    """The verdict on two records made at different times, in one line."""
    return _stated(verdict, a, b, ratio_text(verdict))


def _stated(verdict: Verdict, a: Record, b: Record, figures: str) -> str:
    end = ": no difference shown" if verdict.word == "no difference shown" else ""
    return f"{name_of(a)} {_WORDS[verdict.word]} {name_of(b)}: {figures}{end}"


def ratio_text(verdict: Verdict) -> str:
    """The ratio of times, B over A, with its interval."""
    return f"{verdict.ratio:.3f}x [{verdict.low:.3f}, {verdict.high:.3f}], p = {verdict.p:.1g}"


def how(comparison: Comparison) -> str:
    """How many rounds were measured, and in how many pairs of processes."""
    pairs = len({entry.pair for entry in comparison.rounds})
    if comparison.how == "in turn":
        return f"{len(comparison.rounds)} pairs of fresh processes in turn"
    return f"{len(comparison.rounds)} interleaved rounds in {pairs} pair{'s' * (pairs > 1)} of fresh processes"
