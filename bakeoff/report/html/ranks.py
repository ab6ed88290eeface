"""One offline HTML page of the ranks of a run, without scripts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bakeoff.advice.evidence import Advice
from bakeoff.record.ranks import RankRow, RanksReport, Scaling
from bakeoff.report.figures.style import BETWEEN, colours
from bakeoff.report.html.embed import policy, read
from bakeoff.report.html.template import template
from bakeoff.report.text.ranks import (
    RANKS,
    SCALING,
    SPREADS,
    counted_text,
    device_lines,
    head_text,
    named,
    rank_rows,
    rate_text,
    scaling_rows,
    spread_rows,
    wait_lines,
)

LETTERS = 300
"""Of a text; longer ones lose their middle. The JSON has all of them."""
MOST_DRAWN = 64
"""Ranks."""
_MOST_ROWS = {"ranks": 300, "figures": 300, "lines": 100, "findings": 60, "environment": 80}
"""Of tables and lists; what is left out is counted."""
_MOST_PARTS, _MOST_NAMES = 60, 40


@dataclass(frozen=True, slots=True)
class PartBar:
    """Time of a rank in one phase or collective, in percent of the longest rank's."""

    left: float
    width: float
    colour: str
    title: str
    waits: bool
    """For other ranks."""


@dataclass(frozen=True, slots=True)
class RankBars:
    """A rank's line of the drawing."""

    name: str
    bars: tuple[PartBar, ...]
    text: str


def render(report: RanksReport, advice: Sequence[Advice], scaling: Scaling | None) -> str:
    """The page; equal reports give equal text. Raises BakeoffError where jinja2 is missing."""
    names = list(dict.fromkeys(part.name for row in report.rows for part in row.parts))
    colour_of = {**colours(names), **BETWEEN}
    drawn = _drawn(report)
    return template("ranks.html.j2", "the page of ranks", LETTERS).render(
        policy=policy(),
        style=read("page.css") + read("profile.css") + read("ranks.css"),
        report=report,
        head=head_text(report),
        rate=rate_text(report),
        counted=counted_text(report),
        advised=advice,
        lines=list(_lines(drawn, report, colour_of)),
        left_ranks=len(report.rows) - len(drawn),
        legend=[(name, colour_of[name]) for name in names[:_MOST_NAMES]],
        tables={"ranks": RANKS, "figures": SPREADS, "scaling": SCALING},
        ranks=rank_rows(report.rows[: _MOST_ROWS["ranks"]]),
        figures=spread_rows(report.spreads[: _MOST_ROWS["figures"]]),
        waits=wait_lines(report),
        devices=device_lines(report),
        scaling=scaling,
        scaled=scaling_rows(scaling) if scaling is not None else [],
        findings=[(named(each.ranks), each.finding) for each in report.findings[: _MOST_ROWS["findings"]]],
        most=_MOST_ROWS,
    )


def _drawn(report: RanksReport) -> Sequence[RankRow]:
    """All rows, or of many the first and the straggler's."""
    slow = report.straggler.rank if report.straggler is not None else None
    if len(report.rows) <= MOST_DRAWN or slow in [row.rank for row in report.rows[:MOST_DRAWN]]:
        return report.rows[:MOST_DRAWN]
    rest = [row for row in report.rows[MOST_DRAWN:] if row.rank == slow]
    return (*report.rows[: MOST_DRAWN - len(rest)], *rest)


def _lines(rows: Sequence[RankRow], report: RanksReport, colour_of: Mapping[str, str]) -> Iterator[RankBars]:
    longest = max((sum(max(0.0, part.ns) for part in row.parts) for row in rows), default=0.0) or 1.0
    waits = {(each.name, wait.rank): wait.ns for each in report.waits for wait in each.waits}
    slow = report.straggler.rank if report.straggler is not None else None
    for row in rows:
        bars: list[PartBar] = []
        left = 0.0
        for name, ns, is_wait in _pieces(row, waits):
            width = min(100.0 - left, 100 * ns / longest)
            title = f"{'waiting in ' if is_wait else ''}{name}, {ns / 1e6:.3f} ms"
            bars.append(PartBar(left, width, colour_of[name], title, is_wait))
            left += width
        work = f"{row.work_ns / 1e6:.3f} ms of work"
        text = work if row.wait_ns is None else f"{work}, {row.wait_ns / 1e6:.3f} of waiting"
        yield RankBars(f"rank {row.rank}{', the straggler' if row.rank == slow else ''}", tuple(bars), text)


def _pieces(row: RankRow, waits: Mapping[tuple[str, int], float]) -> Iterator[tuple[str, float, bool]]:
    """Name and nanoseconds of what is drawn, and whether it is time that the rank waited for others."""
    for part in row.parts[:_MOST_PARTS]:
        waited = waits.get((part.name, row.rank), 0.0) if part.is_collective else 0.0
        if part.ns - waited > 0:
            yield part.name, part.ns - waited, False
        if waited > 0:
            yield part.name, waited, True
