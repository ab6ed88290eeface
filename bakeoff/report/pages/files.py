"""The generated pages of a folder of records: each machine's results and history, and the history of all machines."""

import posixpath
from collections.abc import Collection, Iterator
from pathlib import Path

from bakeoff.machine.files import write_atomically
from bakeoff.models.words import counted
from bakeoff.record.folders import record_files
from bakeoff.record.store import Records, load_all
from bakeoff.report.links import AGAIN, folders_of
from bakeoff.report.markdown import results
from bakeoff.report.pages import history
from bakeoff.report.render import markdown


def render(records: Records, machines: Collection[str] | None = None) -> Iterator[tuple[str, str]]:
    """Path, relative to the folder of all runs, and text of the page of all machines and of each machine's pages.

    `machines` are the ids of those whose pages are wanted, by default all. Equal records give equal text.
    """
    yield history.NAME, markdown.render(history.of_all(records))
    folders = folders_of(records)
    for machine in records.machines():
        if machines is None or machine.id in machines:
            yield posixpath.join(folders[machine.id], results.NAME), results.render(records, machine)
            page = markdown.render(history.of_machine(records, machine))
            yield posixpath.join(folders[machine.id], history.NAME), page


def update(runs: Path, records: Records | None = None, machines: Collection[str] | None = None) -> list[Path]:
    """Write the pages of `records`, by default those under `runs`: the page of all machines, those of `machines`, by
    default of all, and those that are not there yet. Raises BakeoffError when one cannot be written."""
    records = load_all(runs) if records is None else records
    if machines is not None:
        lacking = [key for key, folder in folders_of(records).items() if not (runs / folder / history.NAME).is_file()]
        machines = {*machines, *lacking}
    written = []
    for name, text in render(records, machines):
        write_atomically(runs / name, text.encode())
        written.append(runs / name)
    return written


def check(runs: Path, records: Records | None = None) -> list[str]:
    """What is wrong: record files that cannot be read, else pages that are missing, edited by hand or stale, or that
    cite a missing record. Empty: nothing is."""
    records = load_all(runs) if records is None else records
    if records.problems:
        return list(records.problems)
    known = {path.stem for path in record_files(runs)}
    if not known and not (runs / history.NAME).exists():
        return []  # nothing was measured yet
    wanted = dict(render(records))
    problems = [_problem(runs / name, text, known) for name, text in wanted.items()]
    left_over = [path for name in (results.NAME, history.NAME) for path in sorted(runs.glob(f"*-??????/{name}"))]
    problems += [_problem(path, None, known) for path in left_over if path.relative_to(runs).as_posix() not in wanted]
    return [problem for problem in problems if problem]


def _problem(path: Path, wanted: str | None, known: Collection[str]) -> str | None:
    """What is wrong with a page; None: nothing is. `wanted` is None for a page of a machine without records."""
    if not path.is_file():
        return f"{path} does not exist. {AGAIN}"
    text = path.read_text(encoding="utf-8", errors="replace")
    missing = sorted(set(markdown.citations(text)) - set(known))
    if missing:
        records = counted(len(missing), "record that is", "records that are")
        return f"{path} cites {records} missing, the first is {missing[0]}. Restore their files."
    if wanted is None:
        return f"{path} is of a machine without records. Delete it."
    if text != wanted:
        return f"{path} differs from what the records give: it was edited by hand or is stale. {AGAIN}"
    return None
