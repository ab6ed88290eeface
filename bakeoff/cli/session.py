"""The commands `session show` and `session aggregate`, for sessions that a user's own pipeline recorded."""

from pathlib import Path
from typing import Annotated

import typer

from bakeoff.cli.common import Json, app, fail, named, print_document, print_json, print_written
from bakeoff.models.words import counted

sessions = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Show the sessions that your own pipeline recorded, or the ranks of a run side by side.",
)
app.add_typer(sessions, name="session")


@sessions.command()
def aggregate(
    folders: Annotated[
        list[str],
        typer.Argument(metavar="DIR...", help="Folder of a run's rank files; several runs are compared by world size."),
    ],
    html: Annotated[bool, typer.Option("--html", help="Write a page of each run beside its ranks' files.")] = False,
    as_json: Json = False,
) -> None:
    """Show the ranks of a run side by side: what differs, who waits for whom, the rate of all together.

    Ends with 1 if a rank is missing or unreadable.
    """
    from bakeoff.machine.files import write_atomically
    from bakeoff.profile.ranks.aggregate import aggregate as aggregated
    from bakeoff.profile.ranks.aggregate import scaling_of
    from bakeoff.report.pages.ranks import document
    from bakeoff.report.render import html as pages

    reports = [aggregated(Path(named("DIR", folder))) for folder in folders]
    scaling = scaling_of(reports)
    written = [Path(report.folder) / "ranks.html" for report in reports] if html else []
    for path, report in zip(written, reports, strict=False):  # none without --html
        write_atomically(path, pages.render(document([report], scaling), interactive=False).encode())
    if as_json:
        print_json({"runs": reports, "scaling": {"frames_per_s": scaling[0], "notes": scaling[1]}})
    else:
        print_document(document(reports, scaling))
        if written:
            print_written(written)
    if broken := next((report for report in reports if not report.is_whole), None):
        lost = len(broken.missing) + len(broken.unreadable)
        text = f"{lost} of {counted(broken.world, 'rank is', 'ranks are')} missing or unreadable"
        fail(f"{broken.folder}: {text}", 1, "check-failed")


@sessions.command()
def show(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A session's record, *.session.json.")],
    html: Annotated[bool, typer.Option("--html", help="Write its page beside the record.")] = False,
    as_json: Json = False,
) -> None:
    """Show a session: rates, where units spend their time, ranges, counters, energy, and what could be gained."""
    from bakeoff.profile.files import page_path, read_session
    from bakeoff.profile.reporting import write_reports
    from bakeoff.report.pages.session import as_json as in_json
    from bakeoff.report.pages.session import document

    path = Path(named("FILE", file))
    record = read_session(path)
    if html:
        write_reports(path, [page_path(path)])
    if as_json:
        print_json(in_json(record))
        return
    print_document(document(record))
    if html:
        print_written([page_path(path)])
