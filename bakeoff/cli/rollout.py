"""The command `rollout`: compare many units of a pipeline with the reference loop; nothing is timed."""

from dataclasses import replace
from typing import Annotated

import typer

from bakeoff.cli.common import Deadline, DryRun, Json, Runs, app, named, records_folder, short
from bakeoff.cli.pipeline import (
    Checkpoints,
    Device,
    InputSeed,
    Manner,
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
def rollout(
    name: Annotated[str, typer.Argument(metavar="PIPELINE", help="owl, matrix, or mine.py:Loop.")],
    preset: Preset = None,
    mix: Annotated[
        list[str] | None,
        typer.Option(help="eager, best, best-full, or as in wm=inductor/bf16,image=eager/bf16 (default: best)."),
    ] = None,
    option: Options = None,
    units: Annotated[int, typer.Option(help="Units of the session.")] = 40,
    threshold: Annotated[float, typer.Option(help="In dB: a curve's horizon is its first unit below.")] = 30.0,
    device: Device = None,
    threads: Threads = 0,
    seed: Seed = 0,
    input_seed: InputSeed = 0,
    checkpoint: Checkpoints = None,
    deadline: Deadline = None,
    runs: Runs = None,
    note: Note = "",
    resume: Resume = False,
    dry_run: DryRun = False,
    strict: Strict = False,
    as_json: Json = False,
) -> None:
    """Check that a mix stays right: each of many units against the reference loop, and how it drifts when run free."""
    from bakeoff.pipeline.request import PipelineRequest
    from bakeoff.plan.request import with_deadline
    from bakeoff.report.pages import rollout as page

    short("--note", note)
    find_user_code([name, *(mix or [])])
    request = PipelineRequest(
        pipeline=name,
        preset=named("--preset", preset),
        mixes=tuple(named("--mix", text) for text in mix or ["best"]),
        options=tuple(named("--option", text) for text in option or []),
        units=units,
        device=named("--device", device),
        threads=threads,
        weight_seed=seed,
        input_seed=input_seed,
        checkpoints=tuple(named("--checkpoint", text) for text in checkpoint or []),
        horizon_db=threshold,
    )
    if deadline is not None:
        request = replace(request, policy=with_deadline(request.policy, deadline))
    manner = Manner(note, resume, dry_run, strict, as_json)
    run_mixes(request, records_folder(runs), manner, page.of_runs, lambda stored: {"rollouts": page.as_rows(stored)})
