"""Commands that read records and this host: show, table, report, list."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bakeoff.cli.common import (
    Json,
    Machines,
    Named,
    app,
    find_own_modules,
    named,
    names,
    print_document,
    print_json,
    print_text,
    print_written,
    records_folder,
    records_folders,
    warn,
)
from bakeoff.cli.complete import records as known_records
from bakeoff.models.errors import BakeoffError

if TYPE_CHECKING:
    from bakeoff.record.store import Records, StoredComparison, StoredEntry
    from bakeoff.report.selection import Selection


@app.command()
def show(
    record: Annotated[
        str,
        typer.Argument(
            help="A record's name, a beginning or hash of it, its file, or a title.", autocompletion=known_records
        ),
    ],
    as_json: Json = False,
) -> None:
    """Print one record: of a variant with where its log is, of a pipeline's run, or of a comparison."""
    from bakeoff.record.floor import best_ceilings
    from bakeoff.record.schema import Comparison
    from bakeoff.record.store import is_run, load_all
    from bakeoff.report.pages import deadline, mix, rollout
    from bakeoff.report.pages import record as pages

    folder = records_folder()
    stored = stored_of(folder, record)
    if isinstance(stored.record, Comparison):
        print_comparison(stored, as_json)
        return
    if as_json:
        print_json({"id": stored.id, "log": pages.log_path(stored.record), "record": stored.record})
        return
    every = load_all(folder)
    if stored.id not in [*(entry.id for entry in every.current), *(entry.id for entry in every.ran)]:
        every = load_all(*records_folders(folder))
    if is_run(stored) and stored.record.how == "rollout":
        print_document(rollout.document_of(stored))
    elif is_run(stored) and stored.record.sustained is not None:
        print_document(deadline.document_of(stored))
    elif is_run(stored):
        run, machine = stored.record.run, stored.machine.host
        beside = tuple(entry for entry in every.pipelines if (entry.record.run, entry.machine.host) == (run, machine))
        print_document(mix.document_of(stored, beside))
    else:
        known = best_ceilings([stored, *every.current], every.ceilings, stored.machine, stored.record.threads)
        print_document(pages.document(stored, known))


@app.command()
def table(
    name: Named = "",
    machine: Machines = None,
    columns: Annotated[
        list[str] | None, typer.Option("--columns", help="Only these, as in name,latency,peak_mib.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print the tables of the newest sweeps and pipelines on this machine from their records."""
    from bakeoff.report.document import Document
    from bakeoff.report.groups import newest
    from bakeoff.report.pages import batch_curve, budget, deadline, pipelines, results, rollout, sweep

    keys = sweep.chosen_keys(names("--columns", columns))
    folder = records_folder()
    found = selected(folder, name, machine)
    records = found.records
    rows = newest(records.current)
    if as_json:
        print_json(
            {
                "records": [entry.id for entry in rows],
                "rows": sweep.as_rows(rows, records.ceilings, records.current),
                "problems": records.problems,
                "machines": found.machines,
                "pipelines": pipelines.as_rows(records.pipelines),
                "budgets": budget.as_rows(records.pipelines),
                "rollouts": rollout.as_rows(records.rollouts),
                "sustained": deadline.as_rows(records.sustained),
            }
        )
        return
    say_whose(found, name)
    typed = shlex.quote(name) if name else ""
    parts = sweep.newest_tables(rows, records.current, records.comparisons, records.ceilings, keys, typed)
    parts = *parts, *batch_curve.sections(rows), *results.of_pipelines(records)
    print_document(Document("", parts))


def selected(folder: Path, name: str, machine: list[str] | None) -> "Selection":
    """Return the records that `name` stands for, or all, of the machines asked for; published ones only if machines are
    named.

    Raises BakeoffError if there are none.
    """
    from bakeoff.models import component_names
    from bakeoff.models.pipelines import pipeline_names
    from bakeoff.record.store import check_exists, load_all, no_records, record_files
    from bakeoff.report.named import of_name, unknown

    folders = records_folders(folder)
    every = load_all(*(folders if machine else folders[:1]))
    warn(every.problems)
    found = select_machines(every, machine)
    records = of_name(found.records, name)
    if records.current or records.ran:
        return replace(found, records=records)
    others = of_name(load_all(*folders), name)
    elsewhere = others.current or others.ran
    if not elsewhere:
        check_exists(folder)
    if name and not elsewhere and name not in (*component_names(), *pipeline_names()):
        raise unknown(every, name) if any(record_files(folder)) else no_records(folder)
    what, where = f"of {name} " if name else "", "of these machines " if machine else "of this machine "
    text = f"there are no records {what}{where if elsewhere else ''}in {folder}. Make some with: {_how(name)}"
    raise BakeoffError(text + ("; others have some, see --machine all" if elsewhere else ""), code="no-record")


def print_comparison(kept: "StoredComparison", as_json: bool) -> None:
    from bakeoff.report.pages import comparison

    print_json(comparison_facts(kept)) if as_json else print_document(comparison.document(kept))


def comparison_facts(kept: "StoredComparison") -> dict[str, Any]:
    """Return what --json prints of a comparison; its verdict is on A against B, and null if a side was not ok."""
    from bakeoff.record.diff import differences
    from bakeoff.record.verdict import verdict_of

    a, b = kept.record.a, kept.record.b
    sides = {"a": str(a.variant), "b": str(b.variant), "a_status": a.status, "b_status": b.status}
    return {"id": kept.id, "verdict": verdict_of(kept.record), **sides, "differences": differences(a, b)}


def stored_of(folder: Path, asked: str) -> "StoredEntry[Any]":
    """Return the record that `asked` names, or, of the only table that it names, the winner or else the fastest ok row.

    Raises BakeoffError if it names nothing, or several tables.
    """
    from bakeoff.record.schema import CeilingsRecord
    from bakeoff.record.store import find
    from bakeoff.report.groups import newest, tables
    from bakeoff.report.pipelines import pipeline_tables
    from bakeoff.report.recommendation import decision

    try:
        entry = find(folder, asked, *records_folders(folder)[1:])
        if isinstance(entry.record, CeilingsRecord):
            raise BakeoffError(f"{entry.id} has ceilings; bakeoff doctor --ceilings prints the best known", "no-record")
        return entry
    except BakeoffError as error:
        if error.code != "no-record":
            raise
        found = _named(folder, asked, error)
    of_models, of_pipelines = tables(newest(found.current)), pipeline_tables(found.pipelines)
    titles = [*(one.title for one in of_models), *(one.title for one in of_pipelines)]
    if len(titles) != 1:
        raise BakeoffError(f"'{asked}' is the name of {len(titles)} tables; give one: {'; '.join(titles)}", "no-record")
    if of_pipelines:
        return (*of_pipelines[0].rows, *of_pipelines[0].stale)[0].entry
    best = decision(of_models[0].rows, found.comparisons)
    return best.winner or (*best.best, *of_models[0].rows, *of_models[0].built)[0]


def _named(folder: Path, asked: str, error: BakeoffError) -> "Records":
    """Return the records that a name stands for, of this machine if it has some.

    Raises `error` if the name may be meant as a record's name, and else an error that lists what is known.
    """
    from bakeoff.record.store import load_all
    from bakeoff.report.named import of_name, unknown

    own, every = load_all(folder), load_all(*records_folders(folder))
    if not every.machines():
        raise error
    for records in (select_machines(own, None).records, own, every):
        found = of_name(records, asked)
        if asked and (found.current or found.pipelines):
            return found
    of_record = asked[:1].isdigit() or asked.endswith(".json") or set(asked) <= set("0123456789abcdef")
    raise error if of_record else BakeoffError(str(unknown(every, asked)), "no-record")


def select_machines(records: "Records", machine: list[str] | None) -> "Selection":
    """Return the records of the machines asked for; by default of this one or, if it has none, of that measured
    last."""
    from bakeoff.report.selection import own_keys, select

    return select(records, [named("--machine", name) for name in machine or []], own_keys())


def _how(component: str) -> str:
    """Return the command that measures a component or a pipeline: README's make command in a checkout, else
    bakeoff's."""
    from bakeoff.machine import paths
    from bakeoff.models.pipelines import pipeline_names

    if component in pipeline_names():
        return f"{'make pipeline MODEL=' if paths.checkout() else 'bakeoff pipeline '}{component}"
    return f"{'make sweep MODEL=' if paths.checkout() else 'bakeoff sweep '}{component or 'wm'}"


def say_whose(found: "Selection", name: str = "") -> None:
    """Print on one line which machine these numbers are from, if it is another one."""
    from bakeoff.machine.terminal import one_line

    if found.foreign:
        names = ", ".join(machine.name for machine in found.machines)
        first = next((entry.record.variant.component for entry in found.records.current), name)
        print_text(f"{one_line(f'measured on {names} (another machine); yours: {_how(first if name else name)}')}\n")


@app.command()
def report(
    html: Annotated[str, typer.Option("--html", help="The file to write.")],
    name: Named = "",
    machine: Machines = None,
    as_json: Json = False,
) -> None:
    """Write one offline HTML page of this machine's newest records: tables that sort, figures that zoom."""
    from bakeoff.report.pages import results

    path, folder = Path(named("--html", html)), records_folder()
    found = selected(folder, name, machine)
    results.write_html(path, found.records, folder)
    if not as_json:
        say_whose(found, name)
    print_written([path], as_json, machines=found.machines)


@app.command("list")
def list_everything(
    component: Annotated[
        str, typer.Argument(help="One component, mine.py:model, or package.module:SPEC; empty: all.")
    ] = "",
    as_json: Json = False,
) -> None:
    """List components, presets, workloads and backends, and what can run on this host."""
    from bakeoff.bring.bring import bring, is_brought, is_pipeline
    from bakeoff.cli.progress import TerminalProgress
    from bakeoff.models.pipelines import pipeline_names
    from bakeoff.plan.brought import brought_reference
    from bakeoff.report.pages import listing

    if is_pipeline(component) or component in pipeline_names():
        text = f"{component} is a pipeline; its programs: bakeoff pipeline {component} --mix eager --dry-run"
        raise BakeoffError(text, "unknown-name")
    if is_brought(component):
        with TerminalProgress() as progress:
            component = bring(component, 0, 0, progress)
    component = brought_reference(component) if component else ""

    find_own_modules([component])
    found = listing.read(component)
    page = listing.page_of_component if component else listing.page
    print_json(found) if as_json else print_document(page(found))
