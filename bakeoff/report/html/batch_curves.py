"""The page's section of batch curves: a table and a figure for each subject that was measured with several batches."""

from collections.abc import Sequence
from dataclasses import dataclass

from bakeoff.record.store import Stored
from bakeoff.report.figures.batch_curve import BatchCurve, batch_curves, cells, figure, headings, remarks
from bakeoff.report.figures.style import status_colour
from bakeoff.report.figures.vega import Figure
from bakeoff.report.html.embed import as_script_data
from bakeoff.report.links import Link


@dataclass(frozen=True, slots=True)
class CurveLine:
    """A row of the table: the texts of its cells, the colour of its status, and the address of its record."""

    texts: tuple[str, ...]
    colour: str
    href: str


@dataclass(frozen=True, slots=True)
class CurveSection:
    """A batch curve, as the template reads it."""

    anchor: str
    title: str
    columns: tuple[tuple[str, bool], ...]
    """Heading, and whether the column is of numbers."""
    rows: tuple[CurveLine, ...]
    remarks: tuple[str, ...]
    figures: tuple[Figure, ...]
    data: str
    """The figure as JSON that cannot end a script element."""


def curve_sections(rows: Sequence[Stored], link: Link) -> list[CurveSection]:
    return [_section(number, curve, link) for number, curve in enumerate(batch_curves(rows))]


def _section(number: int, curve: BatchCurve, link: Link) -> CurveSection:
    return CurveSection(
        anchor=f"batches-{number}",
        title=curve.title,
        columns=headings(curve),
        rows=tuple(
            CurveLine(tuple(texts), status_colour(point.record.status), link(point.entry))
            for point, texts in cells(curve)
        ),
        remarks=tuple(remarks(curve)),
        figures=(drawn := figure(curve),),
        data=as_script_data({drawn.name: drawn.spec}),
    )
