"""The command `deadline`: run a mix for minutes, and say whether it holds a frame rate."""

from dataclasses import replace
from typing import Annotated

import typer

from bakeoff.cli.pipeline import PipelineOptions, on_pipelines, run_mixes
from bakeoff.models.errors import BakeoffError


@on_pipelines("units", "deadline")
def deadline(
    options: PipelineOptions,
    minutes: Annotated[float, typer.Option(help="Of each mix, once its times have settled.")] = 10.0,
    fps: Annotated[
        float | None, typer.Option(help="Frames a second of the viewer (default: the pipeline's own rate, or 24).")
    ] = None,
    paced: Annotated[
        bool, typer.Option("--paced", help="Ask for units at that rate, not as fast as they come.")
    ] = False,
    buffer: Annotated[int, typer.Option(help="Units that are ready when the playback starts.")] = 1,
    cold: Annotated[
        bool, typer.Option("--cold", help="Time the first good frame of fresh processes, with and without caches.")
    ] = False,
) -> None:
    """Whether a mix holds a frame rate for minutes: units too late, least buffer, percentiles, droop."""
    from bakeoff.record.pipeline import Sustained
    from bakeoff.report.pages import deadline as page

    if fps == 0:
        raise BakeoffError("0 frames a second: give a rate above 0", "bad-option")
    request = replace(options.request, minutes=minutes, sustained=Sustained(fps or 0.0, paced, buffer), cold=cold)
    request = replace(request, mixes=request.mixes or ("best",))
    run_mixes(replace(options, request=request), page.of_runs, lambda stored: {"mixes": page.as_rows(stored)})
