"""The tables of sweeps: what to deploy, the rows fastest first, those that are not ranked below, and notes.

`bakeoff table`, the end of a sweep, RESULTS.md, the history and the HTML report are made of these parts.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Final

from bakeoff.models.errors import BakeoffError
from bakeoff.models.grouping import grouped
from bakeoff.models.types import DTYPES
from bakeoff.models.words import counted
from bakeoff.record.comparable import ON_ANOTHER_HOST
from bakeoff.record.finalists import call_ms
from bakeoff.record.floor import is_above
from bakeoff.record.schema import NEVER_RUN, Record, SizeResult, Status
from bakeoff.record.store import Stored, StoredCeilings, StoredComparison
from bakeoff.report import built, document
from bakeoff.report.columns import COLUMNS, Column, TableRow, columns, data, table_rows
from bakeoff.report.document import (
    Cell,
    Command,
    Details,
    Figures,
    Heading,
    Listed,
    Section,
    Text,
    Tone,
    blocks,
    listed,
    once_each,
)
from bakeoff.report.figures import roofline, variants
from bakeoff.report.figures.vega import Figure
from bakeoff.report.format import duration, minute, shorten, size_text, with_interval
from bakeoff.report.groups import Table, name_of, own_baselines, tables
from bakeoff.report.links import Cited
from bakeoff.report.notes import (
    findings,
    overlapped_text,
    policies,
    reason_code,
    selftest_text,
    sentences,
    spread_lines,
)
from bakeoff.report.pages.record import longest_kernels
from bakeoff.report.pipelines import MixRow
from bakeoff.report.recommendation import deployment, how_to_decide
from bakeoff.report.selection import final_of

KEYS: Final = (
    "name", "status", "latency", "p99_ms", "min_ms", "calls_per_s", "items_per_s", "video_fps", "vs_eager",
    "vs_eager_fp32", "peak_mib", "sqnr_db", "error", "lossless", "copy_ms", "floor", "of_floor", "graph_breaks",
    "build", "limits", "record",
)  # fmt: skip
"""The columns of a table, from left to right; docs/method.md explains each."""
_JSON: Final = (
    "record", "variant", "quantisation", "status", "reason", "stale", "latency", "copy_ms", "video_fps", "floor",
    "of_floor", "vs_eager", "vs_eager_fp32", "peak_mib", "sqnr_db", "lossless", "build", "limits",
)  # fmt: skip
_STALE: Final = (
    COLUMNS["name"],
    Column(
        "median_ms",
        "median ms",
        "",
        lambda row: row,
        lambda row: COLUMNS["median_ms"].text(row) or row.record.status,
        lambda row: call_ms(row.record, "latency"),
    ),
    COLUMNS["vs_eager"],
    Column("created", "measured (UTC)", "", lambda row: row.record.created, minute, numeric=False, leaves=1),
    COLUMNS["record"],
)
_KERNELS: Final = 5
"""Largest number of kernels listed of a row."""
_TONES: Final[Mapping[Status, Tone]] = {
    "ok": "good", "built": "good", "unstable": "open", "unavailable": "faint", "unsupported": "faint",
}  # fmt: skip
_BY_SIZE: Final = "One engine for all sizes: ms a call [95 %]; *: within the range, but not asked for"


def as_rows(
    rows: Sequence[Stored], measured: Sequence[StoredCeilings] = (), every: Sequence[Stored] = ()
) -> list[dict[str, object]]:
    """Return the rows of all tables under stable keys, figures as numbers; stale rows have the reason and no ratios."""
    found = []
    for table in tables(rows, measured, every):
        both = (*table.rows, *(entry for entry, _ in table.stale), *table.built)
        for row in table_rows(both, ceilings=table.ceilings, every=every):
            more = {"sizes": sizes_as_data(row.record), "built": built.as_data(row.record)}
            found.append({**data(_JSON, row), **{key: value for key, value in more.items() if value}})
    return found


def chosen_keys(asked: Sequence[str]) -> tuple[str, ...]:
    """Return the row's name and the columns `asked`, or all of `KEYS` if empty. Raises BakeoffError for others."""
    for key in asked:
        if key not in KEYS:
            raise BakeoffError(f"no column '{key}'; known: {', '.join(KEYS)}", code="unknown-name")
    return tuple(dict.fromkeys(("name", *asked))) if asked else KEYS


def sections(
    found: Iterable[Table],
    every: Sequence[Stored],
    comparisons: Sequence[StoredComparison],
    cited: Cited | None = None,
    keys: Sequence[str] = KEYS,
    full: bool = False,
) -> list[Section]:
    """Return a section for each table: the verdict, the rows, stale ones, notes; then one for notes on several tables.

    `every` includes the records of earlier sweeps and of other builds and processes. Rows link to their records with
    `cited`. With `full`, there are also figures, kernels and what monitors saw.
    """
    found = list(found)
    notes = [list(_notes(table, every)) for table in found]
    of = grouped(
        (text, table)
        for table, held in zip(found, notes, strict=True)
        for text in dict.fromkeys(note.text for note in held)
    )
    shared = listed(
        Text(text, ", ".join(table.first.variant.subject for table in those) if len(those) < len(found) else "")
        for text, those in of.items()
        if len(those) > 1
    )
    made = []
    for table, held in zip(found, notes, strict=True):
        own = listed(note for note in held if len(of[note.text]) == 1)
        made.append(_section(table, every, comparisons, cited, keys, full, own))
    return [*made, *([Section("Notes on several of these tables", (shared,))] if shared is not None else [])]


def newest_tables(
    rows: Sequence[Stored],
    every: Sequence[Stored] = (),
    comparisons: Sequence[StoredComparison] = (),
    measured: Sequence[StoredCeilings] = (),
    keys: Sequence[str] = KEYS,
    name: str = "",
) -> tuple[Section | Text | Command, ...]:
    """Return what a terminal shows of rows: a section for each table, and one command that decides all undecided ones.

    `name` is the name on the command line, which that command repeats; the others are as in `tables` and `sections`.
    """
    found = tables(rows, measured, every)
    return *sections(found, every, comparisons, keys=keys), *how_to_decide(found, comparisons, name)


def _section(
    table: Table,
    every: Sequence[Stored],
    comparisons: Sequence[StoredComparison],
    cited: Cited | None,
    keys: Sequence[str],
    full: bool,
    notes: Listed | None,
) -> Section:
    rows = table.rows
    held = ordered(table_rows(rows, comparisons, table.ceilings, every=every))
    final = final_of(table, comparisons)
    evidence = [cited(final)] if cited is not None and final is not None else []
    return Section(
        table.title,
        blocks(
            *deployment((*rows, *table.built), comparisons, evidence),
            rows_table(held, keys, cited),
            *cannot_run(rows),
            by_size(rows),
            ratios_of(held),
            built.built_table(table.built, cited),
            Text(_facts(rows or table.built), tone="faint"),
            notes,
            *stale_rows(table.stale, cited, every),
            *(_more(table) if full and rows else ()),
        ),
    )


def ordered(rows: Iterable[TableRow]) -> list[TableRow]:
    """Return the rows in order: ok ones, the best first, then others with figures, then those without."""
    return sorted(rows, key=lambda row: (row.record.status != "ok", call_ms(row.record, row.objective.goal)))


def rows_table(
    held: Sequence[TableRow], keys: Sequence[str] = KEYS, cited: Cited | None = None
) -> document.Table | None:
    """Return a table of the rows that could run here and are not stale, in this order; None if there are none.

    The winner of a final is strong, and the cell `record` links to the record with `cited`.
    """
    p99 = any(row.record.latency is not None and row.record.latency.p99_ms for row in held)
    shown = [column for column in columns(keys) if p99 or column.key != "p99_ms"]
    if keys is not KEYS:
        shown = [replace(column, leaves=0) for column in shown]
    able = (row for row in held if row.record.status not in (*NEVER_RUN, "built") and row.stale is None)
    return table_of(shown, able, cited)


def table_of(
    shown: Sequence[Column], rows: Iterable[TableRow | MixRow], cited: Cited | None = None, title: str = ""
) -> document.Table | None:
    """Return a table with these columns; None without rows."""
    return document.table(map(heading, shown), ([cell(column, row, cited) for column in shown] for row in rows), title)


def heading(column: Column) -> Heading:
    return Heading(column.heading, column.explanation, column.numeric, column.leaves)


def cell(column: Column, row: TableRow | MixRow, cited: Cited | None) -> Cell:
    """Return a row's cell: a status has its tone, the winner's name is strong, a record has a link with `cited`."""
    if column.key == "record" and cited is not None:
        return Cell("", row.entry.id, cited(row.entry))
    value = column.value(row)
    if value is None:
        few = column.key == "p99_ms" and isinstance(row, TableRow) and row.record.latency is not None
        return Cell("-" if few else "")
    strong = column.key == "name" and isinstance(row, TableRow) and row.winner
    tone = tone_of(row.record.status) if column.key == "status" else ""
    return Cell(column.text(row), column.order(value), tone=tone, strong=strong)


def tone_of(status: Status) -> Tone:
    """Return the tone of a status, which is shown as a colour."""
    return _TONES.get(status, "bad")


def ratios_of(held: Iterable[TableRow]) -> Text | None:
    """Return which sweeps the ratios of a table's rows are of; None without ratios."""
    names = grouped(
        (row.record.sweep, name_of(row.record))
        for row in held
        if any(COLUMNS[key].text(row) for key in ("vs_eager", "vs_eager_fp32"))
    )
    told = [f"{sweep} ({', '.join(rows)})" if len(names) > 1 else sweep for sweep, rows in names.items()]
    return Text(f"Ratios to eager are of rows of one sweep: {'; '.join(told)}.") if told else None


def never_run(records: Sequence[Record]) -> str:
    """Count the rows that cannot run, as in `3 rows cannot run here (2 unavailable, 1 unsupported)`; "" for none."""
    statuses = Counter(record.status for record in records if record.status in NEVER_RUN)
    counts = ", ".join(f"{count} {status}" for status, count in sorted(statuses.items()))
    return f"{counted(statuses.total(), 'row')} cannot run here ({counts})" if statuses else ""


def cannot_run(rows: Sequence[Stored]) -> tuple[Text | Details, ...]:
    """Return a line on the rows that cannot run on this machine, and each reason once, folded; empty if all can."""
    records = [entry.record for entry in rows if entry.record.status in NEVER_RUN]
    folded = listed(once_each((record.measurement.reason, name_of(record)) for record in records))
    names = ", ".join(dict.fromkeys(map(name_of, records)))
    line = Text(f"{names} (why: bakeoff table --json)", never_run(records), "faint")
    return (line, Details("Why they cannot run here", (folded,))) if folded is not None else ()


def stale_rows(
    rows: Sequence[tuple[Stored, str]], cited: Cited | None = None, every: Sequence[Stored] = ()
) -> tuple[document.Table | Listed | None, ...]:
    """Return a table of rows that must not be compared with the others, with median and time, and each reason once.

    Rows of another host have the ratio to their own eager, of the same sweep among `every`.
    """
    every = (*(entry for entry, _ in rows), *every)
    held = (
        TableRow(entry, own_baselines(entry.record, every) if ON_ANOTHER_HOST in reason else {})
        for entry, reason in rows
    )
    made = table_of(_STALE, held, cited, "Stale: not comparable with the rows above")
    return made, listed(once_each(((reason, name_of(entry.record)) for entry, reason in rows), len(rows)))


def _notes(table: Table, every: Sequence[Stored]) -> Iterator[Text]:
    """Yield notes on floors, the policy, rows that are not ok, differences of builds, findings and the selftest."""
    rows = table.rows
    too_low = [name_of(row.record) for row in rows if is_above(row.record, table.ceilings)]
    if too_low:
        yield Text("of floor is above 100 %: the floor is none, the ceilings are too low there", ", ".join(too_low))
    for text in filter(None, [overlapped_text(rows)]):
        yield Text(text)
    yield from policies(row.record for row in rows)
    yield from reasons(rows)
    yield from map(Text, spread_lines(rows, every))
    yield from findings((*rows, *table.built))
    yield from map(Text, dict.fromkeys(selftest_text(row.record) for row in rows))


def reasons(rows: Iterable[Stored]) -> Iterator[Text]:
    """Yield the reason of each row that could run but is not ok, with its finding's code, labelled with the row."""
    for row in rows:
        if row.record.measurement.reason and row.record.status not in NEVER_RUN:
            code = reason_code(row.record)
            reason = f"{row.record.status}: {row.record.measurement.reason}{f' [{code}]' if code else ''}"
            yield Text(reason, name_of(row.record))


def _facts(rows: Sequence[Stored]) -> str:
    """Return the parameters of a table's subject, and the least work of a call: traffic by dtype, unquantised."""
    records = [entry.record for entry in rows]
    least = {each.variant.dtype: each.minimum_bytes for each in records if each.minimum_bytes and not each.quantisation}
    sizes = ", ".join(f"{size_text(least[dtype])} in {dtype}" for dtype in DTYPES if dtype in least)
    traffic = f", with traffic of {sizes}" if sizes else ""
    parameters, flops = counted(records[0].parameters, "parameter", form=","), records[0].flops
    work = f"{flops / 1e9:,.2f} GFLOP" if flops >= 1e7 else f"{flops / 1e6:,.2f} MFLOP"
    return f"{parameters}; {work} a call at least{traffic}."


def _more(table: Table) -> tuple[Details | Figures, ...]:
    """Return what only an HTML page has: the longest kernels, what monitors saw, and figures."""
    kernels = [Text(_kernels(entry.record), name_of(entry.record)) for entry in table.rows if _kernels(entry.record)]
    monitored = [Text(text, name_of(entry.record)) for entry in table.rows for text in sentences(entry.record)]
    folded = [
        Details(summary, (made,))
        for summary, texts in (("Where a call's time goes", kernels), ("What a monitor saw", monitored))
        if (made := listed(texts)) is not None
    ]
    drawn = figures(table)
    return *folded, *([Figures(tuple(drawn))] if drawn else [])


def _kernels(record: Record) -> str:
    return ", ".join(f"{shorten(kernel.name, 60)} {part}" for kernel, part in longest_kernels(record, _KERNELS))


def figures(table: Table) -> list[Figure]:
    """Return the figures of a table with something to show."""
    made = (
        variants.bars(table.rows, table.ceilings),
        variants.tradeoff(table.rows),
        variants.timeline(table.rows),
        roofline.figure(table.rows, table.ceilings),
    )
    return [figure for figure in made if figure is not None]


def by_size(rows: Sequence[Stored]) -> document.Table | None:
    """Return a table of the rows that were measured at several sizes, by size; None if there are none."""
    records = [entry.record for entry in rows if entry.record.measurement.sizes]
    sizes = {one.name: one for record in records for one in record.measurement.sizes}
    shown = (Heading(f"{name} *" if one.which == "unseen" else name, leaves=1) for name, one in sizes.items())
    return document.table(["by size", *shown], [_size_row(record, tuple(sizes)) for record in records], _BY_SIZE)


def _size_row(record: Record, names: Sequence[str]) -> tuple[str, ...]:
    found = {one.name: _size_cell(record, one) for one in record.measurement.sizes}
    return (name_of(record), *(found.get(name, "") for name in names))


def _size_cell(record: Record, result: SizeResult) -> str:
    figures = record.latency if result.which == "usual" else result.figures
    words = [with_interval(figures)] if figures is not None else []
    if result.status == "recompiled":
        words.append(f"recompiled {result.compilations}x, first call {duration(result.first_call_ns / 1e6)}")
    elif result.status != "ok":
        words.append(result.status)
    return " ".join(words)


def sizes_as_data(record: Record) -> list[dict[str, object]]:
    """Return a record's results by size under stable keys, with figures as numbers."""
    found: list[dict[str, object]] = []
    for one in record.measurement.sizes:
        figures = record.latency if one.which == "usual" else one.figures
        stated = {each.name: getattr(one, each.name) for each in fields(one) if each.name != "samples_ns"}
        stated |= {
            "median_ms": figures and figures.median_ms,
            "interval_ms": figures and [figures.low_ms, figures.high_ms],
            "samples": figures.count if figures else 0,
        }
        found.append({"size": stated.pop("name"), **stated})
    return found
