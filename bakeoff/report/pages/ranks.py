"""The page of a distributed run: its ranks side by side, the one that the others wait for, and how rates scale."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from bakeoff.models.words import counted
from bakeoff.record.ranks import RanksReport, Spread
from bakeoff.report.document import (
    Block,
    Cell,
    Details,
    Document,
    Heading,
    Section,
    Table,
    Text,
    blocks,
    first_of,
    listed,
    number,
    table,
)
from bakeoff.report.format import shorten

_MOST, _MOST_WAITS, _MOST_PARTS = 300, 16, 8
"""Largest numbers of a table's rows or a list's items (more are counted), of a wait's ranks, and of phases of a row."""
_NAME, _WORDS = 60, 300
"""Largest number of characters of names and of texts."""
_FAILURES = ("missing", "unreadable", "failed")
_SPREADS: Final = (
    Heading("figure"),
    Heading("unit", leaves=3),
    *map(number, ("least", "median", "greatest")),
    number("least at", leaves=4),
    number("greatest at", "the rank, the lowest of several"),
    number("of", "ranks that have the figure", leaves=5),
)


def document(reports: Sequence[RanksReport], scaling: tuple[Mapping[int, float], Sequence[str]] = ({}, ())) -> Document:
    """Return the page of one run, or of several with a section each, and of how their rates scale."""
    scaled = _scaled(*scaling)
    if len(reports) == 1:
        return Document(_title(reports[0]), (*_of_run(reports[0]), *scaled))
    return Document("Ranks", (*scaled, *(Section(_title(report), tuple(_of_run(report))) for report in reports)))


def _title(report: RanksReport) -> str:
    name = shorten(report.name, _NAME) or "session"
    return f"{name}: {len(report.rows)} of {counted(report.world, 'rank')}"


def _of_run(report: RanksReport) -> Iterator[Block]:
    """Yield the blocks of a run, with tables and lists cut to a length that a page can have."""
    rate = "" if report.frames_per_s is None else f"{report.frames_per_s:.3f}, "
    about = f"{report.name}, run {report.group}, parallelism {report.parallelism}, read from {report.folder}"
    figures = f"figures a unit: {report.counted}; phases by the {report.clock}'s clock"
    problems = (Text(each.text, each.code, "bad" if each.code in _FAILURES else "open") for each in report.problems)
    findings = (Text(shorten(text, _WORDS), _named(ranks)) for text, ranks in report.findings.items())
    environment = listed(_facts(report.environment))
    for block in (
        Text(report.straggler_text, tone="bad" if report.straggler else "good" if len(report.rows) > 1 else ""),
        Text(f"frames/s of the run: {rate}{report.frames_text}"),
        listed(problems, "Problems"),
        Text(f"{about}; {figures}", tone="faint"),
        listed(_facts(report.tags)),
        _ranks(report),
        listed(_waits(report)),
        table(_SPREADS, map(_spread, report.spreads), "Figures over ranks"),
        listed(findings, "Findings of the ranks' own records"),
        Details("Environment of the lowest rank", (environment,)) if environment else None,
    ):
        yield from first_of(block, _MOST)


def _facts(facts: Mapping[str, object]) -> Iterator[Text]:
    return (Text(shorten(str(value), _WORDS), shorten(name, _NAME)) for name, value in islice(facts.items(), _MOST))


def _ranks(report: RanksReport) -> Table | None:
    """Return a row a rank, with a column for each phase and collective; of many, for the longest."""
    total = Counter[str]()
    for row in report.rows:
        total.update({**row.phases, **row.collectives})
    parts = [name for name, _ in total.most_common(_MOST_PARTS)]
    headings = (
        number("rank"), Heading("host", leaves=6), Heading("device", leaves=7),
        Heading("status", leaves=3), number("session s", leaves=5),
        number("units", leaves=4), number("unit ms", "mean of the rank's units"),
        number("frames/s", leaves=2),
        *(number(f"{shorten(name, _NAME)} ms", leaves=2) for name in parts),
        number("work ms", "of a unit, without collectives"),
        number("wait ms", "of a unit, in collectives, beyond the time of the rank that took least"),
    )  # fmt: skip
    slow = report.straggler.rank if report.straggler is not None else None
    cpu = "cpu" if any(row.device for row in report.rows) else ""
    rows: list[Sequence[Cell | str]] = [
        (
            Cell(str(row.rank), row.rank, tone="bad" if row.rank == slow else ""),
            shorten(row.host, 24),
            shorten(row.device, 16) or cpu,
            shorten(row.status, 24),
            _number(row.ns / 1e9),
            str(row.units),
            _ms(row.unit_ns),
            _number(row.frames_per_s),
            *(_ms({**row.phases, **row.collectives}.get(name)) for name in parts),
            _ms(row.work_ns),
            _ms(row.wait_ns),
        )
        for row in report.rows
    ]
    return table(headings, rows, "Ranks: each time once, for the innermost phase")


def _spread(each: Spread) -> Sequence[str]:
    values = (f"{value:{'.3f' if abs(value) < 1e6 else '.4g'}}" for value in (each.least, each.median, each.greatest))
    counts = map(str, (each.least_rank, each.greatest_rank, each.count))
    return (shorten(each.name, _NAME), shorten(each.unit, 24), *values, *counts)


def _ms(ns: float | None) -> str:
    return _number(None if ns is None else ns / 1e6)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _waits(report: RanksReport) -> Iterator[str]:
    """Yield a line for each collective with the wait of each rank, or of many ranks the least and the greatest wait."""
    for name in dict.fromkeys(name for row in report.rows for name in row.waits):
        waits = [(row.waits[name], row) for row in report.rows if name in row.waits]
        least = min(row.collectives[name] for _, row in waits) / 1e6
        if len(waits) > _MOST_WAITS:
            waits = [chosen(waits, key=lambda wait: wait[0]) for chosen in (min, max)]
        text = ", ".join(f"rank {row.rank} {ns / 1e6:.3f}" for ns, row in waits)
        yield f"wait in {shorten(name, _WORDS)}, ms a unit: {text} (over the least time in it, {least:.3f})"


def _named(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _scaled(rates: Mapping[int, float], notes: Sequence[str]) -> tuple[Section, ...]:
    """Return a section with the rates by number of ranks, and which runs were left out; empty without either."""
    if not rates and not notes:
        return ()
    base = min(rates, default=1)
    lines = [
        f"{counted(world, 'rank')}: {rate:.3f} frames/s, {rate / rates[base]:.2f} times as fast as {base}, "
        f"{rate / rates[base] / (world / base):.1%} of the ratio of ranks"
        for world, rate in rates.items()
    ]
    return (Section("Scaling", blocks(listed(lines), listed(notes))),)
