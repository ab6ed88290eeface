"""The HTML report: all tables of the newest records with figures, batch curves, pipelines and comparisons."""

import os
from collections.abc import Sequence
from pathlib import Path

from bakeoff.machine.files import write_atomically
from bakeoff.models.errors import BakeoffError
from bakeoff.models.words import counted
from bakeoff.record.store import Records, Stored
from bakeoff.report.comparable import tables
from bakeoff.report.document import Document, Section, Text, blocks, listed
from bakeoff.report.format import minute
from bakeoff.report.groups import newest
from bakeoff.report.links import cited_by, links_with
from bakeoff.report.pages import batch_curve, comparison, pipelines, sweep
from bakeoff.report.render import html

_INTRODUCTION = (
    "Milliseconds are of the latency clock: one call, synchronised. Only rows that are ok are ranked. Rows of a sweep "
    "are measured one after another. ★ marks the winner of a final. Click a heading to sort."
)


def document(records: Records, runs: str = "") -> Document:
    """The page; `runs` is the folder of all runs, relative to it."""
    rows, cited = newest(records.current), cited_by(links_with(runs))
    found = tables(rows, records.ceilings, records.current)
    superseded = listed(Text(reason, entry.id, links=(cited(entry),)) for entry, reason in records.superseded)
    unreadable = listed(records.problems)
    return Document(
        "bakeoff: which compiler to deploy",
        blocks(
            Text(_summary(records, rows)),
            Text(_INTRODUCTION, tone="faint"),
            *sweep.undecided(found, records.comparisons),
            *sweep.sections(found, records.current, records.comparisons, cited, full=True),
            *batch_curve.sections(rows, cited),
            *pipelines.sections(records.pipelines, cited, full=True),
            *comparison.sections(records.comparisons, cited),
            Section("Superseded", (superseded,)) if superseded is not None else None,
            Section("Not readable", (unreadable,)) if unreadable is not None else None,
        ),
    )


def write(path: Path, records: Records, runs: Path) -> None:
    """Write the page to `path`, with links relative to it. Raises BakeoffError where `path` is no regular file."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise BakeoffError(f"{path} is not a regular file. Give --html the name of a file.", code="target-exists")
    folder = Path(os.path.relpath(runs.resolve(), path.resolve().parent)).as_posix()
    write_atomically(path, html.render(document(records, "" if folder == "." else folder)).encode())


def _summary(records: Records, rows: Sequence[Stored]) -> str:
    machines = "; ".join(f"{machine.name} ({machine.id[:6]})" for machine in records.machines())
    if rows:
        count, of = counted(len(rows), "variant"), counted(len(records.current), "record")
        said, times = f"The newest record of each of {count}, out of {of}", [entry.record.created for entry in rows]
    elif records.pipelines:
        said = counted(len(records.pipelines), "record of a pipeline", "records of pipelines")
        times = [entry.record.created for entry in records.pipelines]
    else:
        return "No records yet."
    return f"{said}, measured on {machines}; the last was made at {minute(max(times))} UTC."
