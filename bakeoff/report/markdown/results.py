"""runs/<machine>/RESULTS.md: the newest record of every variant of one machine, as tables with recommendations."""

from collections.abc import Sequence

from bakeoff.machine.identity import Machine
from bakeoff.record.store import Records, Stored, StoredComparison
from bakeoff.report import document
from bakeoff.report.columns import legend
from bakeoff.report.comparable import Table, tables
from bakeoff.report.document import Document, blocks, headings_of
from bakeoff.report.groups import newest, title_without_machine
from bakeoff.report.links import Link, cited_by, folders_of, links_from
from bakeoff.report.markdown import batch_curve
from bakeoff.report.markdown.escape import escape
from bakeoff.report.markdown.table import table
from bakeoff.report.notes import ceilings_text, overlapped_text, reasons, selftest_text
from bakeoff.report.pages import pipelines
from bakeoff.report.recommendation import how_to_decide, recommendation
from bakeoff.report.render import markdown
from bakeoff.report.spread import spread_lines

NAME = "RESULTS.md"
_COLUMNS = (
    "name", "status", "latency", "copy_ms", "p99_ms", "calls_per_s", "items_per_s", "video_fps", "floor", "of_floor",
    "vs_eager", "vs_eager_fp32", "peak_mib", "sqnr_db", "lossless", "build", "limits", "record",
)  # fmt: skip
_INTRODUCTION = """\
Generated from the records by `make history` (published ones by `make publish`); do not edit. The newest record of each
variant. Milliseconds are of the latency clock: one call, synchronised.
"""


def render(records: Records, machine: Machine) -> str:
    """The page of one machine, for its folder. Equal records give equal text."""
    own, link = records.of_machines([machine.id]), links_from(folders_of(records)[machine.id])
    parts = [f"# Results of {escape(machine.name)} ({machine.id[:6]})\n\n{_INTRODUCTION}"]
    found = tables(newest(own.current), own.ceilings, own.current)
    parts += [f"{line}.\n" for line in [how_to_decide(found, own.comparisons)] if line]
    parts += [_section(each, own.comparisons, own.current, link) for each in found]
    parts += batch_curve.sections(newest(own.current), link)
    if own.pipelines:
        made = pipelines.sections(own.pipelines, cited_by(link))
        parts.append(markdown.render(Document("Pipelines", blocks(document.legend(headings_of(made)), *made)), 2))
    if not own.current and not own.pipelines:
        parts.append("No records yet.\n")
    parts.append("## Columns\n\n" + "".join(f"- {escape(line)}\n" for line in legend(_COLUMNS)))
    return "\n".join(parts)


def _section(found: Table, comparisons: Sequence[StoredComparison], every: Sequence[Stored], link: Link) -> str:
    """The recommendation, the table, and remarks about its rows."""
    rows = (*found.rows, *(row.entry for row in found.stale))
    remarks = [f"{name}: {status}: {reason}" for name, status, reason in reasons(found.rows)]
    remarks += spread_lines(found.rows, every)
    remarks += dict.fromkeys(selftest_text(entry.record) for entry in found.rows)
    remarks += filter(None, [ceilings_text(found.ceilings), overlapped_text(found.rows)])
    return "\n".join(
        [
            f"## {escape(title_without_machine(rows[0].record))}",
            "",
            escape(recommendation(found.rows, comparisons, found.drift)),
            "",
            *table(rows, _COLUMNS, link, comparisons, found.ceilings),
            "",
            *(f"- {escape(text)}" for text in remarks),
            "",
        ]
    )
