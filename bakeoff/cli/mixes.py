"""What the commands share that run mixes of a pipeline: plan, dry run, run, pages, exit codes."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bakeoff.cli.common import fail, print_document, print_json, say, warn

if TYPE_CHECKING:
    from bakeoff.pipeline.request import PipelineRequest
    from bakeoff.pipeline.run import Done
    from bakeoff.record.store import StoredPipeline
    from bakeoff.report.document import Document

Preset = Annotated[str | None, typer.Option(help="Preset (default: the pipeline's for the device).")]
Options = Annotated[list[str] | None, typer.Option(help="Of the pipeline, as in steps=10.")]
Minutes = Annotated[float, typer.Option(help="The rounds of all mixes end after this time.")]
Device = Annotated[str | None, typer.Option(help="cpu or cuda (default: cuda where there is one).")]
Threads = Annotated[int, typer.Option(help="CPU threads (default: all cores).")]
Seed = Annotated[int, typer.Option(help="Seed of the random weights.")]
InputSeed = Annotated[int, typer.Option(help="Seed of noise, actions and conditions.")]
Checkpoints = Annotated[list[str] | None, typer.Option(help="Weights of a slot: SLOT=FILE.")]
Note = Annotated[str, typer.Option(help="Goes into the records and the history.")]
Resume = Annotated[bool, typer.Option("--resume", help="Finish the newest unfinished run of this plan.")]
Strict = Annotated[bool, typer.Option("--strict", help="Exit 1 if any mix is not ok.")]


@dataclass(frozen=True, slots=True)
class Manner:
    """How a command runs and prints, apart from what is run."""

    note: str
    resume: bool
    dry_run: bool
    strict: bool
    as_json: bool


def find_user_code(texts: Sequence[str]) -> None:
    """Make the current folder importable where a name is a user's own package.module:ATTRIBUTE."""
    if any(":" in text for text in texts):
        sys.path.append(str(Path.cwd()))  # last, so that a file there hides no installed module


def run_mixes(
    request: "PipelineRequest",
    folder: Path,
    manner: Manner,
    render: Callable[[Sequence["StoredPipeline"]], "Document"],
    as_data: Callable[[Sequence["StoredPipeline"]], Mapping[str, object]],
) -> "Done | None":
    """Run the request's mixes and print them by `render`, or by `as_data` as JSON; update the pages beside the records.

    Returns None after a dry run. Raises typer.Exit with 130 where it was interrupted, 3 where nothing was measured, and
    1 for `strict` and a mix that is not ok.
    """
    from bakeoff.cli.pages import update_pages
    from bakeoff.cli.progress import TerminalProgress
    from bakeoff.machine import paths
    from bakeoff.pipeline.plan import estimate, make_pipeline_plan
    from bakeoff.pipeline.run import continue_run, run_pipeline
    from bakeoff.record.store import load_all
    from bakeoff.report.pages import pipeline_plan

    with TerminalProgress() as progress:
        plan = make_pipeline_plan(request, folder, progress)
    warn(load_all(folder).problems)
    if manner.dry_run:
        if manner.resume:
            _, kept = continue_run(plan, folder, paths.cache_folder())
            plan = replace(plan, mixes=tuple(mix for mix in plan.mixes if str(mix.mix) not in kept))
        costs = estimate(plan, folder)
        print_json(costs) if manner.as_json else print_document(pipeline_plan.document_of(costs))
        return None
    for text in plan.notes:
        say(text)
    with TerminalProgress() as progress:
        done = run_pipeline(plan, folder, manner.note, manner.resume, progress)
    if manner.as_json:
        ids = [entry.id for entry in done.stored]
        print_json({"run": done.run, "records": ids, "interrupted": done.interrupted, **as_data(done.stored)})
    elif done.stored:
        print_document(render(done.stored))
    update_pages(folder, plan.loop.name)
    _exit(done, manner.strict)
    return done


def _exit(done: "Done", strict: bool) -> None:
    from bakeoff.record.schema import MEASURED

    if done.interrupted:
        fail(f"interrupted; not run: {', '.join(done.interrupted)}; the same command with --resume runs them", 130)
    statuses = [entry.record.status for entry in done.stored]
    if not any(status in MEASURED for status in statuses):
        raise typer.Exit(3)
    if strict and any(status != "ok" for status in statuses):
        raise typer.Exit(1)
