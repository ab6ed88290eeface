"""RESULTS.md of a machine or of all that is published, and the HTML report: the tables of the newest records."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from bakeoff.machine.files import write_atomically
from bakeoff.machine.identity import Machine
from bakeoff.models.errors import BakeoffError
from bakeoff.models.words import counted
from bakeoff.record.store import Records, Stored
from bakeoff.report.document import Command, Document, Section, Text, blocks, listed
from bakeoff.report.format import minute
from bakeoff.report.groups import newest, tables
from bakeoff.report.links import Cited, cited_by, folders_of, links_from, links_with
from bakeoff.report.pages import batch_curve, budget, deadline, pipelines, rollout, sweep
from bakeoff.report.recommendation import how_to_decide
from bakeoff.report.render import html

NAME = "RESULTS.md"
_KEYS = tuple(key for key in sweep.KEYS if key not in ("min_ms", "error", "graph_breaks"))
"""Keys of the columns for a page that cannot be scrolled sideways."""
_INTRODUCTION = (
    "Generated from the records by `make history` (published ones by `make publish`); do not edit. Each row is the "
    "newest record of a variant. Ratios are of rows of one sweep, measured one after another: an indication. What is "
    "faster was decided by a final where the text above a table says so. `~` means no difference shown."
)
_OF_ALL = (
    "Milliseconds are of the latency clock: one call, synchronised. Only rows that are ok are ranked. Rows of a sweep "
    "are measured one after another. ★ marks the winner of a final. Click a heading to sort."
)


def of_machine(records: Records, machine: Machine) -> Document:
    """Return the page of one machine's results, with links relative to the machine's folder."""
    own = records.of_machines([machine.key])
    return _page(f"Results of {machine.name} ({machine.tag})", own, folders_of(records)[machine.key])


def of_published(records: Records) -> Document:
    """Return the page of all published records, as `selection.chosen` returns them; README links to its lines."""
    return _page("Results", records, "", anchored=True)


def _page(title: str, records: Records, folder: str, anchored: bool = False) -> Document:
    """Return a page of tables, batch curves and pipelines, with links relative to `folder`."""
    parts = tuple(_tables(records, cited_by(links_from(folder), anchored)))
    return Document(title, (Text(_INTRODUCTION), *(parts or [Text("No records yet.")])))


def _tables(records: Records, cited: Cited, full: bool = False) -> Iterator[Section | Text | Command]:
    """Yield the command that decides all tables, and the sections of variants, of batch curves and of pipelines."""
    rows = newest(records.current)
    found = tables(rows, records.ceilings, records.current)
    yield from how_to_decide(found, records.comparisons)
    yield from sweep.sections(found, records.current, records.comparisons, cited, _KEYS, full)
    yield from batch_curve.sections(rows, cited)
    yield from of_pipelines(records, cited, full)


def of_pipelines(records: Records, cited: Cited | None = None, full: bool = False) -> Iterator[Section]:
    """Yield the sections on runs of pipelines: tables of mixes, budgets, rollouts, sustained runs."""
    yield from pipelines.sections(records.pipelines, cited, full)
    yield from budget.sections(records.pipelines, cited)
    yield from rollout.sections(records.rollouts, cited, full)
    yield from deadline.sections(records.sustained, cited, full)


def of_everything(records: Records, runs: str = "") -> Document:
    """Return the HTML report of all records; `runs` is the path of the folder of all runs, relative to the page."""
    cited = cited_by(links_with(runs))
    superseded = listed(Text(reason, entry.id, links=(cited(entry),)) for entry, reason in records.superseded)
    unreadable = listed(records.problems)
    return Document(
        "bakeoff: which compiler to deploy",
        blocks(
            Text(_summary(records, newest(records.current))),
            Text(_OF_ALL, tone="faint"),
            *_tables(records, cited, full=True),
            Section("Superseded", (superseded,)) if superseded is not None else None,
            Section("Not readable", (unreadable,)) if unreadable is not None else None,
        ),
    )


def write_html(path: Path, records: Records, runs: Path) -> None:
    """Write the HTML report to `path`, with links relative to it. Raises BakeoffError if `path` is no regular file."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise BakeoffError(f"{path} is not a regular file. Give --html the name of a file.", code="target-exists")
    folder = Path(os.path.relpath(runs.resolve(), path.resolve().parent)).as_posix()
    write_atomically(path, html.render(of_everything(records, "" if folder == "." else folder)).encode())


def _summary(records: Records, rows: Sequence[Stored]) -> str:
    machines = "; ".join(f"{machine.name} ({machine.tag})" for machine in records.machines())
    if rows:
        count, of = counted(len(rows), "variant"), counted(len(records.current), "record")
        said, times = f"The newest record of each of {count}, out of {of}", [entry.record.created for entry in rows]
    elif records.ran:
        said = counted(len(records.ran), "record of a pipeline", "records of pipelines")
        times = [entry.record.created for entry in records.ran]
    else:
        return "No records yet."
    return f"{said}, measured on {machines}; the last was made at {minute(max(times))} UTC."
