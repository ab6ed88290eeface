"""Batch curves as sections of a page in markdown."""

from collections.abc import Iterator, Sequence

from bakeoff.record.store import Stored
from bakeoff.report.figures.batch_curve import EXPLANATION, BatchCurve, batch_curves, cells, headings, remarks
from bakeoff.report.links import Link
from bakeoff.report.markdown.escape import escape
from bakeoff.report.markdown.table import cited, head, line_of


def sections(rows: Sequence[Stored], link: Link) -> Iterator[str]:
    """A section for each subject that was measured with several batches; `rows` are of one machine."""
    return (_section(curve, link) for curve in batch_curves(rows))


def _section(curve: BatchCurve, link: Link) -> str:
    lines = [line_of([*map(escape, texts), cited(point.entry, link)]) for point, texts in cells(curve)]
    return "\n".join(
        [
            f"## Batch curve: {escape(curve.title)}",
            "",
            *head([*headings(curve), ("record", False)]),
            *lines,
            "",
            *(f"- {escape(text)}" for text in (*remarks(curve), EXPLANATION)),
            "",
        ]
    )
