"""The page's table of comparisons: the ratio of two variants' times, round by round."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from bakeoff.record.schema import Comparison
from bakeoff.record.store import StoredComparison
from bakeoff.record.verdict import verdict_of
from bakeoff.report.comparisons import how, why_no_verdict
from bakeoff.report.groups import group_key, name_of, title
from bakeoff.report.links import Link


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """A comparison: ratios of the rounds' medians, the slower over the faster by their median."""

    subject: str
    faster: str
    slower: str
    how: str
    median_ratio: float
    least: float
    largest: float
    href: str
    without_verdict: str
    """Why its ratios say nothing; "" where both sides were ok."""
    dots: tuple[tuple[float, float], ...]
    """Points in a drawing of 100 by 20: x is the ratio, linear with 1 at 50; y is the round."""


def comparison_rows(comparisons: Sequence[StoredComparison], link: Link) -> list[ComparisonRow]:
    """The newest comparison of each pair on each machine."""
    kept: dict[tuple[object, ...], StoredComparison] = {}
    for compared in comparisons:
        a, b = compared.comparison.a, compared.comparison.b
        kept[group_key(a), str(a.variant), str(b.variant)] = compared
    made = [_row(compared.comparison, link(compared)) for compared in kept.values()]
    return [row for row in made if row is not None]


def _row(comparison: Comparison, href: str) -> ComparisonRow | None:
    """None where a side ended before the first round."""
    ratios = [median(turn.samples_ns[1]) / median(turn.samples_ns[0]) for turn in comparison.rounds]
    if not ratios:
        return None
    names = [name_of(comparison.a), name_of(comparison.b)]
    if median(ratios) < 1:
        ratios, names = [1 / ratio for ratio in ratios], names[::-1]
    return ComparisonRow(
        subject=title(comparison.a),
        faster=names[0],
        slower=names[1],
        how=how(comparison),
        median_ratio=median(ratios),
        least=min(ratios),
        largest=max(ratios),
        href=href,
        without_verdict="" if verdict_of(comparison) is not None else why_no_verdict(comparison),
        dots=_dots(ratios),
    )


def _dots(ratios: Sequence[float]) -> tuple[tuple[float, float], ...]:
    """One dot a round, time from top to bottom; the largest distance of a ratio from 1 sets the scale on both sides."""
    reach = max(*(max(ratio, 1 / ratio) for ratio in ratios if ratio > 0), 1.0) - 1 or 1.0
    return tuple(
        (
            round(50 + 46 * max(-1.0, min(1.0, (ratio - 1) / reach)), 2),
            round(3 + 14 * index / max(1, len(ratios) - 1), 2),
        )
        for index, ratio in enumerate(ratios)
    )
