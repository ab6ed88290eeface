"""RESULTS.md: the tables of one machine's newest records, or of all that is published."""

from bakeoff.machine.identity import Machine
from bakeoff.record.store import Records
from bakeoff.report.comparable import tables
from bakeoff.report.document import Document, Section, Text
from bakeoff.report.groups import newest
from bakeoff.report.links import Cited, cited_by, folders_of, links_from
from bakeoff.report.pages import batch_curve, pipelines, sweep
from bakeoff.report.selection import frame

NAME = "RESULTS.md"
_KEYS = tuple(key for key in sweep.KEYS if key not in ("min_ms", "error", "graph_breaks"))
"""Of the columns those that a page without a bar to scroll by has room for."""
_INTRODUCTION = (
    "Generated from the records by `make history` (published ones by `make publish`); do not edit. Each row is the "
    "newest record of a variant. Rows of one table were measured one after another, so their ratios are an indication; "
    "what is faster was decided by a final where the text above a table says so. `~` means no difference shown."
)


def of_machine(records: Records, machine: Machine) -> Document:
    """The page of one machine, for its folder."""
    own = records.of_machines([machine.id])
    return _page(f"Results of {machine.name} ({machine.id[:6]})", own, folders_of(records)[machine.id])


def of_published(records: Records) -> Document:
    """The page beside the folders of machines, for what `selection.chosen` returns; it cites all that README shows."""
    page = _page("Results", records, "")
    return Document(page.title, (*page.blocks, *_picture(records, cited_by(links_from("")))))


def _page(title: str, records: Records, folder: str) -> Document:
    cited, rows = cited_by(links_from(folder)), newest(records.current)
    found = tables(rows, records.ceilings, records.current)
    parts: list[Section | Text] = [
        *sweep.sections(found, records.current, records.comparisons, cited, _KEYS),
        *batch_curve.sections(rows, cited),
        *pipelines.sections(records.pipelines, cited),
    ]
    asked = sweep.undecided(found, records.comparisons)
    return Document(title, (Text(_INTRODUCTION), *asked, *(parts or [Text("No records yet.")])))


def _picture(records: Records, cited: Cited) -> tuple[Text, ...]:
    """The profiles that README's picture of a unit is of."""
    loop = frame(records)
    if loop is None:
        return ()
    links = tuple(cited(row.entry) for row in loop.rows)
    names = " and ".join(row.name for row in loop.rows)
    return (Text(f"README's picture of a {loop.rows[0].record.unit} is of {names}.", links=links),)
