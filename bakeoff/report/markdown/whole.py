"""runs/published/RESULTS.md: the whole tables behind README's results, each row with the record that it comes from."""

import re
from collections.abc import Sequence

from bakeoff.record.schema import Record
from bakeoff.record.store import Records, Stored, StoredComparison
from bakeoff.report import document
from bakeoff.report.columns import COLUMNS, Context, contexts, legend, shown
from bakeoff.report.comparable import Table
from bakeoff.report.document import Document, blocks, headings_of
from bakeoff.report.format import minute
from bakeoff.report.groups import name_of
from bakeoff.report.links import Link, cited_by, links_from
from bakeoff.report.markdown.escape import escape
from bakeoff.report.markdown.table import cited, head, line_of
from bakeoff.report.notes import overlapped_text
from bakeoff.report.pages import pipelines
from bakeoff.report.recommendation import recommendation
from bakeoff.report.render import markdown
from bakeoff.report.selection import final_of, frame, ordered_tables

NAME = "RESULTS.md"
_COLUMNS = (
    "latency", "p99_ms", "copy_ms", "floor", "of_floor", "items_per_s", "video_fps", "vs_eager", "vs_eager_fp32",
    "peak_mib", "sqnr_db", "lossless", "build", "limits",
)  # fmt: skip
_INTRODUCTION = """\
# Results

Written from the records by `make publish`; do not edit. README shows the fastest rows of these tables. Each row is the
newest record of a variant. Rows of one table were measured one after another, so their ratios are an indication; what
is faster was decided by a final where the text below a table says so. `~` means no difference shown.
"""


def render(records: Records) -> str:
    """The page for what `selection.chosen` returns. Equal records give equal text."""
    link = links_from("")
    parts = [_INTRODUCTION]
    parts += [_section(found, records.comparisons, link) for found in ordered_tables(records)]
    if records.pipelines:
        made = pipelines.sections(records.pipelines, cited_by(link))
        parts.append(markdown.render(Document("Whole frames", blocks(*made, document.legend(headings_of(made)))), 2))
    loop = frame(records)
    if loop is not None:
        profiles = [f"{escape(row.name)} {cited(row.entry, link)}" for row in loop.rows]
        parts.append(f"README's picture of a {escape(loop.rows[0].record.unit)} is of {' and '.join(profiles)}.\n")
    parts.append("## Columns\n\n" + "".join(f"- {escape(line)}\n" for line in legend(_COLUMNS)))
    return "\n".join(parts)


def _section(found: Table, comparisons: Sequence[StoredComparison], link: Link) -> str:
    """The rows that are ok, those that are not with the reason, stale ones, and what is decided."""
    held = list(zip(found.rows, contexts(found.rows, comparisons, found.ceilings), strict=True))
    ok = [(entry, record, context) for entry, (record, context) in held if record.status == "ok"]
    lines = [f"## {escape(found.title)}", ""]
    lines += _ranked(ok, link) if ok else []
    others = [(entry, record, context) for entry, (record, context) in held if record.status != "ok"]
    lines += _unranked(others, link) if others else []
    final = final_of(found, comparisons)
    lines += [
        escape(recommendation(found.rows, comparisons, found.drift)) + (f" {cited(final, link)}" if final else ""),
        "",
    ]
    return "\n".join([*lines, *(_stale(found, link) if found.stale else [])])


def _ranked(rows: Sequence[tuple[Stored, Record, Context]], link: Link) -> list[str]:
    keys = shown(_COLUMNS, [(record, context) for _, record, context in rows])
    lines = head([("variant", False), *((COLUMNS[key].heading, COLUMNS[key].numeric) for key in keys)])
    for entry, record, context in rows:
        name = f"**{_breakable(name_of(record))}**" if context.winner else _breakable(name_of(record))
        texts = [escape(COLUMNS[key].text(record, context)) for key in keys]
        lines.append(line_of([f"{name} {cited(entry, link)}", *texts]))
    builds = overlapped_text([entry for entry, _, _ in rows])
    return [*lines, "", *([f"{escape(builds[0].upper() + builds[1:])}.", ""] if builds is not None else [])]


def _unranked(rows: Sequence[tuple[Stored, Record, Context]], link: Link) -> list[str]:
    lines = ["Not ranked:", "", *head([("variant", False), ("status", False), ("median ms", True), ("why", False)])]
    for entry, record, context in rows:
        texts = (record.status, COLUMNS["median_ms"].text(record, context), record.measurement.reason)
        lines.append(line_of([f"{_breakable(name_of(record))} {cited(entry, link)}", *map(escape, texts)]))
    return [*lines, ""]


def _stale(found: Table, link: Link) -> list[str]:
    lines = ["Stale: not comparable with the rows above.", ""]
    lines += head([("variant", False), ("median ms", True), ("measured (UTC)", False), ("why", False)])
    stale = [row.entry for row in found.stale]
    reasons = {row.entry.id: row.reason for row in found.stale}
    for entry, (record, context) in zip(stale, contexts(stale, (), found.ceilings), strict=True):
        median = COLUMNS["median_ms"].text(record, context) or record.status
        texts = (median, minute(record.created), reasons[entry.id])
        lines.append(line_of([f"{_breakable(name_of(record))} {cited(entry, link)}", *map(escape, texts)]))
    return [*lines, ""]


def _breakable(text: str) -> str:
    """A name that may be broken after a part of it, so that a table is no wider than its page."""
    return re.sub(r"([,+=/\[\]])", r"\1<wbr>", escape(text))
