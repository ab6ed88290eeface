"""The command that compares: two variants measured now, two records, or a stored comparison."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from bakeoff.cli.common import Json, Runs, app, print_json, print_text, records_folder, short
from bakeoff.models.errors import BakeoffError


@app.command()
def compare(
    a: Annotated[str, typer.Argument(help="A variant (wm:200m.step/eager/fp32@cpu), or a record.")],
    b: Annotated[str, typer.Argument(help="Another of the same kind; empty: show the stored comparison A.")] = "",
    runs: Runs = None,
    note: Annotated[str, typer.Option(help="Goes into the comparison and the history.")] = "",
    threads: Annotated[int, typer.Option(help="CPU threads (default: all cores).")] = 0,
    seconds: Annotated[float, typer.Option(help="About how long calls are measured.")] = 30.0,
    seed: Annotated[int | None, typer.Option(help="Of the order of blocks (default: drawn).")] = None,
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
        _compare_variants(folder, a, b, note, threads, seconds, seed, as_json)
    else:
        text = f"{a} and {b}: one is a variant (a:b.c/d/e@f) and the other is not; give two variants or two records"
        raise BakeoffError(text, "not-comparable")


def _is_variant(text: str) -> bool:
    return "/" in text and "@" in text


def _show(folder: Path, asked: str, as_json: bool) -> None:
    from bakeoff.record.store import find_comparison
    from bakeoff.record.verdict import decide
    from bakeoff.report.text import comparison

    kept = find_comparison(folder, asked)
    print_json({"id": kept.id, "verdict": decide(kept.comparison)}) if as_json else print_text(comparison.render(kept))


def _compare_records(folder: Path, a: str, b: str, as_json: bool) -> None:
    from bakeoff.record.store import find
    from bakeoff.report.text import comparison

    first, second = find(folder, a), find(folder, b)
    for stored in (first, second):
        if stored.record.latency is None:
            text = f"{stored.id} has no samples, its status is {stored.record.status}; give a record that has samples"
            raise BakeoffError(text, "not-comparable")
    if as_json:
        latencies = {name: stored.record.latency for name, stored in (("a_latency", first), ("b_latency", second))}
        print_json({"a": first.id, "b": second.id, "interleaved": False, **latencies})
    else:
        print_text(comparison.render_apart(first.record, second.record))


def _compare_variants(
    folder: Path, a: str, b: str, note: str, threads: int, seconds: float, seed: int | None, as_json: bool
) -> None:
    from rich.console import Console

    from bakeoff.cli.pages import update_pages
    from bakeoff.cli.progress import TerminalProgress
    from bakeoff.record.verdict import decide
    from bakeoff.report.text import comparison
    from bakeoff.sweeps.compare import compare as compare_now
    from bakeoff.sweeps.compare import plan_of_two

    plan = plan_of_two(a, b, lambda request: replace(request, threads=threads, final_s=seconds))
    with TerminalProgress(Console(stderr=True)) as progress:
        kept = compare_now(plan, folder, note, progress, seed)
    update_pages(folder)
    if as_json:
        print_json({"id": kept.id, "verdict": decide(kept.comparison)})
    else:
        print_text(f"\n{comparison.render(kept)}")
