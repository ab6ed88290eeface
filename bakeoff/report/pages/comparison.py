"""Pages that compare two variants: one comparison in full, two records side by side, and a list of comparisons."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from statistics import median
from typing import Final

from bakeoff.record.comparable import row_key
from bakeoff.record.diff import Difference, differences
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
from bakeoff.report.document import Block, Cell, Command, Document, Heading, Section, Text, Tone, blocks, listed, table
from bakeoff.report.format import milliseconds
from bakeoff.report.groups import name_of, title
from bakeoff.report.links import Cited
from bakeoff.report.notes import policies
from bakeoff.report.pages.sweep import tone_of
from bakeoff.report.wording import from_the_faster, how, ratio_text, sentence, why_no_verdict

_RULE: Final = (
    f"A verdict needs the {CONFIDENCE:.1%} interval of the pairs' ratios to exclude 1, a ratio beyond "
    f"{LEAST_DIFFERENCE:.0%}, and pairs of fresh processes that agree: all of {AGREEING_PAIRS}, or all but one of "
    f"{MOST_PAIRS}; fewer decide early where all show a large difference."
)
_SIDES: Final = (
    Heading("variant"),
    Heading("median ms", numeric=True),
    Heading("status"),
    Heading("measured", leaves=1),
    Heading("reason"),
)
_COMPARISONS: Final = (
    Heading("faster"),
    Heading("slower"),
    Heading("verdict", "the slower one's time over the faster one's, with its interval"),
    Heading("speed-up, median [least, largest]", "of the rounds' medians", numeric=True, leaves=1),
    Heading("how", leaves=2),
    Heading("of", leaves=3),
    Heading("record", leaves=4),
)
_LISTED = 3
"""Largest number of differences of one kind that are listed; more are counted."""
_COUNTED: Final = (
    "code", "dirty", "graph hash", "cache of the build", "host all_flags", "facts of the device", "facts of the proof",
    "operators inside", "quantised layers", "layers not quantised",
)  # fmt: skip
"""Differences that are counted only: they follow from others, or from the machine's state."""
_OF_BOTH: Final = ("sources", "settings")
"""Kinds of differences that matter only if both records have the fact."""


def document(compared: StoredComparison) -> Document:
    """Return the page of a comparison: the verdict, the sides, and what differs between them."""
    comparison = compared.record
    a, b = from_the_faster(comparison)[:2] if comparison.rounds else comparison.sides[:2]
    made = blocks(
        _answer(comparison),
        Text(str(comparison.objective), "objective") if comparison.objective != LATENCY else None,
        table(_SIDES, _sides(comparison), f"{a.variant.subject} on {a.variant.device}"),
        *policies(comparison.sides),
        listed(Text(finding.text, finding.code) for finding in comparison.findings),
        *_differing(a, b),
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


def _side(record: Record, median_ms: float | None, measured: str = "") -> tuple[Cell | str, ...]:
    time = milliseconds(median_ms) if median_ms is not None else ""
    status = Cell(record.status, record.status, tone=tone_of(record.status))
    return name_of(record), time, status, measured, record.measurement.reason


def _differing(a: Record, b: Record) -> tuple[Block, ...]:
    """Return a table of the differences that matter, the variants' own first, and how many others there are."""
    shown: list[Difference] = []
    others: list[str] = []
    for kinds, group in groupby(differences(a, b), key=lambda entry: entry.kinds or entry.name):
        found = list(group)
        kept = [entry for entry in found if _tells(entry)][:_LISTED]
        left = [entry for entry in found if entry not in kept]
        shown += kept
        if left:
            others.append(left[0].what if len(left) == 1 else f"{len(left)} {'more ' if kept else ''}{kinds}")
    if not shown and not others:
        return (Text("nothing differs but what was measured"),)
    names = [name_of(record) for record in (a, b)]
    sides = names if names[0] != names[1] else ["A", "B"]
    rows = [(entry.what, entry.a or "none", entry.b or "none") for entry in shown]
    also = f"{'also' if rows else 'what'} differs: {', '.join(others)}; all with --json" if others else ""
    return blocks(table(["differs", *sides], rows), Text(also) if also else None)  # type: ignore[return-value]


def _tells(entry: Difference) -> bool:
    if entry.kinds in _OF_BOTH and not (entry.a and entry.b):
        return False
    return not {entry.kinds, entry.what} & {*_COUNTED}


def sections(comparisons: Sequence[StoredComparison], cited: Cited) -> tuple[Section, ...]:
    """Return a section with the newest comparison of each pair on each machine; empty if there are none."""
    newest: dict[tuple[object, ...], StoredComparison] = {}
    for compared in comparisons:
        a, b = compared.record.a, compared.record.b
        newest[row_key(a), str(b.variant)] = compared
    made = table(_COMPARISONS, _rows(newest.values(), cited))
    return (Section("Comparisons", (made,)),) if made is not None else ()


def _rows(comparisons: Iterable[StoredComparison], cited: Cited) -> Iterable[list[Cell | str]]:
    """Yield a row for each comparison that has rounds."""
    for compared in comparisons:
        comparison = compared.record
        if not comparison.rounds:
            continue
        faster, slower, verdict = from_the_faster(comparison)
        order = (0, 1) if faster is comparison.a else (1, 0)
        times = [[median(turn.samples_ns[side]) for side in order] for turn in comparison.rounds]
        ratios = [slow / fast for fast, slow in times]
        valid = verdict_of(comparison) is not None
        no_difference = "" if verdict.word == "faster" else f", {verdict.word}"
        yield [
            name_of(faster),
            name_of(slower),
            Cell(f"{ratio_text(verdict)}{no_difference}", verdict.ratio, tone="open" if no_difference else "good")
            if valid
            else Cell(why_no_verdict(comparison), tone="bad"),
            f"{median(ratios):.3f} [{min(ratios):.3f}, {max(ratios):.3f}]" if valid else "",
            how(comparison),
            title(faster),
            Cell("", link=cited(compared)),
        ]
