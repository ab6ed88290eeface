"""The command `rollout`: compare many units of a pipeline with the reference loop; nothing is timed."""

from dataclasses import replace
from typing import Annotated

import typer

from bakeoff.cli.pipeline import PipelineOptions, on_pipelines, run_mixes


@on_pipelines("minutes", "monitor")
def rollout(options: PipelineOptions, units: Annotated[int, typer.Option(help="Units of the session.")] = 40) -> None:
    """Whether a mix stays right: each of many units against the reference loop, and how it drifts when run free."""
    from bakeoff.record.rollout import HORIZON_DB
    from bakeoff.report.pages import rollout as page

    mixes = options.request.mixes or ("best",)
    options = replace(options, request=replace(options.request, mixes=mixes, units=units, horizon_db=HORIZON_DB))
    run_mixes(options, page.of_runs, lambda stored: {"rollouts": page.as_rows(stored)})
