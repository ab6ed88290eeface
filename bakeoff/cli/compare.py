"""The command that compares: two variants measured now, two records, or a stored comparison."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bakeoff.cli.common import Deadline, Json, Runs, app, print_json, print_text, records_folder, short
from bakeoff.cli.reports import comparison_of, stored_of
from bakeoff.models.errors import BakeoffError

if TYPE_CHECKING:
    from bakeoff.plan.plan import Plan
    from bakeoff.plan.request import Request
    from bakeoff.record.store import Stored, StoredComparison


@app.command()
def compare(
    a: Annotated[str, typer.Argument(help="A variant (wm:200m.step/eager/fp32@cpu), a record, or a title.")],
    b: Annotated[str, typer.Argument(help="Another of the same kind; empty: show the stored comparison A.")] = "",
    runs: Runs = None,
    note: Annotated[str, typer.Option(help="Goes into the comparison and the history.")] = "",
    threads: Annotated[int, typer.Option(help="CPU threads (default: all cores).")] = 0,
    seconds: Annotated[float, typer.Option(help="About how long calls are measured.")] = 30.0,
    seed: Annotated[int | None, typer.Option(help="Of the order of blocks (default: drawn).")] = None,
    deadline: Deadline = None,
    as_json: Json = False,
) -> None:
    """Measure two variants against each other now, interleaved; or set two records side by side."""
    short("--note", note)
    folder = records_folder(runs)
    variants = [_is_variant(text) for text in (a, b)]
    if not b:
        _show(folder, a, as_json)
    elif not any(variants):
        _compare_records(folder, a, b, as_json)
    elif all(variants):
        if not 0 < seconds <= 3600:
            raise BakeoffError(f"--seconds {seconds:g}: give more than 0 and at most 3600", "bad-option")
        _compare_variants(folder, _plan(a, b, threads, seconds, deadline), note, seed, as_json)
    else:
        text = f"{a} and {b}: one is a variant (a:b.c/d/e@f) and the other is not; give two variants or two records"
        raise BakeoffError(text, "not-comparable")


def _is_variant(text: str) -> bool:
    return "/" in text and "@" in text


def _show(folder: Path, asked: str, as_json: bool) -> None:
    from bakeoff.report.text import comparison

    kept = comparison_of(folder, asked)
    print_json(_facts(kept)) if as_json else print_text(comparison.render(kept))


def _facts(kept: "StoredComparison") -> dict[str, Any]:
    """What --json prints of a comparison; its verdict is null where a side was not ok."""
    from bakeoff.record.verdict import verdict_of

    sides = {name: side.status for name, side in (("a_status", kept.comparison.a), ("b_status", kept.comparison.b))}
    return {"id": kept.id, "verdict": verdict_of(kept.comparison), **sides}


def _record(folder: Path, asked: str) -> "Stored":
    from bakeoff.record.store import StoredPipeline

    found = stored_of(folder, asked)
    if isinstance(found, StoredPipeline):
        text = f"{found.id} is a run of pipeline {found.record.mix}; run: bakeoff show {found.id}"
        raise BakeoffError(text, "no-record")
    return found


def _compare_records(folder: Path, a: str, b: str, as_json: bool) -> None:
    from bakeoff.report.text import comparison

    first, second = _record(folder, a), _record(folder, b)
    for stored in (first, second):
        if stored.record.latency is None:
            text = f"{stored.id} has no samples, its status is {stored.record.status}; give a record that has samples"
            raise BakeoffError(text, "not-comparable")
    if as_json:
        latencies = {name: stored.record.latency for name, stored in (("a_latency", first), ("b_latency", second))}
        print_json({"a": first.id, "b": second.id, "interleaved": False, **latencies})
    else:
        print_text(comparison.render_apart(first.record, second.record))


def _plan(a: str, b: str, threads: int, seconds: float, deadline: float | None) -> "Plan":
    from bakeoff.plan.request import with_deadline
    from bakeoff.sweeps.compare import plan_of_two

    def shaped(request: "Request") -> "Request":
        policy = request.policy if deadline is None else with_deadline(request.policy, deadline)
        return replace(request, threads=threads, final_s=seconds, policy=policy)

    return plan_of_two(a, b, shaped)


def _compare_variants(folder: Path, plan: "Plan", note: str, seed: int | None, as_json: bool) -> None:
    from rich.console import Console

    from bakeoff.cli.pages import update_pages
    from bakeoff.cli.progress import TerminalProgress
    from bakeoff.report.text import comparison
    from bakeoff.sweeps.compare import compare as compare_now

    with TerminalProgress(Console(stderr=True)) as progress:
        kept = compare_now(plan, folder, note, progress, seed)
    update_pages(folder)
    if as_json:
        print_json(_facts(kept))
    else:
        print_text(f"\n{comparison.render(kept)}")
