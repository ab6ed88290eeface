"""`bakeoff table`: a table for each group, remarks about its rows, and the recommendation as the last line."""

from collections.abc import Sequence

from tabulate import tabulate

from bakeoff.record.store import Stored, StoredComparison
from bakeoff.report.columns import COLUMNS, cells, columns, contexts, data, legend
from bakeoff.report.groups import groups
from bakeoff.report.notes import findings, reasons, selftest_text
from bakeoff.report.recommendation import recommendation
from bakeoff.report.spread import spread_lines

_COLUMNS = (
    "name", "status", "median_ms", "p99_ms", "min_ms", "floor", "of_floor", "calls_per_s", "video_fps", "vs_eager",
    "vs_eager_fp32", "peak_mib", "sqnr_db", "graph_breaks", "build",
)  # fmt: skip
_EXPLAINED = ("vs_eager", "floor")
_JSON = (
    "record", "variant", "quantisation", "status", "reason", "latency", "video_fps", "floor", "of_floor", "vs_eager",
    "vs_eager_fp32", "peak_mib", "sqnr_db", "build",
)  # fmt: skip


def as_rows(rows: Sequence[Stored]) -> list[dict[str, object]]:
    """The rows of all tables under stable keys, with figures as numbers."""
    return [data(_JSON, record, context) for group in groups(rows) for record, context in contexts(group.rows)]


def render(rows: Sequence[Stored], comparisons: Sequence[StoredComparison] = (), every: Sequence[Stored] = ()) -> str:
    """One table for each group, with the reasons of rows that are not ok, findings, and the recommendation.

    `every` holds the other builds and processes of rows that were measured in several.
    """
    parts = []
    for group in groups(rows):
        notes = [note.text + (f" ({', '.join(note.names)})" if note.names else "") for note in findings(group.rows)]
        notes += dict.fromkeys(selftest_text(entry.record) for entry in group.rows)
        lines = [group.title, "", _table(group.rows), "", *legend(_explained(group.rows))]
        lines += [f"{name}: {status}: {reason}" for name, status, reason in reasons(group.rows)]
        lines += spread_lines(group.rows, every)
        lines += [f"note: {text}" for text in notes]
        lines.append(recommendation(group.rows, comparisons))
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _explained(rows: Sequence[Stored]) -> list[str]:
    """Of the columns that need a line below the table, those with a value in any row."""
    return [
        key
        for key in _EXPLAINED
        if any(COLUMNS[key].value(record, context) is not None for record, context in contexts(rows))
    ]


def _table(rows: Sequence[Stored]) -> str:
    chosen = columns(_COLUMNS)
    return tabulate(
        [cells(_COLUMNS, record, context) for record, context in contexts(rows)],
        headers=[column.heading for column in chosen],
        disable_numparse=True,
        colalign=["right" if column.numeric else "left" for column in chosen],
    )
