"""One offline HTML page of the newest records: tables that sort, figures that zoom, and links to the records.

A pure function of the records. Everything is inside the file; its content security policy forbids loading anything and
allows only the scripts whose hashes it names.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from bakeoff.machine.files import write_atomically
from bakeoff.models.errors import BakeoffError
from bakeoff.record.store import Records, Stored
from bakeoff.report.columns import columns
from bakeoff.report.format import INSTALL, minute, readable
from bakeoff.report.groups import group_key, groups, newest
from bakeoff.report.html.comparisons import comparison_rows
from bakeoff.report.html.embed import policy, read
from bakeoff.report.html.sections import COLUMNS, link, section


def render(records: Records, folder: str = "records") -> str:
    """The page; `folder` is the record files' folder relative to the page. Equal records give equal text.

    Raises BakeoffError where jinja2 or plotly is missing.
    """
    try:
        import jinja2
        from plotly.offline import get_plotlyjs
    except ModuleNotFoundError as error:
        raise BakeoffError(
            f"the HTML page needs {error.name}, which is not installed. {INSTALL}", code="missing-library"
        ) from error
    library = get_plotlyjs()
    script = read("page.js")
    assert "</script" not in library.lower() + script.lower()
    rows = newest(records.current)
    every = {group_key(group.rows[0].record): group.rows for group in groups(records.current)}
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: readable(value) if type(value) is str else value,  # leaves Markup, a subclass, alone
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.from_string(read("page.html.j2")).render(
        policy=policy(library, script),
        style=read("page.css"),
        library=library,
        script=script,
        summary=_summary(records, rows),
        columns=columns(COLUMNS),
        sections=[
            section(number, group, every[group_key(group.rows[0].record)], records.comparisons, folder)
            for number, group in enumerate(groups(rows))
        ],
        comparisons=comparison_rows(records.comparisons, folder),
        superseded=[(entry.id, link(folder, entry.id), reason) for entry, reason in records.superseded],
        unreadable=records.problems,
    )


def of_component(records: Records, component: str) -> Records:
    """The records of one component; all for an empty name."""
    if not component:
        return records
    return Records(
        current=tuple(entry for entry in records.current if entry.record.variant.component == component),
        superseded=tuple(pair for pair in records.superseded if pair[0].record.variant.component == component),
        problems=records.problems,
        comparisons=tuple(
            compared for compared in records.comparisons if compared.comparison.a.variant.component == component
        ),
    )


def write(path: Path, records: Records, runs: Path) -> None:
    """Write the page to `path`, with links relative to it. Raises BakeoffError where `path` is no regular file."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise BakeoffError(f"{path} is not a regular file. Give --html the name of a file.", code="target-exists")
    folder = os.path.relpath((runs / "records").resolve(), path.resolve().parent)
    write_atomically(path, render(records, folder).encode())


def _summary(records: Records, rows: Sequence[Stored]) -> str:
    if not rows:
        return "No records yet."
    machines = {entry.record.host.name(entry.record.variant.device) for entry in rows}
    last = max(entry.record.created for entry in rows)
    return (
        f"The newest record of each of {len(rows)} variants, out of {len(records.current)} records, on {len(machines)} "
        f"machine{'' if len(machines) == 1 else 's'}; the last was made at {minute(last)} UTC."
    )
