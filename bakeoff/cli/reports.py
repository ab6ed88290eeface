"""Commands that read records and this host: show, table, report, list, doctor."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bakeoff.cli.common import Json, Machines, Runs, app, named, print_json, print_text, records_folder, warn
from bakeoff.models.errors import BakeoffError

if TYPE_CHECKING:
    from bakeoff.record.store import Records, StoredPipeline
    from bakeoff.report.machines import Selection


@app.command()
def show(
    record: Annotated[str, typer.Argument(help="A record's name, a beginning or hash of it, or its file.")],
    runs: Runs = None,
    as_json: Json = False,
) -> None:
    """Print one record, of a variant or of a pipeline's run, and where its log is."""
    from bakeoff.record.store import StoredPipeline, find_shown
    from bakeoff.report.text import record as pages

    folder = records_folder(runs)
    stored = find_shown(folder, record)
    if isinstance(stored, StoredPipeline):
        _show_pipeline(folder, stored, as_json)
    elif as_json:
        print_json({"id": stored.id, "log": pages.log_path(stored.record), "record": stored.record})
    else:
        print_text(pages.render(stored))


def _show_pipeline(folder: Path, stored: "StoredPipeline", as_json: bool) -> None:
    """Print a run of a mix, held against the other mixes of its run."""
    from bakeoff.record.store import load_all
    from bakeoff.report.text import pipeline as pages

    if as_json:
        print_json({"id": stored.id, "log": pages.log_path(stored.record), "record": stored.record})
        return
    run, machine = stored.record.run, stored.machine.id
    every = [entry for entry in load_all(folder).pipelines if (entry.record.run, entry.machine.id) == (run, machine)]
    print_text(pages.render_record(stored, every))


@app.command()
def table(
    component: Annotated[str, typer.Argument(help="Name of a component or a pipeline; empty: all.")] = "",
    machine: Machines = None,
    runs: Runs = None,
    as_json: Json = False,
) -> None:
    """Print the tables of the newest sweeps and pipelines on this machine from their records."""
    from bakeoff.report.groups import newest
    from bakeoff.report.text import batch_curve, pipeline
    from bakeoff.report.text import table as tables

    found = _selected(records_folder(runs), component, machine)
    records = found.records
    rows = newest(records.current)
    if as_json:
        print_json(
            {
                "records": [entry.id for entry in rows],
                "rows": tables.as_rows(rows, records.ceilings, records.current),
                "problems": records.problems,
                "machines": found.machines,
                "pipelines": pipeline.summary(records.pipelines),
            }
        )
    else:
        say_whose(found, component)
        found_tables = tables.render(rows, records.comparisons, records.current, records.ceilings)
        pages = [found_tables, batch_curve.render(rows), pipeline.render_newest(records.pipelines)]
        print_text("\n\n".join(filter(None, pages)))


def _selected(folder: Path, component: str, machine: list[str] | None) -> "Selection":
    """The records of a component or a pipeline, or all, on the machines asked for.

    Raises BakeoffError where there are none.
    """
    from bakeoff.models import current_name, resolve_component
    from bakeoff.models.pipelines import pipeline_names
    from bakeoff.record.store import load_all
    from bakeoff.report.machines import of_component

    if ":" in component:
        sys.path.append(str(Path.cwd()))
        component = resolve_component(component).name
    pipeline, component = component, current_name(component)
    every = load_all(folder)
    warn(every.problems)
    found = select_machines(every, machine)
    records = of_component(found.records, component, pipeline)
    if records.current or records.pipelines:
        return replace(found, records=records)
    others = of_component(every, component, pipeline)
    elsewhere = others.current or others.pipelines
    if component and not elsewhere and pipeline not in pipeline_names():
        resolve_component(component)  # an unknown name is an error of its own
    what, where = f"of {component} " if component else "", "of these machines " if machine else "of this machine "
    text = f"there are no records {what}{where if elsewhere else ''}in {folder}. Make some with: {_how(component)}"
    raise BakeoffError(text + ("; others have some, see --machine all" if elsewhere else ""), code="no-record")


def select_machines(records: "Records", machine: list[str] | None) -> "Selection":
    """The records of the machines asked for; by default of this one, or where it has none of that measured last."""
    from bakeoff.report.machines import own_ids, select

    return select(records, [named("--machine", name) for name in machine or []], own_ids())


def _how(component: str) -> str:
    """The command that measures a component or a pipeline, as README writes it where there is a Makefile."""
    from bakeoff.machine import paths
    from bakeoff.models import component_names
    from bakeoff.models.pipelines import pipeline_names

    if component in pipeline_names() and component not in component_names():
        return f"{'make pipeline MODEL=' if paths.checkout() else 'bakeoff pipeline '}{component}"
    return f"{'make sweep MODEL=' if paths.checkout() else 'bakeoff sweep '}{component or 'wm'}"


def say_whose(found: "Selection", component: str = "") -> None:
    """Say on one line whose numbers these are, where they are another machine's."""
    from bakeoff.machine.terminal import one_line

    if found.foreign:
        names = ", ".join(machine.name for machine in found.machines)
        print_text(f"{one_line(f'measured on {names} (another machine); yours: {_how(component)}')}\n")


@app.command()
def report(
    html: Annotated[str, typer.Option("--html", help="The file to write.")],
    component: Annotated[str, typer.Argument(help="Name of a component or a pipeline; empty: all.")] = "",
    machine: Machines = None,
    runs: Runs = None,
    as_json: Json = False,
) -> None:
    """Write one offline HTML page of this machine's newest records: tables that sort, figures that zoom."""
    from bakeoff.report.html import page

    path, folder = Path(named("--html", html)), records_folder(runs)
    found = _selected(folder, component, machine)
    page.write(path, found.records, folder)
    if as_json:
        print_json({"written": [str(path)], "machines": found.machines})
    else:
        say_whose(found, component)
        print_text(f"wrote {path}")


@app.command("list")
def list_everything(
    component: Annotated[str, typer.Argument(help="One component, or package.module:SPEC; empty: all.")] = "",
    as_json: Json = False,
) -> None:
    """List components, presets, workloads and backends, and what can run on this host."""
    from bakeoff.report.text import listing

    if ":" in component:
        sys.path.append(str(Path.cwd()))
    found = listing.read(component)
    if as_json:
        print_json(found)
    else:
        print_text(listing.render(found))


@app.command()
def doctor(as_json: Json = False) -> None:
    """Print this host, its versions, known-bad combinations, and why a backend cannot run here."""
    from bakeoff.report.text import doctor

    found = doctor.read()
    if as_json:
        print_json(found)
    else:
        print_text(doctor.render(found))
