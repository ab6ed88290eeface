"""The command `gate`: fails if a candidate is slower than its baseline, or if a status changed."""

import tomllib
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bakeoff.cli.common import (
    Json,
    Runs,
    app,
    named,
    print_document,
    print_json,
    records_folder,
    typed_options,
    warn,
)
from bakeoff.models.errors import BakeoffError
from bakeoff.models.plain_file import read_plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bakeoff.plan.plan import Plan
    from bakeoff.plan.request import Request
    from bakeoff.record.gate import Expected, GatedRow

_NOT_OF_A_GATE = ("--budget", "--final", "--monitor", "--on", "--option", "--processes", "--resume", "--strict")
"""Options of a sweep that a gate decides by itself, or does not have."""


@app.command(context_settings={"ignore_unknown_options": True})
def gate(
    context: typer.Context,
    suite: Annotated[
        list[str], typer.Argument(metavar="SUITE", help="@NAME of bakeoff.toml or components, and options of sweep.")
    ],
    against: Annotated[str, typer.Option(help="A folder of records, or a git commit that holds the records.")] = "",
    baseline_python: Annotated[
        str, typer.Option(help="Measure the baseline now, with this interpreter and its libraries.")
    ] = "",
    baseline_source: Annotated[
        str, typer.Option(help="Measure the baseline now, by the files of this folder instead of those of this one.")
    ] = "",
    expected: Annotated[str, typer.Option(help="File of rows that are expected not to be ok.")] = "",
    markdown: Annotated[str, typer.Option(help="Write the page into this file, for a CI summary.")] = "",
    junit: Annotated[str, typer.Option(help="Write JUnit XML into this file.")] = "",
    runs: Runs = None,
    as_json: Json = False,
) -> None:
    """Fail if a candidate is slower than its baseline, or if a status changed.

    Exit code 0: fine, 1: a regression or a changed status, 3: nothing was decided.
    """
    from bakeoff.cli.progress import TerminalProgress
    from bakeoff.cli.sweep import described
    from bakeoff.plan.plan import make_plan
    from bakeoff.record.commits import records_of
    from bakeoff.record.gate import PROCESSES, exit_code
    from bakeoff.report.pages import gate as page
    from bakeoff.report.render import markdown as as_markdown
    from bakeoff.sweeps.gate import gate_live, gate_records

    live = bool(baseline_python or baseline_source)
    if live == bool(against):
        text = "give either --against RECORDS, or --baseline-python and --baseline-source to measure the baseline now"
        raise BakeoffError(text, "bad-option")
    folder, known = records_folder(runs), _read_expected(expected)
    requests, note = _requests(context, suite)
    if live:
        plans = _two_plans(requests, baseline_python, baseline_source)
        with TerminalProgress() as progress:

            def stated(row: str, size: float) -> None:
                progress.say(f"{row}: a change of {page.size_text(size)} or more will be found.")

            rows = gate_live(plans, folder, note, progress, stated)
    else:
        records = records_of(named("--against", against), folder)
        warn(records.problems)
        several = [replace(described(request), processes=PROCESSES, final_s=0.0) for request in requests]
        swept = [make_plan(request) for request in several]
        with TerminalProgress() as progress:
            rows = gate_records(swept, records, folder, note, progress)
    rows = [_with_expected(row, known) for row in rows]
    baseline = against or " with ".join(filter(None, [baseline_source or "this folder", baseline_python]))
    made = page.document(rows, baseline, live, requests[0].policy)
    if markdown:
        Path(markdown).write_text(as_markdown.render(made), encoding="utf-8")
    if junit:
        Path(junit).write_bytes(page.junit(rows))
    code = exit_code(rows)
    if as_json:
        print_json({"baseline": baseline, "live": live, "exit_code": code, "rows": [_facts(row) for row in rows]})
    else:
        print_document(made)
    if code:
        raise typer.Exit(code)


def _requests(context: typer.Context, words: "Sequence[str]") -> "tuple[list[Request], str]":
    """Return the requests and the note of a suite: `words` are read as those of `bakeoff sweep`."""
    from bakeoff.bring.bring import is_pipeline
    from bakeoff.cli.suites import with_suite
    from bakeoff.cli.sweep import requests_of, subjects_of
    from bakeoff.plan.request import FINAL_S

    command = context.parent.command.commands["sweep"]  # type: ignore[union-attr]
    asked = command.make_context("gate", list(words), parent=context.parent)
    for option in typed_options(asked):
        if option in _NOT_OF_A_GATE:
            raise BakeoffError(f"{option}: a gate has no such option; leave it out", "bad-option")
    values = asked.params
    if values["config"] is not None or any(name.startswith("@") for name in values["components"]):
        with_suite(asked)
    if values["sizes"]:
        raise BakeoffError("--sizes: a gate times one size a row; give a component of each size", "bad-option")
    subjects = subjects_of(values)
    if loop := next((name for name, _, _ in subjects if is_pipeline(name)), None):
        raise BakeoffError(f"{loop}: a gate compares models, not pipelines; name the modules", "bad-option")
    return [
        replace(request, processes=1, builds=1, final_s=FINAL_S, budget_s=0.0, monitor=False, ceilings=False)
        for request in requests_of(subjects, values, asked.obj or {})
    ], values["note"]


def _two_plans(requests: "Sequence[Request]", python: str, source: str) -> "list[tuple[Plan, Plan]]":
    """Return the plans of the candidate and of its baseline, which is planned in the folder `source`."""
    from bakeoff.bring.bring import is_brought
    from bakeoff.cli.sweep import described
    from bakeoff.plan.plan import make_plan

    if source and not Path(source).is_dir():
        raise BakeoffError(f"--baseline-source {source}: no such folder; give one with the files", "bad-option")
    own = [request.component for request in requests if source and not is_brought(request.component)]
    if own:
        text = f"--baseline-source: {own[0]} does not come from a file of that folder; give --baseline-python alone"
        raise BakeoffError(text, "bad-option")
    candidates = [make_plan(described(request)) for request in requests]
    with chdir(source or "."):
        baselines = [make_plan(described(replace(request, python=python))) for request in requests]
    return list(zip(candidates, baselines, strict=True))


def _read_expected(file: str) -> "list[Expected]":
    """Return the entries `[[xfail]]` of a TOML file; none without a file. Raises BakeoffError for a wrong one."""
    import msgspec

    from bakeoff.cli.suites import check_keys
    from bakeoff.record.gate import Expected

    if not file:
        return []
    try:
        found = tomllib.loads(read_plain(Path(file)).decode())
        check_keys(file, found, ["xfail"])
        entries: list[Expected] = msgspec.convert(found.get("xfail", []), list[Expected])
        for entry in found.get("xfail", []):
            check_keys(f"{file}, xfail", entry, ["row", "reason", "status"])
    except OSError as error:
        raise BakeoffError(f"--expected {file}: {error.strerror}; give another file", "not-readable") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise BakeoffError(f"--expected {file}: {error}; correct it", "bad-config") from error
    return entries


def _with_expected(row: "GatedRow", known: "list[Expected]") -> "GatedRow":
    entry = next((each for each in known if each.fits(row.variant)), None)
    return row if entry is None else replace(row, expected=entry.reason, expects=entry.status)


def _facts(row: "GatedRow") -> dict[str, Any]:
    from dataclasses import asdict

    return {"row": row.name, "outcome": row.outcome, **asdict(row)}
