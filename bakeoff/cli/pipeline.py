"""The command that runs whole frames: a pipeline with one variant for each component."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bakeoff.cli.common import Json, Runs, app, fail, named, print_json, print_text, records_folder, say, short, warn

if TYPE_CHECKING:
    from bakeoff.pipeline.run import Done


@app.command()
def pipeline(
    name: Annotated[str, typer.Argument(metavar="PIPELINE", help="owl, matrix, toy, or package.module:PIPELINE.")],
    preset: Annotated[str | None, typer.Option(help="Preset (default: the pipeline's for the device).")] = None,
    mix: Annotated[
        list[str] | None,
        typer.Option(help="eager, best, best-full (no quantised slots), or as in wm=inductor/bf16,image=eager/fp32."),
    ] = None,
    option: Annotated[list[str] | None, typer.Option(help="Of the pipeline, as in steps=10.")] = None,
    units: Annotated[int, typer.Option(help="Steady units of each mix.")] = 20,
    minutes: Annotated[float, typer.Option(help="The rounds of all mixes end after this time.")] = 10.0,
    device: Annotated[str | None, typer.Option(help="cpu or cuda (default: cuda where there is one).")] = None,
    threads: Annotated[int, typer.Option(help="CPU threads (default: all cores).")] = 0,
    seed: Annotated[int, typer.Option(help="Seed of the random weights.")] = 0,
    input_seed: Annotated[int, typer.Option(help="Seed of noise, actions and conditions.")] = 0,
    checkpoint: Annotated[list[str] | None, typer.Option(help="Weights of a slot: SLOT=FILE.")] = None,
    deadline: Annotated[
        float | None, typer.Option(help="Seconds a build may take (default: 600; 1200 for a GiB of weights and more).")
    ] = None,
    runs: Runs = None,
    note: Annotated[str, typer.Option(help="Goes into the records and the history.")] = "",
    resume: Annotated[bool, typer.Option("--resume", help="Finish the newest unfinished run of this plan.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would run.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 if any mix is not ok.")] = False,
    as_json: Json = False,
) -> None:
    """Run whole frames with a mix of variants, unit by unit beside others, and record where the time goes."""
    from dataclasses import replace

    from rich.console import Console

    from bakeoff.cli.pages import update_pages, update_plots
    from bakeoff.machine import paths
    from bakeoff.pipeline.dry_run import estimate
    from bakeoff.pipeline.plan import make_pipeline_plan
    from bakeoff.pipeline.request import PipelineRequest
    from bakeoff.pipeline.run import continue_run, run_pipeline
    from bakeoff.plan.request import with_deadline
    from bakeoff.record.store import load_all
    from bakeoff.report.text import pipeline as page
    from bakeoff.report.text import pipeline_plan
    from bakeoff.sweep.progress import TerminalProgress

    short("--note", note)
    if any(":" in text for text in (name, *(mix or []))):
        sys.path.insert(0, str(Path.cwd()))
    request = PipelineRequest(
        pipeline=name,
        preset=named("--preset", preset),
        mixes=tuple(named("--mix", text) for text in mix or []),
        options=tuple(named("--option", text) for text in option or []),
        units=units,
        minutes=minutes,
        device=named("--device", device),
        threads=threads,
        weight_seed=seed,
        input_seed=input_seed,
        checkpoints=tuple(named("--checkpoint", text) for text in checkpoint or []),
    )
    if deadline is not None:
        request = replace(request, policy=with_deadline(request.policy, deadline))
    folder = records_folder(runs)
    plan = make_pipeline_plan(request, folder)
    warn(load_all(folder).problems)
    if dry_run:
        if resume:
            _, kept = continue_run(plan, folder, paths.cache_folder())
            plan = replace(plan, mixes=tuple(mix for mix in plan.mixes if str(mix.mix) not in kept))
        costs = estimate(plan, folder)
        if as_json:
            print_json(costs)
        else:
            print_text(pipeline_plan.render(costs))
        return
    for text in plan.notes:
        say(text)
    with TerminalProgress(Console(stderr=True)) as progress:
        done = run_pipeline(plan, folder, note, resume, progress)
    if as_json:
        ids = [entry.id for entry in done.stored]
        print_json(
            {"run": done.run, "records": ids, "interrupted": done.interrupted, "mixes": page.summary(done.stored)}
        )
    elif done.stored:
        print_text(f"\n{page.render(done.stored)}\n")
    update_pages(folder)
    update_plots(folder, plan.pipeline.name)
    _exit(done, strict)


def _exit(done: "Done", strict: bool) -> None:
    """Exit with 130 where it was interrupted, 3 where nothing was measured, 1 for `strict` and a mix that is not ok."""
    from bakeoff.record.schema import MEASURED

    if done.interrupted:
        fail(f"interrupted; not run: {', '.join(done.interrupted)}; the same command with --resume runs them", 130)
    statuses = [entry.record.status for entry in done.stored]
    if not any(status in MEASURED for status in statuses):
        raise typer.Exit(3)
    if strict and any(status != "ok" for status in statuses):
        raise typer.Exit(1)
