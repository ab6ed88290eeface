"""README's pictures, latency.svg and frame.svg in runs/published/: one component by variant, and one frame by phase."""

from collections.abc import Mapping

from bakeoff.record.store import Records
from bakeoff.report.selection import frame, shorts
from bakeoff.report.svg import latency, pipelines
from bakeoff.report.svg.canvas import settings

LATENCY, FRAME = "latency.svg", "frame.svg"


def names(records: Records) -> list[str]:
    """The pictures that these records give."""
    return [LATENCY] * bool(shorts(records)) + [FRAME] * (frame(records) is not None)


def render(records: Records) -> Mapping[str, bytes]:
    """File, relative to the folder of all runs, to SVG. Raises BakeoffError where matplotlib is missing."""
    subject, loop = next(iter(shorts(records)), None), frame(records)
    drawn: dict[str, bytes | None] = {}
    with settings():
        if subject is not None:
            variant = subject.rows[0].record.variant
            heading = f"{variant.component} on {subject.table.machine.name}"
            drawn[LATENCY] = latency.draw(heading, [subject.table])
        if loop is not None:
            heading = f"{loop.rows[0].record.mix.pipeline} on {loop.machine.name}"
            drawn[FRAME] = pipelines.draw_waterfall(heading, [loop])
    return {name: data for name, data in drawn.items() if data is not None}
