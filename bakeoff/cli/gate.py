"""The command `gate`: fails if a candidate is slower than its baseline, no longer runs, or if a status changed."""

from contextlib import ExitStack, chdir
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from bakeoff.cli.common import (
    Json,
    app,
    named,
    print_document,
    print_json,
    records_folder,
    typed_options,
    warn,
)
from bakeoff.models.errors import BakeoffError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bakeoff.plan.plan import Plan
    from bakeoff.plan.request import Request
    from bakeoff.record.gate import GatedRow

_NOT_OF_A_GATE = ("--final", "--monitor", "--on", "--processes", "--resume", "--strict", "--time-limit")
"""Options of a sweep that a gate decides by itself, or does not have."""


_BROKEN = ("bad-user-code", "worker-failed")
"""Codes of errors that say that a model cannot be run."""


class _Asked(NamedTuple):
    """What a gate measures with, and where."""

    runs: Path
    find: float
    """Slowdown that matters, as a share of the time."""
    python: str
    source: str


@app.command(context_settings={"ignore_unknown_options": True})
def gate(
    context: typer.Context,
    suite: Annotated[
        list[str], typer.Argument(metavar="SUITE", help="@NAME of bakeoff.toml or components, and options of sweep.")
    ],
    against: Annotated[str, typer.Option(help="A folder of records, or a git commit that holds the records.")] = "",
    find: Annotated[
        str, typer.Option(help="Slowdown that matters, of 2% to 100%: a row for which it is not excluded is undecided.")
    ] = "10%",
    baseline_python: Annotated[
        str, typer.Option(help="Measure the baseline now, with this interpreter and its libraries.")
    ] = "",
    baseline_source: Annotated[
        str, typer.Option(help="Measure the baseline now, by the files of this folder instead of those of this one.")
    ] = "",
    markdown: Annotated[str, typer.Option(help="Write the page into this file, for a CI summary.")] = "",
    junit: Annotated[str, typer.Option(help="Write JUnit XML into this file.")] = "",
    as_json: Json = False,
) -> None:
    """Fail if a candidate is slower than its baseline, if it no longer runs, or if a status changed.

    Exit code 0: fine, 1: a row fails, 3: a row is undecided, or slower by records alone.
    """
    from bakeoff.record.gate import exit_code
    from bakeoff.report.pages import gate as page
    from bakeoff.report.render import markdown as as_markdown

    if not (against or baseline_python or baseline_source):
        text = "give --against RECORDS, or --baseline-python and --baseline-source to measure the baseline now"
        raise BakeoffError(text, "bad-option")
    asked = _Asked(records_folder(), _share(find), baseline_python, baseline_source)
    requests, note = _requests(context, suite)
    if against:
        rows = _confirmed(_by_records(requests, against, asked, note), requests, against, asked, note)
    else:
        rows = _live(requests, asked, note)
    baseline = against or " with ".join(filter(None, [baseline_source or "this folder", baseline_python]))
    made = page.document(rows, baseline, asked.find, requests[0].policy)
    if markdown:
        Path(markdown).write_text(as_markdown.render(made), encoding="utf-8")
    if junit:
        Path(junit).write_bytes(page.junit(rows, asked.find))
    code = exit_code(rows)
    if as_json:
        print_json({"baseline": baseline, "find": asked.find, "exit_code": code, "rows": [_facts(row) for row in rows]})
    else:
        print_document(made)
    if code:
        raise typer.Exit(code)


def _requests(context: typer.Context, words: "Sequence[str]") -> "tuple[list[Request], str]":
    """Return the requests and the note of a suite: `words` are read as those of `bakeoff sweep`."""
    from bakeoff.bring.bring import is_pipeline
    from bakeoff.cli.options import options_of, requests_of, subjects_of
    from bakeoff.plan.request import FINAL_S

    command = context.parent.command.commands["sweep"]  # type: ignore[union-attr]
    asked = command.make_context("gate", list(words), parent=context.parent)
    for option in typed_options(asked):
        if option in _NOT_OF_A_GATE:
            raise BakeoffError(f"{option}: a gate has no such option; leave it out", "bad-option")
    options = options_of(asked)
    if options.sizes:
        raise BakeoffError("--sizes: a gate times one size a row; give a component of each size", "bad-option")
    subjects = subjects_of(options)
    if loop := next((name for name, _, _ in subjects if is_pipeline(name)), None):
        raise BakeoffError(f"{loop}: a gate compares models, not pipelines; name the modules", "bad-option")
    return [
        replace(request, processes=1, final_s=FINAL_S, time_limit_s=0.0, monitor=False, ceilings=False)
        for request in requests_of(options, subjects)
    ], options.note


def _live(
    requests: "Sequence[Request]", asked: _Asked, note: str, only: "Collection[tuple[str, int]] | None" = None
) -> "list[GatedRow]":
    """Race the rows, or `only` those, with the baseline; a model that cannot be run fails with the rows it had."""
    from bakeoff.cli.progress import TerminalProgress
    from bakeoff.report.pages import gate as page
    from bakeoff.sweeps.gate import gate_live

    plans, gone = _two_plans(requests, asked.python, asked.source)
    if only is not None:
        plans = [(_only(candidate, only), _only(baseline, only)) for candidate, baseline in plans]
    with TerminalProgress() as progress:

        def stated(row: str, size: float, pairs: int) -> None:
            progress.say(f"{row}: {page.forecast(size, pairs, asked.find)}")

        return gate_live(plans, asked.runs, note, progress, stated, asked.find) + gone if plans else gone


def _only(plan: "Plan", names: "Collection[tuple[str, int]]") -> "Plan":
    return replace(plan, rows=tuple(row for row in plan.rows if (str(row.variant), row.subject.batch) in names))


def _two_plans(
    requests: "Sequence[Request]", python: str, source: str
) -> "tuple[list[tuple[Plan, Plan]], list[GatedRow]]":
    """Return the plans of the candidates and of their baselines, which are planned in the folder `source`, and the rows
    of the baselines whose candidate cannot be run."""
    from bakeoff.bring.bring import is_brought
    from bakeoff.cli.sweep import described
    from bakeoff.plan.plan import make_plan
    from bakeoff.sweeps.gate import gone_row

    if source and not Path(source).is_dir():
        raise BakeoffError(f"--baseline-source {source}: no such folder; give one with the files", "bad-option")
    own = [request.component for request in requests if source and not is_brought(request.component)]
    if own:
        text = f"--baseline-source: {own[0]} does not come from a file of that folder; give --baseline-python alone"
        raise BakeoffError(text, "bad-option")
    plans, gone = [], []
    for request in requests:
        with chdir(source or "."):
            baseline = make_plan(described(replace(request, python=python)))
        try:
            plans.append((make_plan(described(request)), baseline))
        except BakeoffError as error:
            if error.code not in _BROKEN:
                raise
            gone += [gone_row((str(row.variant), row.subject.batch), str(error)) for row in baseline.rows]
    return plans, gone


def _by_records(requests: "Sequence[Request]", against: str, asked: _Asked, note: str) -> "list[GatedRow]":
    """Sweep the rows in several processes and compare them with the records; a model that cannot be run fails with the
    records' rows of it."""
    from bakeoff.bring.bring import is_brought, read_source
    from bakeoff.cli.progress import TerminalProgress
    from bakeoff.cli.sweep import described
    from bakeoff.plan.plan import make_plan
    from bakeoff.record.commits import records_of
    from bakeoff.record.gate import PROCESSES
    from bakeoff.sweeps.gate import gate_records, gone_row

    records = records_of(named("--against", against), asked.runs)
    warn(records.problems)
    plans, gone = [], []
    for request in requests:
        try:
            plans.append(make_plan(described(replace(request, processes=PROCESSES, final_s=0.0))))
        except BakeoffError as error:
            if error.code not in _BROKEN or not is_brought(request.component):
                raise
            _, name, _ = read_source(request.component)
            of_model = [each.record for each in records.current if each.record.variant.component == name]
            if not of_model:
                raise
            names = dict.fromkeys((str(record.variant), record.batch) for record in of_model)
            gone += [gone_row(name, str(error)) for name in names]
    with TerminalProgress() as progress:
        return gate_records(plans, records, asked.runs, note, progress, asked.find) + gone if plans else gone


def _confirmed(
    rows: "list[GatedRow]", requests: "Sequence[Request]", against: str, asked: _Asked, note: str
) -> "list[GatedRow]":
    """Race the rows that are slower by records with their former source: the baseline that was given, or the files of
    the commit that has the records. A row that cannot be raced stays suspected."""
    from bakeoff.bring.bring import is_brought
    from bakeoff.record.commits import checkout

    suspected = {(row.variant, row.batch) for row in rows if row.outcome == "suspected"}
    models = [request for request in requests if asked.python or is_brought(request.component)]
    if not suspected or not models:
        return rows
    with ExitStack() as stack:
        if not asked.python and not asked.source:
            if Path(against).is_dir():
                return rows
            asked = asked._replace(source=str(stack.enter_context(checkout(against, Path.cwd()))))
        raced = {(row.variant, row.batch): row for row in _live(models, asked, note, suspected)}
    return [raced.get((row.variant, row.batch), row) for row in rows]


def _share(typed: str) -> float:
    """Return a percentage as a share. Raises BakeoffError if it is none from 2 % to 100 %."""
    try:
        share = float(typed.strip().removesuffix("%")) / 100
    except ValueError:
        share = 0.0
    if not typed.strip().endswith("%") or not 0.02 <= share <= 1:
        raise BakeoffError(f"--find {typed}: give a percentage from 2% to 100%, as in 10%", "bad-option")
    return share


def _facts(row: "GatedRow") -> dict[str, Any]:
    from dataclasses import asdict

    return {"row": row.name, "outcome": row.outcome, **asdict(row)}
