"""Commands that read records and this host: show, table, report, plots, history, supersede, list, doctor."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from bakeoff.cli.common import Json, Runs, app, error_line, fail, named, print_json, records_folder, say, warn
from bakeoff.models.errors import BakeoffError


@app.command()
def show(
    record: Annotated[str, typer.Argument(help="A record's name, a beginning or hash of it, or its file.")],
    runs: Runs = None,
    as_json: Json = False,
) -> None:
    """Print one record and where its log is."""
    from bakeoff.record.store import find
    from bakeoff.report.text import record as pages

    stored = find(records_folder(runs), record)
    if as_json:
        print_json({"id": stored.id, "log": pages.log_path(stored.record), "record": stored.record})
    else:
        print(pages.render(stored))


@app.command()
def table(
    component: Annotated[str, typer.Argument(help="Component name; empty: all.")] = "",
    runs: Runs = None,
    as_json: Json = False,
) -> None:
    """Print the tables of the newest sweeps from their records."""
    from bakeoff.models import current_name
    from bakeoff.record.store import load_all
    from bakeoff.report.groups import newest
    from bakeoff.report.text import table as tables

    component, folder = current_name(component), records_folder(runs)
    records = load_all(folder)
    warn(records.problems)
    every = [entry for entry in records.current if component in ("", entry.record.variant.component)]
    rows = newest(every)
    if not rows:
        raise _no_records(component, folder)
    if as_json:
        print_json(
            {"records": [entry.id for entry in rows], "rows": tables.as_rows(rows), "problems": records.problems}
        )
    else:
        print(tables.render(rows, records.comparisons, every))


def _no_records(component: str, folder: Path) -> BakeoffError:
    what = f"of {component} " if component else ""
    name = component or "wm"
    return BakeoffError(
        f"there are no records {what}in {folder / 'records'}. Make some with: bakeoff sweep {name}", code="no-record"
    )


@app.command()
def report(
    html: Annotated[str, typer.Option("--html", help="The file to write.")],
    component: Annotated[str, typer.Argument(help="Component name; empty: all.")] = "",
    runs: Runs = None,
    as_json: Json = False,
) -> None:
    """Write one offline HTML page of the newest records: tables that sort, figures that zoom."""
    from bakeoff.models import current_name
    from bakeoff.record.store import load_all
    from bakeoff.report.html import page

    component = current_name(component)
    path, folder = Path(named("--html", html)), records_folder(runs)
    records = page.of_component(load_all(folder), component)
    warn(records.problems)
    if not records.current:
        raise _no_records(component, folder)
    page.write(path, records, folder)
    if as_json:
        print_json({"written": [str(path)]})
    else:
        print(f"wrote {path}")


@app.command()
def plots(runs: Runs = None, as_json: Json = False) -> None:
    """Draw the plots of the newest records into plots/ beside them."""
    from bakeoff.report.svg import files

    written = [str(path) for path in files.update(records_folder(runs))]
    if as_json:
        print_json({"written": written})
    else:
        print("\n".join(f"wrote {path}" for path in written) or "no records, no plots")


def update_plots(folder: Path, component: str) -> None:
    """Draw the plots of a component; where that fails, print why and go on."""
    from bakeoff.report.svg import files

    try:
        files.update(folder, component)
    except BakeoffError as error:
        say(error_line(f"no plots: {error}", error.code))


@app.command()
def history(
    check: Annotated[bool, typer.Option("--check", help="Exit 1 if the file is not what the records give.")] = False,
    runs: Runs = None,
    as_json: Json = False,
) -> None:
    """Generate OPTIMIZATION_HISTORY.md and README's results from the records."""
    from bakeoff.record.store import load_all
    from bakeoff.report.markdown import history as pages
    from bakeoff.report.markdown import readme

    folder = records_folder(runs)
    problem = None
    records = load_all(folder)
    if check:
        problem = pages.check(folder, records) or readme.check(folder, records)
    else:
        warn(records.problems)
        written = [str(path) for path in (pages.update(folder, records), *readme.update(folder, records))]
    if as_json:
        print_json({"problem": problem or ""} if check else {"written": written})
    elif not check:
        print("\n".join(f"wrote {path}" for path in written))
    if problem:
        fail(problem, 1, "bad-record" if records.problems else "bad-page")


@app.command()
def supersede(
    record: Annotated[str, typer.Argument(help="A record's name, or a beginning or hash of it.")],
    reason: Annotated[str, typer.Option(help="Why it is no longer shown.")],
    runs: Runs = None,
) -> None:
    """Take a bad record out of tables and history, with a reason; its file is kept."""
    from bakeoff.machine import paths
    from bakeoff.record.store import supersede as supersede_record
    from bakeoff.report.markdown import history as pages

    folder = paths.ensure_writable(records_folder(runs), "records")
    print(f"wrote {supersede_record(folder, record, reason)}")
    pages.update(folder)


@app.command("list")
def list_everything(
    component: Annotated[str, typer.Argument(help="One component, or package.module:SPEC; empty: all.")] = "",
    as_json: Json = False,
) -> None:
    """List components, presets, workloads and backends, and what can run on this host."""
    from bakeoff.report.text import listing

    if ":" in component:
        sys.path.insert(0, str(Path.cwd()))
    found = listing.read(component)
    if as_json:
        print_json(found)
    else:
        print(listing.render(found))


@app.command()
def doctor(as_json: Json = False) -> None:
    """Print this host, its versions, known-bad combinations, and why a backend cannot run here."""
    from bakeoff.report.text import doctor

    found = doctor.read()
    if as_json:
        print_json(found)
    else:
        print(doctor.render(found))
