"""Runs of pipelines in markdown: the newest of each subject for the results, all of them for the history."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from bakeoff.record.frames import figures, phases
from bakeoff.record.store import StoredPipeline
from bakeoff.report import mix_notes
from bakeoff.report.format import minute
from bakeoff.report.links import Link
from bakeoff.report.markdown.escape import escape
from bakeoff.report.markdown.table import cited, head, line_of
from bakeoff.report.mix_cells import cells, cost, legend
from bakeoff.report.pipelines import (
    MixRow,
    PipelineTable,
    StaleMix,
    by_run,
    named,
    pipeline_tables,
    subject_key,
    title_without_machine,
    when,
)

_INTRODUCTION = """\
Whole frames: each mix runs the whole loop with one variant for each component, in one process. Mixes of a run take
turns unit by unit. Figures are of steady units; shares of phases add up to the unit exactly.
"""


def _introduction() -> str:
    return f"## Pipelines\n\n{_INTRODUCTION}\n" + "".join(f"- {escape(line)}\n" for line in legend())


def newest(runs: Sequence[StoredPipeline], link: Link) -> list[str]:
    """The section of the results: the newest record of each mix, by subject. Empty without runs."""
    if not runs:
        return []
    return [_introduction(), *(_table(table, link) for table in pipeline_tables(runs))]


def every_run(runs: Sequence[StoredPipeline], link: Link) -> Iterator[str]:
    """The sections of the history: by subject, by run. None without runs."""
    if runs:
        yield _introduction()
    ordered = sorted(runs, key=lambda entry: (entry.record.mix.pipeline, str(subject_key(entry.record))))
    for _, of_subject in groupby(ordered, key=lambda entry: subject_key(entry.record)):
        found = by_run(sorted(of_subject, key=lambda entry: (entry.record.created, entry.id)))
        yield f"### {escape(title_without_machine(found[-1][0].record))}\n"
        for entries in found:
            notes = sorted({entry.record.note for entry in entries if entry.record.note})
            first = entries[0].record
            versions = ", ".join(f"{name} {version}" for name, version in first.versions.items())
            yield "\n".join(
                [
                    f"#### {escape(when(first))}",
                    "",
                    *(f"> {escape(note)}\n" for note in notes),
                    f"Versions: {escape(versions)}.",
                    "",
                    *_rows(named(entries), link),
                ]
            )


def _table(table: PipelineTable, link: Link) -> str:
    lines = [f"### {escape(title_without_machine(table.rows[0].record))}", "", *_rows(table.rows, link)]
    return "\n".join([*lines, *(_stale(table.stale, link) if table.stale else [])])


def _rows(rows: Sequence[MixRow], link: Link) -> list[str]:
    """The table, what the names stand for, the phases, and the remarks."""
    columns, texts = cells(rows)
    lines = head([*((column.heading, column.numeric) for column in columns), ("record", False)])
    for row, line in zip(rows, texts, strict=True):
        lines.append(line_of([*map(escape, line), cited(row.entry, link)]))
    lines += ["", *(f"- {escape(text)}" for text in mix_notes.mixes(rows)), ""]
    verdicts = mix_notes.verdicts(rows)
    lines += [*(f"- {escape(text)}" for text in verdicts), ""] if verdicts else []
    lines += phases_of(rows)
    for row in rows:
        lines += [f"- {escape(f'{row.name}: {text}')}" for text in mix_notes.remarks(row)]
    return [*lines, *(f"- {escape(text)}" for text in mix_notes.selftests(rows)), ""]


def phases_of(rows: Sequence[MixRow]) -> list[str]:
    """A row a phase; a mix has its milliseconds a unit and its shares, which add up to 100.0 %."""
    found = {row.name: {line.name: line for line in phases(row.record)} for row in rows}
    found = {name: lines for name, lines in found.items() if lines}
    names = list(dict.fromkeys(name for lines in found.values() for name in lines))
    if not names:
        return []
    headings = [("phase", False), ("calls a unit", True)]
    headings += [(f"{escape(name)}: {unit}", True) for name in found for unit in ("ms a unit", "share")]
    made = head(headings)
    for name in names:
        held = [lines.get(name) for lines in found.values()]
        calls = next((str(line.calls) for line in held if line is not None and line.calls is not None), "")
        texts = [name, calls]
        for line in held:
            texts += ["", ""] if line is None else [f"{line.ms:.3f}", line.share]
        made.append(line_of([escape(text) for text in texts]))
    return [*made, ""]


def _stale(rows: Sequence[StaleMix], link: Link) -> list[str]:
    """What the mixes were, and why they must not be compared with the others."""
    lines = ["Stale: not comparable with the rows above.", ""]
    lines += head([("mix", False), ("ms a frame", True), ("measured (UTC)", False), ("why", False), ("record", False)])
    for stale in rows:
        record = stale.row.record
        found = figures(record)
        texts = (str(record.mix), cost(found) if found else record.status, minute(record.created), stale.reason)
        lines.append(line_of([*map(escape, texts), cited(stale.row.entry, link)]))
    return [*lines, ""]
