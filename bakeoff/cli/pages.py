"""Commands that write the pages kept beside the records, and README's results: history, publish."""

from pathlib import Path
from typing import Annotated

import typer

from bakeoff.cli.common import (
    Json,
    Machines,
    app,
    fail,
    print_json,
    print_text,
    print_written,
    records_folder,
    records_folders,
    say,
    short,
    warn,
)
from bakeoff.cli.reports import say_whose, select_machines
from bakeoff.models.errors import BakeoffError, ErrorCode


@app.command()
def history(
    check: Annotated[bool, typer.Option("--check", help="Exit 1 if a page is not what the records give.")] = False,
    as_json: Json = False,
) -> None:
    """Write the results and the history of every machine from the records; --check lists all that is wrong."""
    from bakeoff.record.store import check_exists, load_all
    from bakeoff.report.pages import files, readme

    folder = records_folder()
    check_exists(folder)
    if not check:
        warn(load_all(folder).problems)
        print_written(files.update(folder), as_json)
        return
    problems: list[str] = []
    code: ErrorCode = "bad-page"
    for each in records_folders(folder):
        problems += files.check(each)
        if load_all(each).problems:
            code = "bad-record"
        elif each != folder:
            problems += filter(None, [readme.check(each)])
    if as_json:
        print_json({"problem": problems[0] if problems else "", "problems": problems})
    if not problems:
        if not as_json:
            print_text(f"all records and pages of {folder} are whole, and as the records give them")
        return
    for problem in problems[:-1]:
        say(problem)
    fail(problems[-1], 1, code)


@app.command()
def publish(
    machine: Machines = None,
    supersede: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="RECORD WHY", help="Instead: take a bad record out of tables and history; its file is kept."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Copy this machine's newest records into runs/published/ of the checkout; write them into README.md, and all pages
    there: RESULTS.md and the history."""
    from bakeoff.machine import paths
    from bakeoff.record.store import check_exists, load_all
    from bakeoff.report.pages import files, readme

    folder, published = records_folder(), paths.published_runs()
    if supersede is not None:
        if machine:
            raise BakeoffError("--supersede and --machine do not go together; leave one out", "bad-option")
        record, reason = supersede
        print_written([_supersede(folder, record, short("--supersede", reason))], as_json)
        return
    if published is None:
        raise BakeoffError("records are published in a checkout, and this is none; run it in one", "bad-option")
    check_exists(folder)
    records = load_all(folder, published)
    warn(records.problems)
    found = select_machines(records, machine)
    if not found.records.current:
        raise BakeoffError(f"there are no records in {folder} to publish", code="no-record")
    pages = readme.publish(published, found.records, folder)
    pages += files.update(published)
    if not as_json:
        say_whose(found)
    print_written(pages, as_json, machines=found.machines)


def _supersede(folder: Path, record: str, reason: str) -> str:
    """Take a record out of tables and history, write its machine's pages anew, and return the id of the entry."""
    from bakeoff.machine import paths
    from bakeoff.record.store import Records, check_exists, load_all, supersede
    from bakeoff.report.pages import files

    def current(records: Records) -> dict[str, str]:
        compared = {entry.id: entry.machine.key for entry in records.comparisons}
        ran = {entry.id: entry.machine.key for entry in records.ran}
        return {entry.id: entry.machine.key for entry in records.current} | compared | ran

    check_exists(folder)
    paths.ensure_writable(folder, "records")
    before = current(load_all(folder))
    written = supersede(folder, record, reason, *records_folders(folder)[1:])
    gone = before.keys() - current(load_all(folder)).keys()
    files.update(folder, {before[name] for name in gone} or None)
    return written


def update_pages(folder: Path) -> None:
    """Write this machine's pages and the page of all machines."""
    from bakeoff.report.pages import files
    from bakeoff.report.selection import own_keys

    files.update(folder, own_keys())
