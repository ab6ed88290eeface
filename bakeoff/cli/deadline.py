"""The command `deadline`: run a mix for minutes, and say whether it holds a frame rate."""

from dataclasses import replace
from typing import Annotated

import typer

from bakeoff.cli.pipeline import PipelineOptions, on_pipelines, run_mixes
from bakeoff.models.errors import BakeoffError


@on_pipelines("units", "deadline", "monitor")
def deadline(
    options: PipelineOptions,
    minutes: Annotated[float, typer.Option(help="Of each mix, once its times have settled.")] = 10.0,
    fps: Annotated[
        float | None, typer.Option(help="Frames a second to judge by (default: the pipeline's own rate, or 24).")
    ] = None,
    paced: Annotated[
        float | None, typer.Option(help="Ask for units at this many frames a second, not as fast as they come.")
    ] = None,
    buffer: Annotated[int, typer.Option(help="Units that are ready when the playback starts.")] = 1,
) -> None:
    """Does a mix hold a frame rate for minutes? Units too late, stalls, percentiles, droop, energy."""
    from bakeoff.record.pipeline import Sustained
    from bakeoff.report.pages import deadline as page

    if paced is not None and fps is not None:
        raise BakeoffError("--paced says the rate to judge by; leave --fps out", "bad-option")
    if 0 in (fps, paced):
        raise BakeoffError("0 frames a second: give a rate above 0", "bad-option")
    sustained = Sustained(paced or fps or 0.0, paced is not None, buffer)
    mixes = options.request.mixes or ("best",)
    options = replace(options, request=replace(options.request, mixes=mixes, minutes=minutes, sustained=sustained))
    run_mixes(options, page.of_runs, lambda stored: {"mixes": page.as_rows(stored)})
