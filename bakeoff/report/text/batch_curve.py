"""Batch curves below the tables of `bakeoff table` and of a sweep."""

from collections.abc import Sequence

from tabulate import tabulate

from bakeoff.machine.terminal import one_line
from bakeoff.record.store import Stored
from bakeoff.report.figures.batch_curve import EXPLANATION, BatchCurve, batch_curves, cells, headings, remarks


def render(rows: Sequence[Stored]) -> str:
    """A table for each subject that was measured with several batches; "" for none."""
    return "\n\n".join(map(_section, batch_curves(rows)))


def _section(curve: BatchCurve) -> str:
    columns = headings(curve)
    body = [[one_line(text) for text in texts] for _, texts in cells(curve)]
    table = tabulate(
        body,
        headers=[heading for heading, _ in columns],
        disable_numparse=True,
        colalign=["right" if numeric else "left" for _, numeric in columns],
    )
    lines = [*map(one_line, remarks(curve)), EXPLANATION]
    return "\n".join([one_line(f"batch curve: {curve.title}"), "", table, "", *lines])
