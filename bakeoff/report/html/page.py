"""One offline HTML page of the newest records: tables that sort, figures that zoom, and links to the records.

A pure function of the records. Everything is inside the file; its content security policy forbids loading anything and
allows only the scripts whose hashes it names.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from bakeoff.machine.files import write_atomically
from bakeoff.models.errors import BakeoffError
from bakeoff.models.words import counted
from bakeoff.record.store import Records, Stored
from bakeoff.report import document
from bakeoff.report.comparable import tables
from bakeoff.report.document import Document, Section
from bakeoff.report.figures.vega import library
from bakeoff.report.format import minute
from bakeoff.report.groups import group_key, groups, newest
from bakeoff.report.html.comparisons import comparison_rows
from bakeoff.report.html.embed import policy, read
from bakeoff.report.html.sections import section
from bakeoff.report.html.template import template
from bakeoff.report.links import cited_by, links_with
from bakeoff.report.pages import batch_curve, pipelines
from bakeoff.report.recommendation import how_to_decide
from bakeoff.report.render.html import _template as made_of_documents


def render(records: Records, runs: str = "") -> str:
    """The page; `runs` is the folder of all runs, relative to the page. Equal records give equal text.

    Raises BakeoffError where jinja2 or the library that draws figures is missing.
    """
    page = template("page.html.j2", "the HTML page")
    drawing: str = library().javascript_bundle()
    script = read("page.js")
    assert "</script" not in drawing.lower() + script.lower()
    rows, link = newest(records.current), links_with(runs)
    found = tables(rows, records.ceilings, records.current)
    curves = tuple(batch_curve.sections(rows, lambda entry: document.Link(entry.id.rpartition("_")[2], link(entry))))
    every = {group_key(group.rows[0].record): group.rows for group in groups(records.current)}
    return page.render(
        policy=policy(drawing, script),
        style=read("page.css"),
        library=drawing,
        script=script,
        summary=_summary(records, rows),
        sections=[
            section(number, table, every[group_key(table.rows[0].record)], records.comparisons, link)
            for number, table in enumerate(found)
        ],
        how_to_decide=how_to_decide(found, records.comparisons),
        curves=curves,
        curve_parts=_fragment(curves, "batches"),
        pipelines=_fragment(tuple(pipelines.sections(records.pipelines, cited_by(link), full=True)), "pipelines"),
        comparisons=comparison_rows(records.comparisons, link),
        superseded=[(entry.id, link(entry), reason) for entry, reason in records.superseded],
        unreadable=records.problems,
    )


def _fragment(made: tuple[Section, ...], anchor: str) -> str:
    """Sections of a document as a part of this page."""
    rest = {"document": Document("", ()), "policy": "", "style": "", "scripts": (), "interactive": True}
    part: str = made_of_documents().make_module(rest).blocks(made, anchor, 2)  # type: ignore[attr-defined]
    return part


def write(path: Path, records: Records, runs: Path) -> None:
    """Write the page to `path`, with links relative to it. Raises BakeoffError where `path` is no regular file."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise BakeoffError(f"{path} is not a regular file. Give --html the name of a file.", code="target-exists")
    folder = Path(os.path.relpath(runs.resolve(), path.resolve().parent)).as_posix()
    write_atomically(path, render(records, "" if folder == "." else folder).encode())


def _summary(records: Records, rows: Sequence[Stored]) -> str:
    machines = "; ".join(f"{machine.name} ({machine.id[:6]})" for machine in records.machines())
    if not rows and records.pipelines:
        newest_run = max(entry.record.created for entry in records.pipelines)
        runs = counted(len(records.pipelines), "record of a pipeline", "records of pipelines")
        return f"{runs}, measured on {machines}; the last was made at {minute(newest_run)} UTC."
    if not rows:
        return "No records yet."
    last = max(entry.record.created for entry in rows)
    return (
        f"The newest record of each of {counted(len(rows), 'variant')}, out of "
        f"{counted(len(records.current), 'record')}, measured on {machines}; the last was made at {minute(last)} UTC."
    )
