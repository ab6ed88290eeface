"""The command `rollout`: compare many units of a pipeline with the reference loop; nothing is timed."""

from dataclasses import replace
from typing import Annotated

import typer

from bakeoff.cli.pipeline import PipelineOptions, on_pipelines, run_mixes


@on_pipelines("minutes", "monitor")
def rollout(
    options: PipelineOptions,
    units: Annotated[int, typer.Option(help="Units of the session.")] = 40,
    threshold: Annotated[float, typer.Option(help="In dB: a curve's horizon is its first unit below.")] = 30.0,
) -> None:
    """Check that a mix stays right: each of many units against the reference loop, and how it drifts when run free."""
    from bakeoff.report.pages import rollout as page

    mixes = options.request.mixes or ("best",)
    options = replace(options, request=replace(options.request, mixes=mixes, units=units, horizon_db=threshold))
    run_mixes(options, page.of_runs, lambda stored: {"rollouts": page.as_rows(stored)})
