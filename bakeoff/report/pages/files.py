"""Writes and checks a folder's generated pages: results, history and profiles by machine, and the common history."""

import re
from collections.abc import Collection, Iterator
from pathlib import Path

from bakeoff.machine.files import write_atomically
from bakeoff.models.words import counted
from bakeoff.record.store import Records, load_all, record_files
from bakeoff.report.links import AGAIN, PROFILES, folders_of
from bakeoff.report.pages import history, profile, results
from bakeoff.report.render import markdown


def render(records: Records, machines: Collection[str] | None = None) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of the page of all machines and of each machine's pages.

    Paths are relative to the folder of all runs. `machines` are the keys of those whose pages are wanted, by default
    all. Equal records give equal text. Raises BakeoffError if a library that draws is missing.
    """
    yield history.NAME, markdown.render(history.of_all(records), width=history.WIDTH)
    for machine in records.machines():
        if machines is None or machine.key in machines:
            folder = folders_of(records)[machine.key]
            yield f"{folder}/{results.NAME}", markdown.render(results.of_machine(records, machine))
            page = history.of_machine(records, machine)
            yield f"{folder}/{history.NAME}", markdown.render(page, width=history.WIDTH)
            yield from profile.pages(records.of_machines([machine.key]))


def update(runs: Path, machines: Collection[str] | None = None) -> list[Path]:
    """Write the page of all machines and the pages of `machines`, by default all; return the paths written.

    Pages of other machines are written if they are missing, and pages of profiles that are gone are deleted. Raises
    BakeoffError if a page cannot be written.
    """
    records = load_all(runs)
    if machines is not None:
        lacking = [key for key, folder in folders_of(records).items() if not (runs / folder / history.NAME).is_file()]
        machines = {*machines, *lacking}
    written = []
    for name, text in render(records, machines):
        write_atomically(runs / name, text.encode())
        written.append(runs / name)
    for path in {*_of_profiles(runs)} - {*profile.paths_of(runs, records.pipelines)}:
        path.unlink(missing_ok=True)
    return written


def check(runs: Path) -> list[str]:
    """Return the problems: unreadable record files, else missing, edited or stale pages, or citations of no record.

    Pictures are not compared: versions of the library that draws them differ by fractions of a pixel.
    """
    records = load_all(runs)
    if records.problems:
        return list(records.problems)
    known = {path.stem for path in record_files(runs)}
    if not known and not (runs / history.NAME).exists():
        return []  # nothing was measured yet
    wanted = dict(render(records))
    problems = [_problem(runs / name, text, known) for name, text in wanted.items()]
    held = (*_of_machines(runs), *_of_profiles(runs))
    left_over = [path for path in held if path.relative_to(runs).as_posix() not in wanted]
    problems += [_problem(path, None, known) for path in left_over]
    return [problem for problem in problems if problem]


def _of_machines(runs: Path) -> list[Path]:
    """Return the existing pages of machines."""
    return [path for name in (results.NAME, history.NAME) for path in sorted(runs.glob(f"*-??????/{name}"))]


def _of_profiles(runs: Path) -> list[Path]:
    """Return the existing pages of profiles."""
    return sorted(runs.glob(f"*/{PROFILES}/*.html"))


def _problem(path: Path, wanted: str | None, known: Collection[str]) -> str | None:
    """Return what is wrong with a page, or None. `wanted` is its right text, None if its records are gone."""
    if not path.is_file():
        return f"{path} does not exist. {AGAIN}"
    text = path.read_text(encoding="utf-8", errors="replace")
    missing = sorted(set(markdown.citations(text)) - set(known))
    if missing:
        records = counted(len(missing), "record that is", "records that are")
        return f"{path} cites {records} missing, the first is {missing[0]}. Restore their files."
    if wanted is None:
        return f"{path} is of records that are not there. Delete it."
    if _words(text) != _words(wanted):
        return f"{path} differs from what the records give: it was edited by hand or is stale. {AGAIN}"
    return None


def _words(page: str) -> str:
    """Return a page's text without its pictures."""
    return re.sub(r"(?<=;base64,)[^\"]*", "", page)
