"""A section of the page: one group of comparable records as a table, remarks and figures."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from bakeoff.models.words import counted
from bakeoff.record.floor import is_above
from bakeoff.record.schema import Record
from bakeoff.record.store import Stored, StoredComparison
from bakeoff.report.columns import COLUMNS as ALL
from bakeoff.report.columns import Column, Context, columns, contexts, shown
from bakeoff.report.comparable import StaleRow, Table
from bakeoff.report.document import Table as SizeTable
from bakeoff.report.figures import history, latency, roofline, timeline, tradeoff
from bakeoff.report.figures.style import status_colour
from bakeoff.report.figures.vega import Figure
from bakeoff.report.format import MIB, minute, shorten
from bakeoff.report.groups import name_of
from bakeoff.report.html.embed import as_script_data
from bakeoff.report.links import Link
from bakeoff.report.monitored import sentences
from bakeoff.report.notes import ceilings_text, findings, overlapped_text
from bakeoff.report.pages.record import longest_kernels
from bakeoff.report.recommendation import decision, recommendation
from bakeoff.report.sizes import by_size

COLUMNS: Final = (
    "name", "status", "latency", "copy_ms", "p99_ms", "calls_per_s", "items_per_s", "video_fps", "vs_eager", "floor",
    "of_floor", "peak_mib", "error", "sqnr_db", "lossless", "build", "limits", "record",
)  # fmt: skip
_KERNELS = 5
"""Listed of a row at most."""


@dataclass(frozen=True, slots=True)
class Cell:
    text: str
    key: str = ""
    """What rows are sorted by; empty sorts last."""
    href: str = ""
    colour: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A group of comparable rows, as the template reads it."""

    anchor: str
    subject: str
    title: str
    setting: str
    """The title without the subject."""
    facts: str
    verdict: str
    is_open: bool
    """Whether no final has decided between the two best rows."""
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    sizes: SizeTable | None
    """What engines for a range of sizes do at each; None where no row has several."""
    stale: tuple[tuple[str, str, str, str, str], ...]
    """Rows that must not be compared with the others: variant, median, when it was measured, why, address."""
    problems: tuple[tuple[str, str, str], ...]
    """Variant, status, reason."""
    findings: tuple[tuple[str, str, str], ...]
    """Code, text, the variants that have it when not all do."""
    kernels: tuple[tuple[str, str], ...]
    """Variant and its longest kernels with their shares of a traced call."""
    monitored: tuple[tuple[str, str], ...]
    """Variant and what a monitor saw, a line for each sentence."""
    figures: tuple[Figure, ...]
    data: str
    """The figures as JSON that cannot end a script element."""


def section(
    number: int, table: Table, every: Sequence[Stored], comparisons: Sequence[StoredComparison], link: Link
) -> Section:
    """The section of a table of the newest records; `every` holds all of its group, those of earlier sweeps too."""
    first, held = table.rows[0].record, list(contexts(table.rows, comparisons, table.ceilings))
    chosen = columns(shown(COLUMNS, held))
    drawn = figures(table, every)
    return Section(
        anchor=f"group-{number}",
        subject=first.variant.subject,
        title=table.title,
        setting=table.title.removeprefix(first.variant.subject).strip(" ,"),
        facts=_facts(first),
        verdict=recommendation(table.rows, comparisons, table.drift),
        is_open=decision(table.rows, comparisons).lacks_final,
        columns=chosen,
        rows=tuple(
            tuple(_cell(column, record, context, link(entry)) for column in chosen)
            for entry, (record, context) in zip(table.rows, held, strict=True)
        ),
        sizes=by_size(table.rows),
        stale=tuple(_stale(row, link(row.entry)) for row in table.stale),
        problems=tuple(
            (name_of(entry.record), entry.record.status, entry.record.measurement.reason)
            for entry in table.rows
            if entry.record.status != "ok"
        ),
        findings=(
            *((note.code, note.text, ", ".join(note.names)) for note in findings(table.rows)),
            *(("ceilings", text, "") for text in [ceilings_text(table.ceilings)] if text is not None),
            *_too_low(held),
            *(("build", text, "") for text in [overlapped_text(table.rows)] if text is not None),
        ),
        kernels=tuple((name_of(entry.record), text) for entry in table.rows if (text := _kernels(entry.record))),
        monitored=tuple((name_of(entry.record), text) for entry in table.rows for text in sentences(entry.record)),
        figures=tuple(drawn),
        data=as_script_data({figure.name: figure.spec for figure in drawn}),
    )


def figures(table: Table, every: Sequence[Stored]) -> list[Figure]:
    """The figures of a table that have something to show; the history is of `every` record of its group."""
    ceilings = table.ceilings.best
    timed = [row for row in latency.latency(table.rows, ceilings) if row.figures is not None]
    made = (
        latency.figure(timed),
        tradeoff.figure(tradeoff.tradeoff(table.rows)),
        timeline.figure(timeline.timeline(table.rows)),
        roofline.figure(roofline.roofline(table.rows, ceilings)),
        history.figure(history.history(every)),
    )
    return [figure for figure in made if figure is not None]


def _too_low(held: Sequence[tuple[Record, Context]]) -> Iterator[tuple[str, str, str]]:
    """What the mark in `of floor` means, with the rows that have it; nothing where none has."""
    names = [name_of(record) for record, context in held if is_above(record, context.ceilings)]
    if names:
        yield "ceilings", ALL["of_floor"].explanation, ", ".join(names)


def _stale(row: StaleRow, address: str) -> tuple[str, str, str, str, str]:
    record = row.entry.record
    median = ALL["median_ms"].text(record, Context(row.entry.id, {}))
    return name_of(record), f"{median} ms" if median else record.status, minute(record.created), row.reason, address


def _facts(record: Record) -> str:
    traffic = f" and {record.minimum_bytes / MIB:,.0f} MiB of traffic" if record.minimum_bytes else ""
    parameters = counted(record.parameters, "parameter", form=",")
    return f"{parameters}; {record.flops / 1e9:,.2f} GFLOP{traffic} a call at least."


def _kernels(record: Record) -> str:
    return ", ".join(f"{shorten(kernel.name, 60)} {part}" for kernel, part in longest_kernels(record, _KERNELS))


def _cell(column: Column, record: Record, context: Context, address: str) -> Cell:
    value = column.value(record, context)
    if value is None:
        return Cell("")
    winner = "★ " if context.winner and column.key == "name" else ""
    return Cell(
        text=winner + column.format(value),
        key=str(column.order(value)).replace("inf", "Infinity") if column.numeric else str(column.order(value)),
        href=address if column.key == "record" else "",
        colour=status_colour(record.status) if column.key == "status" else "",
    )
