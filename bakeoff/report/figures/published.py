"""README's pictures, latency.svg and frame.svg in runs/published/: one component by variant, and one frame by phase."""

from collections.abc import Mapping

from bakeoff.record.store import Records
from bakeoff.report import pipelines
from bakeoff.report.figures.files import page
from bakeoff.report.figures.latency import figure, latency
from bakeoff.report.figures.pipeline import waterfall_figure
from bakeoff.report.groups import title_without_machine
from bakeoff.report.selection import frame, shorts

LATENCY, FRAME = "latency.svg", "frame.svg"


def names(records: Records) -> list[str]:
    """The pictures that these records give."""
    return [LATENCY] * bool(shorts(records)) + [FRAME] * (frame(records) is not None)


def render(records: Records) -> Mapping[str, bytes]:
    """File, relative to the folder of all runs, to SVG. Raises BakeoffError where the library that draws is missing."""
    subject, loop = next(iter(shorts(records)), None), frame(records)
    drawn: dict[str, bytes | None] = {}
    if subject is not None:
        first, table = subject.rows[0].record, subject.table
        panel = figure(latency(table.rows, table.ceilings.best))
        drawn[LATENCY] = page(
            f"{first.variant.component} on {table.machine.name}", [(title_without_machine(first), panel)]
        )
    if loop is not None:
        first_mix = loop.rows[0].record
        heading = f"{first_mix.mix.pipeline} on {loop.machine.name}"
        drawn[FRAME] = page(heading, [(pipelines.title_without_machine(first_mix), waterfall_figure(loop.rows))])
    return {name: data for name, data in drawn.items() if data is not None}
