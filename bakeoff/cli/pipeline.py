"""The command that runs whole frames: a pipeline with one variant for each component."""

from typing import Annotated

import typer

from bakeoff.cli.common import Json, Runs, app, named, records_folder, short
from bakeoff.cli.mixes import Manner, find_user_code, run_mixes


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

    from bakeoff.pipeline.request import PipelineRequest
    from bakeoff.plan.request import with_deadline
    from bakeoff.report.text import pipeline as page

    short("--note", note)
    find_user_code([name, *(mix or [])])
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
    manner = Manner(note, resume, dry_run, strict, as_json)
    run_mixes(request, records_folder(runs), manner, page.render, lambda stored: {"mixes": page.summary(stored)})
