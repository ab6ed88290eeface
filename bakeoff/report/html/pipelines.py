"""The page's section of pipelines: a table of mixes for each subject, their phases, remarks and figures."""

from collections.abc import Sequence
from dataclasses import dataclass

from bakeoff.record.frames import PhaseRow, figures, phases
from bakeoff.record.store import StoredPipeline
from bakeoff.report import mix_notes
from bakeoff.report.figures.pipeline import lines_figure, units_figure, waterfall_figure
from bakeoff.report.figures.style import status_colour
from bakeoff.report.figures.vega import Figure
from bakeoff.report.format import minute
from bakeoff.report.html.embed import as_script_data
from bakeoff.report.links import Link, profile_page
from bakeoff.report.mix_cells import MixColumn, cells, cost, in_words_of
from bakeoff.report.pipelines import PipelineTable, StaleMix, pipeline_tables
from bakeoff.trace.table import profile_table


@dataclass(frozen=True, slots=True)
class MixLine:
    """A row of the table: the texts of its cells, the colour of its status, and the address of its record."""

    texts: tuple[str, ...]
    colour: str
    href: str


@dataclass(frozen=True, slots=True)
class PipelineSection:
    """The mixes of one subject on one machine, as the template reads it."""

    anchor: str
    title: str
    columns: tuple[MixColumn, ...]
    rows: tuple[MixLine, ...]
    mixes: tuple[str, ...]
    verdicts: tuple[str, ...]
    phases: tuple[tuple[str, str, tuple[PhaseRow, ...]], ...]
    """Mix, unit, and the lines of the account."""
    profiles: tuple[tuple[str, str], ...]
    """Mix and the address of its profile's page."""
    remarks: tuple[tuple[str, tuple[str, ...]], ...]
    """Mix and its remarks."""
    stale: tuple[tuple[str, str, str, str, str], ...]
    """Mix, its cost, when it was measured, why, address."""
    figures: tuple[Figure, ...]
    data: str
    """The figures as JSON that cannot end a script element."""


def pipeline_sections(runs: Sequence[StoredPipeline], link: Link) -> list[PipelineSection]:
    """A section for each subject and machine."""
    return [_section(number, table, link) for number, table in enumerate(pipeline_tables(runs))]


def _section(number: int, table: PipelineTable, link: Link) -> PipelineSection:
    columns, texts = cells(table.rows)
    made = (waterfall_figure(table.rows), units_figure(table.rows), lines_figure(table.rows))
    drawn = [figure for figure in made if figure is not None]
    return PipelineSection(
        anchor=f"pipeline-{number}",
        title=table.title,
        columns=columns,
        rows=tuple(
            MixLine(tuple(line), status_colour(row.record.status), link(row.entry))
            for row, line in zip(table.rows, texts, strict=True)
        ),
        mixes=tuple(mix_notes.mixes(table.rows)),
        verdicts=tuple(mix_notes.verdicts(table.rows)),
        phases=tuple((row.name, row.record.unit, lines) for row in table.rows if (lines := phases(row.record))),
        profiles=tuple(
            (row.name, profile_page(link, row.entry)) for row in table.rows if profile_table(row.record) is not None
        ),
        remarks=(
            *((row.name, tuple(mix_notes.remarks(row))) for row in table.rows),
            *(("all", (text,)) for text in mix_notes.selftests(table.rows)),
        ),
        stale=tuple(_stale(stale, link) for stale in table.stale),
        figures=tuple(drawn),
        data=as_script_data({figure.name: figure.spec for figure in drawn}),
    )


def _stale(stale: StaleMix, link: Link) -> tuple[str, str, str, str, str]:
    record = stale.row.record
    found = figures(record)
    text = in_words_of(record, f"{cost(found)} ms a frame") if found is not None else record.status
    return str(record.mix), text, minute(record.created), stale.reason, link(stale.row.entry)
