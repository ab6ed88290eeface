"""`bakeoff table`: a table for each group, remarks about its rows, and the recommendation as the last line."""

from collections.abc import Sequence

from tabulate import tabulate

from bakeoff.machine.terminal import one_line
from bakeoff.record.floor import is_above
from bakeoff.record.schema import Record
from bakeoff.record.store import Stored, StoredCeilings, StoredComparison
from bakeoff.report.columns import COLUMNS, Context, cells, columns, contexts, data, legend, shown
from bakeoff.report.comparable import StaleRow, Table, tables
from bakeoff.report.document import Document
from bakeoff.report.format import minute
from bakeoff.report.groups import name_of
from bakeoff.report.notes import Note, ceilings_text, findings, overlapped_text, reason_code, selftest_text
from bakeoff.report.recommendation import how_to_decide, recommendation
from bakeoff.report.render import terminal
from bakeoff.report.sizes import as_data, by_size
from bakeoff.report.spread import spread_lines

COLUMNS_SHOWN = (
    "name", "status", "median_ms", "copy_ms", "p99_ms", "min_ms", "floor", "of_floor", "calls_per_s", "items_per_s",
    "video_fps", "vs_eager", "vs_eager_fp32", "peak_mib", "sqnr_db", "lossless", "graph_breaks", "build", "limits",
)  # fmt: skip
"""docs/method.md explains each."""
_EXPLAINED = ("copy_ms", "items_per_s", "vs_eager", "floor", "of_floor", "lossless", "limits")
_WINNER = "*: faster in a final between the two best rows"
_JSON = (
    "record", "variant", "quantisation", "status", "reason", "stale", "latency", "copy_ms", "video_fps", "floor",
    "of_floor", "vs_eager", "vs_eager_fp32", "peak_mib", "sqnr_db", "lossless", "build", "limits",
)  # fmt: skip


def as_rows(
    rows: Sequence[Stored], measured: Sequence[StoredCeilings] = (), every: Sequence[Stored] = ()
) -> list[dict[str, object]]:
    """The rows of all tables under stable keys, with figures as numbers; stale rows have the reason and no ratios."""
    found = []
    for table in tables(rows, measured, every):
        both = (*table.rows, *(row.entry for row in table.stale))
        for record, context in contexts(both, ceilings=table.ceilings):
            sizes = as_data(record)
            found.append({**data(_JSON, record, context), **({"sizes": sizes} if sizes else {})})
    return found


def render(
    rows: Sequence[Stored],
    comparisons: Sequence[StoredComparison] = (),
    every: Sequence[Stored] = (),
    measured: Sequence[StoredCeilings] = (),
    name: str = "",
    runs: str = "",
) -> str:
    """One table for each group, with the reasons of rows that are not ok, findings, and the recommendation.

    `every` holds the other builds and processes of rows that were measured in several, and `measured` the sets of
    ceilings. Rows that must not be compared with the others follow apart, without ratios. `name` and `runs`, a
    `--runs FOLDER`, are for the commands that decide.
    """
    found = tables(rows, measured, every)
    sections = [_section(table, comparisons, every, runs) for table in found]
    return "\n\n".join(filter(None, [*sections, how_to_decide(found, comparisons, f"{name} {runs}".strip())]))


def _section(table: Table, comparisons: Sequence[StoredComparison], every: Sequence[Stored], runs: str) -> str:
    rows = table.rows
    held = list(contexts(rows, comparisons, table.ceilings))
    notes = [_note(note) for note in findings(rows, reasons=False)]
    notes += dict.fromkeys(selftest_text(entry.record) for entry in rows)
    explained = _explained(held)
    differ = ceilings_text(table.ceilings)
    notes += [differ] if differ is not None and "floor" in explained else []
    lines = [*legend(explained), *filter(None, [overlapped_text(rows)])]
    lines += [_WINNER] if any(context.winner for _, context in held) else []
    lines += [_reason(entry.record) for entry in rows if entry.record.measurement.reason]
    lines += spread_lines(rows, every)
    lines += [f"note: {text}" for text in notes]
    parts = [one_line(table.title), "", _table(held), "", *map(one_line, lines), *_sizes(rows), *_stale(table.stale)]
    return "\n".join([*parts, one_line(recommendation(rows, comparisons, table.drift, runs))])


def _reason(record: Record) -> str:
    """Why a row has its status, with the code of the finding that is the reason, if one is."""
    code = reason_code(record)
    text = f"{name_of(record)}: {record.status}: {record.measurement.reason}"
    return f"{text} [{code}]" if code else text


def _note(note: Note) -> str:
    """A finding with the rows that have it, unless all do, and the code that docs/method.md explains."""
    return note.text + (f" ({', '.join(note.names)})" if note.names else "") + f" [{note.code}]"


def _sizes(rows: Sequence[Stored]) -> list[str]:
    """The table by size, where rows have several."""
    found = by_size(rows)
    if found is None:
        return []
    return ["", terminal.render(Document("", (found,))), ""]


def _stale(rows: Sequence[StaleRow]) -> list[str]:
    """Rows that must not be compared with the others: what they were, and why."""
    if not rows:
        return []
    found = []
    for row in rows:
        record = row.entry.record
        median = COLUMNS["median_ms"].text(record, Context(row.entry.id, {}))
        texts = (name_of(record), median or record.status, minute(record.created), row.reason)
        found.append([one_line(text) for text in texts])
    headings = ("stale: not comparable with the rows above", "median ms", "measured (UTC)", "why")
    text = tabulate(found, headings, disable_numparse=True, colalign=("left", "right", "left", "left"))
    return ["", text, ""]


def _explained(held: Sequence[tuple[Record, Context]]) -> list[str]:
    """Of the columns that need a line below the table, those with a value in any row; of the mark, where it is."""
    found = [key for key in _EXPLAINED if any(COLUMNS[key].value(*row) is not None for row in held)]
    marked = any(is_above(record, context.ceilings) for record, context in held)
    return [key for key in found if key != "of_floor" or marked]


def _table(held: Sequence[tuple[Record, Context]]) -> str:
    keys = shown(COLUMNS_SHOWN, held)
    chosen = columns(keys)
    rows = []
    for record, context in held:
        name, *others = cells(keys, record, context)
        rows.append([f"* {name}" if context.winner else name, *others])
    return tabulate(
        rows,
        headers=[column.heading for column in chosen],
        disable_numparse=True,
        colalign=["right" if column.numeric else "left" for column in chosen],
    )
