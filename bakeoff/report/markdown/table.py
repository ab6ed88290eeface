"""Tables of records in markdown."""

from collections.abc import Sequence

from bakeoff.record.ceilings import KnownCeilings
from bakeoff.record.store import Stored, StoredComparison, StoredPipeline
from bakeoff.report.columns import COLUMNS, Context, cells, columns, contexts, shown
from bakeoff.report.format import minute
from bakeoff.report.groups import name_of
from bakeoff.report.links import Link
from bakeoff.report.markdown.escape import escape


def table(
    rows: Sequence[Stored],
    keys: Sequence[str],
    link: Link,
    comparisons: Sequence[StoredComparison] = (),
    ceilings: KnownCeilings | None = None,
    reason_in: str = "",
    best_of: Sequence[Stored] | None = None,
) -> list[str]:
    """Lines of a table of one group's rows with the columns `keys`; the record's name links to its file.

    Rows that must not be compared with the others follow in a table of their own, without ratios. The winner of a final
    among `comparisons` is bold; `best_of` is as in `contexts`. Floors are computed from `ceilings`, or from the best
    known among the rows. Where a row has no figures, its reason is in the column `reason_in`.
    """
    held = list(zip(rows, contexts(rows, comparisons, ceilings, best_of), strict=True))
    keys = shown(keys, [row for _, row in held])
    chosen = columns(keys)
    lines = head([(column.heading, column.numeric) for column in chosen])
    for entry, (record, context) in held:
        if context.stale is not None:
            continue
        texts = dict(zip(keys, map(escape, cells(keys, record, context)), strict=True))
        if "record" in texts:
            texts["record"] = cited(entry, link)
        if reason_in and not texts[reason_in]:
            texts[reason_in] = escape(record.measurement.reason)
        if context.winner and "name" in texts:
            texts["name"] = f"**{texts['name']}**"
        lines.append(line_of(list(texts.values())))
    stale = [(entry, context) for entry, (_, context) in held if context.stale is not None]
    return [*lines, *(_stale(stale, link) if stale else [])]


def _stale(rows: Sequence[tuple[Stored, Context]], link: Link) -> list[str]:
    """What the rows were, and why they must not be compared with the others."""
    lines = ["", "Stale: not comparable with the rows above.", ""]
    lines += head(
        [("variant", False), ("median ms", True), ("measured (UTC)", False), ("why", False), ("record", False)]
    )
    for entry, context in rows:
        record = entry.record
        median = COLUMNS["median_ms"].text(record, context) or record.status
        texts = (name_of(record), median, minute(record.created), context.stale or "")
        lines.append(line_of([*map(escape, texts), cited(entry, link)]))
    return lines


def head(headings: Sequence[tuple[str, bool]]) -> list[str]:
    """The heading of a table and the line below it; True for a column of numbers."""
    marks = "|".join(" ---: " if numeric else " --- " for _, numeric in headings)
    return [line_of([heading for heading, _ in headings]), f"|{marks}|"]


def cited(entry: Stored | StoredComparison | StoredPipeline, link: Link) -> str:
    """An entry's hash as a link to its file."""
    return f"[{escape(entry.id.rpartition('_')[2])}]({link(entry)})"


def line_of(cells_of_row: Sequence[str]) -> str:
    return "| " + " | ".join(cells_of_row) + " |"
