"""The commands that measure: sweep, compare, selftest, ceilings, golden."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from bakeoff.cli.common import Json, Runs, app, fail, named, names, print_json, records_folder, warn
from bakeoff.models.errors import BakeoffError


@app.command()
def sweep(
    component: Annotated[str, typer.Argument(help="wm, image, audio, matrix-vae, toy, or package.module:SPEC.")],
    preset: Annotated[list[str] | None, typer.Option(help="Presets, comma-separated.")] = None,
    workload: Annotated[list[str] | None, typer.Option(help="Workloads, comma-separated.")] = None,
    backends: Annotated[list[str] | None, typer.Option(help="As in eager,inductor[freezing],a+b.")] = None,
    dtype: Annotated[list[str] | None, typer.Option(help="fp32, tf32, bf16, fp16.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda (default: cuda where there is one).")] = None,
    suite: Annotated[str, typer.Option(help="default or full: every workload, option set and dtype.")] = "default",
    batch: Annotated[int, typer.Option(help="2 for classifier-free guidance.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of the random weights.")] = 0,
    input_seed: Annotated[int, typer.Option(help="Seed of the inputs.")] = 0,
    threads: Annotated[int, typer.Option(help="CPU threads (default: all cores).")] = 0,
    checkpoint: Annotated[str | None, typer.Option(help="Weights: .safetensors, or .pt as weights only.")] = None,
    processes: Annotated[int, typer.Option(help="Fresh processes for each variant: spread within and between.")] = 1,
    builds: Annotated[int, typer.Option(help="Fresh builds of each compiled variant, the best one shown.")] = 1,
    final: Annotated[bool, typer.Option(help="Measure the two best rows against each other at the end.")] = True,
    runs: Runs = None,
    note: Annotated[str, typer.Option(help="Goes into the records and the history.")] = "",
    resume: Annotated[bool, typer.Option("--resume", help="Finish the newest unfinished sweep of this plan.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would run.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 if any row is not ok.")] = False,
    as_json: Json = False,
) -> None:
    """Build, prove, judge, time and record every variant of a component."""
    from rich.console import Console

    from bakeoff.cli.reports import update_plots
    from bakeoff.plan.cost import estimate
    from bakeoff.plan.plan import make_plan
    from bakeoff.plan.request import FINAL_S, Request
    from bakeoff.record.schema import MEASURED
    from bakeoff.record.store import load_all
    from bakeoff.report.groups import newest
    from bakeoff.report.markdown import history
    from bakeoff.report.text import plan as plan_page
    from bakeoff.report.text import table
    from bakeoff.sweep.progress import TerminalProgress
    from bakeoff.sweep.run import run_sweep

    if suite not in ("default", "full"):
        raise BakeoffError(f"no suite '{suite}'; known: default, full")
    if ":" in component or any(":" in name for name in backends or []):
        sys.path.insert(0, str(Path.cwd()))
    request = Request(
        component=component,
        presets=names("--preset", preset),
        workloads=names("--workload", workload),
        backends=names("--backends", backends),
        dtypes=names("--dtype", dtype),
        device=named("--device", device),
        suite="full" if suite == "full" else "default",
        batch=batch,
        weight_seed=seed,
        input_seed=input_seed,
        threads=threads,
        checkpoint=named("--checkpoint", checkpoint),
        processes=processes,
        builds=builds,
        final_s=FINAL_S if final else 0.0,
    )
    folder = records_folder(runs)
    plan = make_plan(request)
    warn(load_all(folder).problems)
    if dry_run:
        costs = estimate(plan, folder)
        if as_json:
            print_json(costs)
        else:
            print(plan_page.render(costs))
        return
    with TerminalProgress(Console(stderr=True)) as progress:
        done = run_sweep(plan, folder, note, resume, progress)
    if as_json:
        print_json(
            {
                "sweep": done.sweep,
                "records": [entry.id for entry in done.stored],
                "finals": [entry.id for entry in done.finals],
                "interrupted": done.interrupted,
            }
        )
    else:
        if done.stored:
            print(f"\n{table.render(newest(done.stored), done.finals, done.stored)}\n")
        print(f"sweep {done.sweep}: {len(done.stored)} of {len(plan.rows)} variants recorded in {folder / 'records'}")
    history.update(folder)
    update_plots(folder, plan.component.name)
    if done.interrupted:
        fail(f"interrupted; not run: {', '.join(done.interrupted)}; the same command with --resume runs them", 130)
    statuses = [entry.record.status for entry in done.stored]
    if not any(status in MEASURED for status in statuses):
        raise typer.Exit(3)
    if strict and any(status != "ok" for status in statuses):
        raise typer.Exit(1)


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
    from dataclasses import replace

    from rich.console import Console

    from bakeoff.record.store import find, find_comparison
    from bakeoff.record.verdict import decide_unpaired, judge
    from bakeoff.report.markdown import history
    from bakeoff.report.text import comparison
    from bakeoff.sweep.compare import compare as compare_now
    from bakeoff.sweep.compare import plan_of_two
    from bakeoff.sweep.progress import TerminalProgress

    folder = records_folder(runs)
    if not b:
        kept = find_comparison(folder, a)
        print_json({"id": kept.id, "verdict": judge(kept.comparison)}) if as_json else print(comparison.render(kept))
        return
    written = ["/" in text and "@" in text for text in (a, b)]
    if not any(written):
        first, second = (find(folder, text) for text in (a, b))
        if first.record.latency is None or second.record.latency is None:
            empty = first if first.record.latency is None else second
            raise BakeoffError(f"{empty.id} has no samples: it is {empty.record.status}; give a record that has")
        if as_json:
            verdict = decide_unpaired(first.record, second.record)
            print_json({"a": first.id, "b": second.id, "interleaved": False, "verdict": verdict})
        else:
            print(comparison.render_apart(first.record, second.record))
        return
    if not all(written):
        raise BakeoffError(
            "compare takes two variants or two records, not one of each; a variant is written a:b.c/d/e@f"
        )
    if not 0 < seconds <= 3600:
        raise BakeoffError(f"--seconds {seconds:g}: give more than 0 and at most 3600")
    plan = plan_of_two(a, b, lambda request: replace(request, threads=threads, final_s=seconds))
    with TerminalProgress(Console(stderr=True)) as progress:
        kept = compare_now(plan, folder, note, progress, seed)
    history.update(folder)
    if as_json:
        print_json({"id": kept.id, "verdict": judge(kept.comparison)})
    else:
        print(f"\n{comparison.render(kept)}")


@app.command()
def selftest(
    quick: Annotated[bool, typer.Option("--quick", help="A few canaries, in under 30 s.")] = False,
    device: Annotated[str | None, typer.Option(help="cpu or cuda (default: cuda where there is one).")] = None,
    as_json: Json = False,
) -> None:
    """Test the instrument: canaries that lie or die must be found out, honest ones must not; exit 1 if one is wrong."""
    from rich.console import Console

    from bakeoff.machine import host
    from bakeoff.report.text import selftest
    from bakeoff.selftest.run import run
    from bakeoff.sweep.progress import TerminalProgress

    asked = host.usable_device(named("--device", device))
    with TerminalProgress(Console(stderr=True)) as progress:
        found = run(quick, asked, progress)
    if as_json:
        print_json(found)
    else:
        print(selftest.render(found))
    if not found.stamp.passed:
        fail("the selftest failed: do not trust this host's numbers before it passes", 1)


@app.command()
def ceilings(
    device: Annotated[str | None, typer.Option(help="cpu or cuda (default: cuda where there is one).")] = None,
    threads: Annotated[int, typer.Option(help="CPU threads (default: all cores).")] = 0,
    again: Annotated[
        bool, typer.Option("--again", help="Measure them anew; records keep what they were made with.")
    ] = False,
    as_json: Json = False,
) -> None:
    """What this machine does at best, measured once: copies, reads, products and convolutions; floors rest on it."""
    from rich.console import Console

    from bakeoff.machine import host, paths
    from bakeoff.machine.locks import device_lock
    from bakeoff.report.text import selftest
    from bakeoff.sweep.ceilings import known_ceilings
    from bakeoff.sweep.progress import TerminalProgress

    asked = host.usable_device(named("--device", device))
    if not 0 <= threads <= 1024:
        raise BakeoffError(f"--threads {threads}: give 0 for all cores, or 1 to 1024")
    cache = paths.ensure_writable(paths.cache_folder(), "caches")
    with TerminalProgress(Console(stderr=True)) as progress, device_lock(cache, asked, progress.say):
        found = known_ceilings(asked, threads or host.usable_cores(), cache, progress, again)
    if as_json:
        print_json(found)
    else:
        print(selftest.render_ceilings(found))
    if not found:
        fail("no ceilings were measured; the worker's log is in the cache folder", 3)


@app.command()
def golden(
    files: Annotated[list[Path], typer.Argument(help="Golden .safetensors files, each with its .json beside it.")],
    as_json: Json = False,
) -> None:
    """Replay golden files through their components; exit 1 past a tolerance."""
    from bakeoff.selftest import golden as replays

    result = replays.run(files)
    if as_json:
        print_json(result)
    else:
        print(replays.render(result))
    problems = [replays.verdict(file) for file in result.files if file.problem]
    failures = [replays.verdict(file) for file in result.files if not all(output.passed for output in file.outputs)]
    if problems or failures:
        fail("; ".join(problems or failures), 2 if problems else 1)
