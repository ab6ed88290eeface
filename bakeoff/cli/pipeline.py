"""The command that runs whole frames: a pipeline with one variant for each component."""

from typing import Annotated

import typer

from bakeoff.cli.common import Deadline, DryRun, Json, Monitor, Runs, app, named, records_folder, short
from bakeoff.cli.mixes import (
    Checkpoints,
    Device,
    InputSeed,
    Manner,
    Minutes,
    Note,
    Options,
    Preset,
    Resume,
    Seed,
    Strict,
    Threads,
    find_user_code,
    run_mixes,
)


@app.command()
def pipeline(
    name: Annotated[str, typer.Argument(metavar="PIPELINE", help="owl, matrix, toy, or mine.py:Loop.")],
    preset: Preset = None,
    mix: Annotated[
        list[str] | None,
        typer.Option(help="eager, best, best-full (no quantised slots), or as in wm=inductor/bf16,image=eager/fp32."),
    ] = None,
    option: Options = None,
    units: Annotated[int, typer.Option(help="Steady units of each mix.")] = 20,
    minutes: Minutes = 10.0,
    device: Device = None,
    threads: Threads = 0,
    seed: Seed = 0,
    input_seed: InputSeed = 0,
    checkpoint: Checkpoints = None,
    deadline: Deadline = None,
    monitor: Monitor = False,
    runs: Runs = None,
    note: Note = "",
    resume: Resume = False,
    dry_run: DryRun = False,
    strict: Strict = False,
    as_json: Json = False,
) -> None:
    """Run whole frames with a mix of variants, unit by unit beside others, and record where the time goes."""
    from dataclasses import replace

    from bakeoff.pipeline.request import PipelineRequest
    from bakeoff.plan.request import with_deadline
    from bakeoff.report.pages import pipelines as page

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
        monitor=monitor,
    )
    if deadline is not None:
        request = replace(request, policy=with_deadline(request.policy, deadline))
    manner = Manner(note, resume, dry_run, strict, as_json)
    run_mixes(request, records_folder(runs), manner, page.of_runs, lambda stored: {"mixes": page.as_rows(stored)})
