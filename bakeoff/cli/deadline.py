"""The command `deadline`: run a mix for minutes, and say whether it holds a frame rate."""

from typing import Annotated

import typer

from bakeoff.cli.common import DryRun, Json, Runs, app, named, records_folder, short
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
from bakeoff.models.errors import BakeoffError


@app.command()
def deadline(
    name: Annotated[str, typer.Argument(metavar="PIPELINE", help="owl, matrix, or mine.py:Loop.")],
    preset: Preset = None,
    mix: Annotated[
        list[str] | None,
        typer.Option(help="best, best-full, eager, or as in wm=inductor/bf16; one after the other (default: best)."),
    ] = None,
    option: Options = None,
    minutes: Annotated[float, typer.Option(help="Of each mix, once its times have settled.")] = 10.0,
    fps: Annotated[
        float | None, typer.Option(help="Frames a second to judge by (default: the pipeline's own rate, or 24).")
    ] = None,
    paced: Annotated[
        float | None, typer.Option(help="Ask for units at this many frames a second, not as fast as they come.")
    ] = None,
    buffer: Annotated[int, typer.Option(help="Units that are ready when the playback starts.")] = 1,
    device: Device = None,
    threads: Threads = 0,
    seed: Seed = 0,
    input_seed: InputSeed = 0,
    checkpoint: Checkpoints = None,
    runs: Runs = None,
    note: Note = "",
    resume: Resume = False,
    dry_run: DryRun = False,
    strict: Strict = False,
    as_json: Json = False,
) -> None:
    """Does a mix hold a frame rate for minutes? Units too late, stalls, percentiles, droop, energy."""
    from bakeoff.pipeline.request import PipelineRequest
    from bakeoff.record.pipeline import Sustained
    from bakeoff.report.pages import deadline as page

    short("--note", note)
    if paced is not None and fps is not None:
        raise BakeoffError("--paced says the rate to judge by; leave --fps out", "bad-option")
    if 0 in (fps, paced):
        raise BakeoffError("0 frames a second: give a rate above 0", "bad-option")
    find_user_code([name, *(mix or [])])
    request = PipelineRequest(
        pipeline=name,
        preset=named("--preset", preset),
        mixes=tuple(named("--mix", text) for text in mix or ["best"]),
        options=tuple(named("--option", text) for text in option or []),
        minutes=minutes,
        device=named("--device", device),
        threads=threads,
        weight_seed=seed,
        input_seed=input_seed,
        checkpoints=tuple(named("--checkpoint", text) for text in checkpoint or []),
        sustained=Sustained(paced or fps or 0.0, paced is not None, buffer),
    )
    manner = Manner(note, resume, dry_run, strict, as_json)
    run_mixes(request, records_folder(runs), manner, page.of_runs, lambda stored: {"mixes": page.as_rows(stored)})
