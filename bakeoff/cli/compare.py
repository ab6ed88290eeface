"""The command that compares: two variants, or those that tables leave undecided, measured now."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bakeoff.cli.common import (
    Deadline,
    Json,
    Note,
    Threads,
    app,
    print_document,
    print_json,
    records_folder,
    short,
)
from bakeoff.cli.reports import comparison_facts, print_comparison, selected
from bakeoff.models.errors import BakeoffError

if TYPE_CHECKING:
    from bakeoff.plan.plan import Plan
    from bakeoff.plan.request import Request
    from bakeoff.record.store import Records, StoredComparison


@app.command()
def compare(
    a: Annotated[str, typer.Argument(help="A variant, as in wm:200m.step/eager/fp32@cpu.")] = "",
    b: Annotated[str, typer.Argument(help="Another one.")] = "",
    undecided: Annotated[
        bool, typer.Option("--undecided", help="Run the finals that this machine's tables, or those of A, lack.")
    ] = False,
    note: Note = "",
    threads: Threads = 0,
    row_timeout: Deadline = None,
    as_json: Json = False,
) -> None:
    """Measure two variants against each other now, interleaved."""
    from bakeoff.cli.pages import update_pages

    short("--note", note)
    folder = records_folder()
    if undecided:
        if b or threads:
            text = "--undecided takes the name of one model at most, and no --threads: each table has its own"
            raise BakeoffError(text, "bad-option")
        _compare_undecided(folder, a, row_timeout, note, as_json)
    elif all("/" in text and "@" in text for text in (a, b)):
        kept = _measure(folder, _plan(a, b, threads, row_timeout), note)
        update_pages(folder)
        print_comparison(kept, as_json)
    else:
        text = "give two variants, or --undecided; of records, bakeoff show A prints one, and bakeoff explain A B two"
        raise BakeoffError(text, "bad-option")


def _plan(a: str, b: str, threads: int, row_timeout: float | None) -> "Plan":
    from bakeoff.plan.request import with_deadline
    from bakeoff.sweeps.compare import plan_of_two

    def shaped(request: "Request") -> "Request":
        policy = request.policy if row_timeout is None else with_deadline(request.policy, row_timeout)
        return replace(request, threads=threads, policy=policy)

    return plan_of_two(a, b, shaped)


def _measure(folder: Path, plan: "Plan", note: str, said: str = "") -> "StoredComparison":
    from bakeoff.cli.progress import TerminalProgress
    from bakeoff.sweeps.compare import compare as compare_now

    with TerminalProgress() as progress:
        if said:
            progress.say(said)
        return compare_now(plan, folder, note, progress)


def _compare_undecided(folder: Path, name: str, row_timeout: float | None, note: str, as_json: bool) -> None:
    """Measure the two best rows of every table that lacks a final; a stopped run goes on by the same command."""
    from bakeoff.cli.pages import update_pages
    from bakeoff.report.pages import comparison

    found = selected(folder, name, None)
    if found.foreign:
        raise BakeoffError(f"{folder} has records of other machines alone; run this command on theirs", "no-record")
    plans, others = _lacking(found.records, row_timeout)
    kept: list[StoredComparison] = []
    try:
        for number, (title, plan) in enumerate(plans, 1):
            kept.append(_measure(folder, plan, note, said=f"{number} of {len(plans)}: {title}"))
    finally:
        update_pages(folder)
    if as_json:
        left = [" ".join(filter(None, [f"{title}:", *why])) for title, *why in others]
        print_json({"comparisons": [comparison_facts(each) for each in kept], "not_measured": left})
    else:
        print_document(comparison.finals([(title, each) for (title, _), each in zip(plans, kept, strict=True)], others))


def _lacking(
    records: "Records", row_timeout: float | None
) -> tuple[list[tuple[str, "Plan"]], list[tuple[str, str, str]]]:
    """Return (title, plan) of the tables that lack a final, and (title, reason, command) of those that need another
    command.

    The command is the one that can measure them, "" if there is none. All plans are made before the first is measured.
    """
    from bakeoff.report.groups import newest, tables
    from bakeoff.report.recommendation import command, decision, takes_compare
    from bakeoff.sweeps.compare import of_this_code

    plans, others = list[tuple[str, "Plan"]](), list[tuple[str, str, str]]()
    for table in tables(newest(records.current)):
        found = decision(table.rows, records.comparisons)
        if not found.lacks_final:
            continue
        a, b = (entry.record for entry in found.best)
        if not takes_compare(a, b, found.objective):
            others.append((table.title, "run:", command(a, b, found.objective)))
            continue
        plan = _plan(str(a.variant), str(b.variant), a.threads, row_timeout)
        if of_this_code(plan, (a, b)):
            plans.append((table.title, plan))
        else:
            others.append((table.title, "its rows are of other code or libraries; sweep it again", ""))
    return plans, others
