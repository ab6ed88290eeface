"""The pages of `bakeoff compare`: one comparison in full, and the finals that were just measured."""

from collections.abc import Iterable
from typing import Final

from bakeoff.record.objective import LATENCY
from bakeoff.record.schema import Comparison, Record
from bakeoff.record.store import StoredComparison
from bakeoff.record.verdict import (
    AGREEING_PAIRS,
    CONFIDENCE,
    LEAST_DIFFERENCE,
    MOST_PAIRS,
    decide,
    verdict_of,
)
from bakeoff.report.document import Block, Cell, Command, Document, Heading, Text, Tone, blocks, listed, number, table
from bakeoff.report.format import milliseconds
from bakeoff.report.groups import name_of, title
from bakeoff.report.notes import policies
from bakeoff.report.pages.sweep import tone_of
from bakeoff.report.wording import from_the_faster, sentence

_RULE: Final = (
    f"A verdict needs the {CONFIDENCE:.1%} interval of the pairs' ratios to exclude 1, a ratio beyond "
    f"{LEAST_DIFFERENCE:.0%}, and pairs of fresh processes that agree: all of {AGREEING_PAIRS}, or all but one of "
    f"{MOST_PAIRS}; fewer decide early where all show a large difference."
)
_SIDES: Final = (
    Heading("variant"),
    number("median ms"),
    Heading("status"),
    Heading("reason"),
)


def document(compared: StoredComparison) -> Document:
    """Return the page of a comparison: the verdict, and the sides."""
    comparison = compared.record
    a, b = from_the_faster(comparison)[:2] if comparison.rounds else comparison.sides[:2]
    made = blocks(
        _answer(comparison),
        Text(str(comparison.objective), "objective") if comparison.objective != LATENCY else None,
        table(_SIDES, _sides(comparison), f"{a.variant.subject} on {a.variant.device}"),
        *policies(comparison.sides),
        listed(Text(finding.text, finding.code) for finding in comparison.findings),
        Text(_RULE, tone="faint"),
        _of_builds(comparison),
        Text(f"seed {comparison.seed}, stored as {compared.id}", tone="faint"),
    )
    return Document(f"{name_of(a)} against {name_of(b)}: {title(a)}", made)


def _of_builds(comparison: Comparison) -> Text | None:
    """Return a warning that the interval does not cover builds, for variants whose processes shared one; else None."""
    builds = ((side, side.measurement.build) for side in comparison.sides[:2])
    shared = [name_of(side) for side, build in builds if build is not None and build.cache not in ("none", "cold")]
    names = " and of ".join(shared)
    text = f"the processes of {names} shared a build: the interval covers processes, not builds"
    return Text(text, tone="faint") if shared else None


def finals(measured: Iterable[tuple[str, StoredComparison]], others: Iterable[tuple[str, str, str]]) -> Document:
    """Return the page of finals that were just measured, by the titles of their tables, and of tables without one.

    `others` are the titles of those tables, each with the reason and the command that measures a final, "" for none.
    """
    made: list[Block] = [_answer(compared.record, heading) for heading, compared in measured]
    for heading, why, asked in others:
        made += [Text(f"not measured, {why}", heading, "open"), *([Command(asked)] if asked else [])]
    return Document("Finals", tuple(made or [Text("Every table with two rows to decide between has a final.")]))


def _answer(comparison: Comparison, label: str = "") -> Text:
    verdict = verdict_of(comparison)
    tone: Tone = "bad" if verdict is None else "open" if verdict.word == "no difference shown" else "good"
    return Text(sentence(comparison), label, tone)


def _sides(comparison: Comparison) -> list[tuple[Cell | str, ...]]:
    """Return a row for the faster side, the slower one and the baseline, if there is one, with medians of rounds."""
    if not comparison.rounds:
        return [_side(side, None) for side in comparison.sides]
    a, b, verdict = from_the_faster(comparison)
    third = [_side(side, decide(comparison, 0, 2).b_ms) for side in comparison.sides[2:]]
    return [_side(a, verdict.a_ms), _side(b, verdict.b_ms), *third]


def _side(record: Record, median_ms: float | None) -> tuple[Cell | str, ...]:
    time = milliseconds(median_ms) if median_ms is not None else ""
    status = Cell(record.status, record.status, tone=tone_of(record.status))
    return name_of(record), time, status, record.measurement.reason
