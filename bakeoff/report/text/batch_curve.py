"""Batch curves below the tables of `bakeoff table` and of a sweep."""

from collections.abc import Sequence

from bakeoff.record.store import Stored
from bakeoff.report.document import Document
from bakeoff.report.pages.batch_curve import sections
from bakeoff.report.render import terminal


def render(rows: Sequence[Stored]) -> str:
    """A table for each subject that was measured with several batches; "" for none."""
    return terminal.render(Document("", tuple(sections(rows))))
