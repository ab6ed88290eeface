"""Batch curves as sections of a page in markdown."""

from collections.abc import Iterator, Sequence

from bakeoff.record.store import Stored
from bakeoff.report import document
from bakeoff.report.links import Link
from bakeoff.report.pages import batch_curve
from bakeoff.report.render import markdown


def sections(rows: Sequence[Stored], link: Link) -> Iterator[str]:
    """A section for each subject that was measured with several batches; `rows` are of one machine."""
    made = batch_curve.sections(rows, lambda entry: document.Link(entry.id.rpartition("_")[2], link(entry)))
    return (markdown.render(document.Document("", (section,))) for section in made)
