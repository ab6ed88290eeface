"""The page of a distributed run: its ranks side by side, the one that the others wait for, and how rates scale."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from bakeoff.advice.evidence import Advice
from bakeoff.advice.ranks import ms_a_unit
from bakeoff.models.words import counted
from bakeoff.record.ranks import RankRow, RanksReport, RankValue, Scaling, Spread
from bakeoff.report.document import (
    Block,
    Cell,
    Details,
    Document,
    Figures,
    Heading,
    Listed,
    Section,
    Table,
    Text,
    blocks,
    listed,
    table,
)
from bakeoff.report.figures.vega import BETWEEN, Figure, Spec, colours, name_text, rounded
from bakeoff.report.format import shorten
from bakeoff.report.notes import advice_list

MOST_DRAWN: Final = 64
"""Largest number of ranks that are drawn."""
_MOST, _MOST_WAITS, _MOST_PARTS = 300, 16, 60
"""Largest numbers of a table's rows or a list's items (more are counted), of a wait's ranks, and of a bar's parts."""
_NAME, _WORDS = 60, 300
"""Largest number of characters of names and of texts."""
_NEVER_SKEWED = ("start",)
"""Figures whose skew, a share of their median, says nothing."""
_FAILURES = ("missing", "torn", "refused", "failed")
_RANKS: Final = (
    Heading("rank", numeric=True),
    Heading("host", leaves=6),
    Heading("device", leaves=7),
    Heading("status", leaves=3),
    Heading("session s", numeric=True, leaves=5),
    Heading("units", numeric=True, leaves=4),
    Heading("unit ms", "mean of the rank's units", numeric=True),
    Heading("frames/s", numeric=True, leaves=2),
    Heading("work ms", "of a unit, without collectives", numeric=True),
    Heading("wait ms", "of a unit, in collectives, beyond the time of the rank that took least", numeric=True),
)
_SPREADS: Final = (
    Heading("figure"),
    Heading("unit", leaves=3),
    Heading("least", numeric=True),
    Heading("median", numeric=True, leaves=2),
    Heading("greatest", numeric=True),
    Heading("least at", numeric=True, leaves=4),
    Heading("greatest at", "the rank, the lowest of several", numeric=True),
    Heading("skew", "the greatest above the median, over the median", numeric=True, leaves=1),
    Heading("not told by", leaves=5),
)
_SCALING: Final = (
    Heading("ranks", numeric=True),
    Heading("frames/s", numeric=True),
    Heading("speed-up", "over the run of fewest ranks", numeric=True),
    Heading("efficiency", "speed-up over the ratio of ranks", numeric=True),
    Heading("serial share", "by Karp and Flatt", numeric=True, leaves=1),
    Heading("run"),
)


def document(runs: Sequence[tuple[RanksReport, Sequence[Advice]]], scaling: Scaling | None = None) -> Document:
    """Return the page of one run, or of several with a section each, with their advice and how rates scale."""
    made = [_of_run(report, advice) for report, advice in runs]
    titles = [_title(report) for report, _ in runs]
    if len(runs) == 1:
        return Document(titles[0], (*made[0], *_scaled(scaling)))
    return Document("Ranks", (*_scaled(scaling), *map(Section, titles, made)))


def _title(report: RanksReport) -> str:
    name = shorten(report.config.name, _NAME) or "session"
    return f"{name}: {len(report.rows)} of {counted(report.expected, 'rank')}"


def _of_run(report: RanksReport, advice: Sequence[Advice]) -> tuple[Block | Section, ...]:
    config = report.config
    rate = "" if report.frames_per_s is None else f"{report.frames_per_s:.3f}, "
    made = blocks(
        Text(_answer(report), tone="bad" if report.straggler else "good" if len(report.rows) > 1 else ""),
        Text(f"frames/s of the run: {rate}{report.frames_text}"),
        listed(
            (Text(each.text, each.code, "bad" if each.code in _FAILURES else "open") for each in report.problems),
            "Problems",
        ),
        Text(
            f"{config.name}, run {report.group}, parallelism {config.parallelism}, read from {report.folder}; figures "
            f"a unit: {report.counted}; phases by the {report.clock}'s clock",
            tone="faint",
        ),
        listed(Text(shorten(str(value), _WORDS), shorten(name, _NAME)) for name, value in config.tags.items()),
        _figure(report),
        _ranks(report),
        listed([*_waits(report), *_devices(report)]),
        advice_list(advice, "unit"),
        table(_SPREADS, map(_spread, report.spreads), "Figures over ranks"),
        listed(
            (
                Text(shorten(each.finding.text, _WORDS), f"{each.finding.code}, {_named(each.ranks)}")
                for each in report.findings
            ),
            "Findings of the ranks' own records",
        ),
        _environment(report),
    )
    return tuple(_cut(made))


def _cut(made: Iterable[Block | Section]) -> Iterator[Block | Section]:
    """Yield the blocks with tables and lists cut to a length that a page can have, and how much is left out."""
    for block in made:
        parts = block.rows if isinstance(block, Table) else block.items if isinstance(block, Listed) else ()
        kept = "rows" if isinstance(block, Table) else "items"
        yield replace(block, **{kept: parts[:_MOST]}) if len(parts) > _MOST else block  # type: ignore[arg-type]
        if len(parts) > _MOST:
            yield Text(f"and {len(parts) - _MOST} more, in the JSON", tone="faint")


def _answer(report: RanksReport) -> str:
    """Return the straggler and the share of a unit that it can cost, or why none is named."""
    unit_ms, found = ms_a_unit(report), report.straggler
    if unit_ms is None or found is None:
        return report.straggler_text
    return f"{report.straggler_text}; it costs at most {found.margin_ns / 1e6:.1f} of {unit_ms:.1f} ms a unit"


def _ranks(report: RanksReport) -> Table | None:
    slow = report.straggler.rank if report.straggler is not None else None
    cpu = "cpu" if any(row.device for row in report.rows) else ""
    return table(
        _RANKS,
        [
            (
                Cell(str(row.rank), row.rank, tone="bad" if row.rank == slow else ""),
                shorten(row.host, 24),
                shorten(row.device, 16) or cpu,
                shorten(row.status, 24),
                _number(row.ns / 1e9),
                str(row.units),
                _ms(row.unit_ns),
                _number(row.frames_per_s),
                _ms(row.work_ns),
                _ms(row.wait_ns),
            )
            for row in report.rows
        ],
        "Ranks",
    )


def _spread(each: Spread) -> list[str]:
    skew = None if each.name in _NEVER_SKEWED or each.count < 2 else each.skew
    return [
        shorten(each.name, _NAME),
        shorten(each.unit, 24),
        *(_number(value, ".3f" if abs(value) < 1e6 else ".4g") for value in (each.least, each.median, each.greatest)),
        str(each.least_rank),
        str(each.greatest_rank),
        _number(skew, ".1%"),
        _named(each.lacking) if each.lacking else "",
    ]


def _ms(ns: float | None) -> str:
    return _number(None if ns is None else ns / 1e6)


def _number(value: float | None, form: str = ".3f") -> str:
    return "" if value is None else f"{value:{form}}"


def _waits(report: RanksReport) -> Iterator[str]:
    """Yield a line for each collective with the wait of each rank, or of many ranks the least and the greatest wait."""
    for each in report.waits:
        shown: Sequence[RankValue] = each.waits
        if len(shown) > _MOST_WAITS:
            shown = min(shown, key=lambda wait: wait.ns), max(shown, key=lambda wait: wait.ns)
        waits = ", ".join(f"rank {wait.rank} {wait.ns / 1e6:.3f}" for wait in shown)
        least = f"over the least time in it, {each.least_ns / 1e6:.3f}"
        yield f"wait in {shorten(each.name, _WORDS)}, ms a unit: {waits} ({least})"


def _devices(report: RanksReport) -> Iterator[str]:
    """Yield the memory and energy of each device, and the energy of all GPUs."""
    for memory in report.memory:
        yield f"memory of {memory.device}: at most {memory.mib:.0f} MiB, {_on(memory.ranks)}"
    for energy in report.energy:
        yield f"energy of {energy.device}: {energy.mj / 1000:.1f} J, {_on(energy.ranks, energy.host)}"
    if report.energy_mj is not None:
        yield f"energy of all GPUs that ranks run on: {report.energy_mj / 1000:.1f} J"


def _on(ranks: Sequence[int], host: str = "") -> str:
    return _named(ranks) if ranks else f"on {host}" if host else "no rank runs on it"


def _named(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _environment(report: RanksReport) -> Details | None:
    found = listed(
        Text(shorten(value, _WORDS), shorten(name, _NAME)) for name, value in report.config.environment.items()
    )
    return Details("Environment of the lowest rank", tuple(_cut((found,)))) if found is not None else None


def _scaled(scaling: Scaling | None) -> tuple[Section, ...]:
    """Return a section with the rates by number of ranks, and which runs were left out; empty for None."""
    if scaling is None:
        return ()
    rows = [
        (
            str(point.world),
            _number(point.frames_per_s),
            _number(point.speedup),
            _number(point.efficiency, ".1%"),
            _number(point.serial_share),
            shorten(point.folder, _NAME),
        )
        for point in scaling.points
    ]
    made = blocks(table(_SCALING, rows) or Text("no scaling of several sizes"), listed(scaling.notes))
    return (Section("Scaling", made),)


def _figure(report: RanksReport) -> Figures | None:
    """Draw a bar for each rank: its phases and collectives, waits in a lighter tone; None if nothing was recorded."""
    slow = report.straggler.rank if report.straggler is not None else None
    waits = {(each.name, wait.rank): wait.ns for each in report.waits for wait in each.waits}
    drawn = _drawn(report)
    label = {row.rank: f"rank {row.rank}{', the straggler' if row.rank == slow else ''}" for row in drawn}
    data: list[Spec] = []
    for row in drawn:
        start = 0.0
        for name, ns, is_wait in _pieces(row, waits):
            held = {"rank": label[row.rank], "part": name_text(name), "ms": rounded(ns / 1e6), "waits": is_wait}
            data.append({**held, "from": rounded(start / 1e6), "to": rounded((start + ns) / 1e6)})
            start += ns
    if not data:
        return None
    names = dict.fromkeys(part.name for row in drawn for part in row.parts)
    colour_of = {**colours(name for name in names if name not in BETWEEN), **BETWEEN}
    legend = {name_text(name): colour_of[name] for name in names}
    spec = {
        "height": 26 * len(drawn),
        "data": {"values": data},
        "mark": {"type": "bar", "stroke": "white", "strokeWidth": 0.6},
        "encoding": {
            "y": {"field": "rank", "type": "nominal", "title": None, "sort": list(label.values())},
            "x": {"field": "from", "type": "quantitative", "title": "ms a unit"},
            "x2": {"field": "to"},
            "color": {
                "field": "part", "type": "nominal", "scale": {"domain": list(legend), "range": list(legend.values())},
            },
            "fillOpacity": {"condition": {"test": "datum.waits", "value": 0.3}, "value": 1},
            "tooltip": [{"field": "rank"}, {"field": "part"}, {"field": "ms"}, {"field": "waits"}],
        },
    }  # fmt: skip
    left = len(report.rows) - len(drawn)
    more = f"; {counted(left, 'more rank')} in the table" if left else ""
    caption = f"each time once, for the innermost phase; light: what a collective takes beyond its least time{more}"
    return Figures((Figure("waterfall", "One unit on each rank", caption, spec),))


def _drawn(report: RanksReport) -> Sequence[RankRow]:
    """Return all rows or, if there are many, the first ones and the straggler's."""
    slow = report.straggler.rank if report.straggler is not None else None
    rest = [row for row in report.rows[MOST_DRAWN:] if row.rank == slow]
    return (*report.rows[: MOST_DRAWN - len(rest)], *rest)


def _pieces(row: RankRow, waits: dict[tuple[str, int], float]) -> Iterator[tuple[str, float, bool]]:
    """Yield the name and nanoseconds of each piece of a rank's bar, and whether the rank waited for others in it."""
    for part in row.parts[:_MOST_PARTS]:
        waited = waits.get((part.name, row.rank), 0.0) if part.is_collective else 0.0
        if part.ns - waited > 0:
            yield part.name, part.ns - waited, False
        if waited > 0:
            yield part.name, waited, True
