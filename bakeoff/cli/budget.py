"""The command `budget`: which mix of a pipeline to ship, by its records and by running the best."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bakeoff.cli.common import fail, named, names, print_document, print_json, print_written, say, warn
from bakeoff.cli.pipeline import PipelineOptions, on_pipelines
from bakeoff.models.errors import BakeoffError

if TYPE_CHECKING:
    from bakeoff.models.component import Quantisation
    from bakeoff.record.pipeline import Budget, Forecast
    from bakeoff.record.store import StoredPipeline


@on_pipelines("mix", "strict")
def budget(
    options: PipelineOptions,
    objective: Annotated[
        str,
        typer.Option(
            help="mean, p99, memory or energy, and limits: fps>=24,p99<=50ms,memory<=8GiB,sqnr>=30,build<=600s."
        ),
    ] = "mean",
    classes: Annotated[
        list[str] | None,
        typer.Option(help="Kinds of quantisation that are allowed, or none (default: all), as in fp8,dynamic."),
    ] = None,
    export: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write the confirmed mix there, from backends that can.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a mix that is there.")] = False,
) -> None:
    """Choose the mix to ship: by this machine's records and, unless --dry-run, by running the best two side by side.

    Exits with 1 if no mix meets the limits, by the records or when run, and with 3 if nothing could be measured.
    """
    from bakeoff.artifact.export import refuse_target
    from bakeoff.artifact.mix import export_mix, is_whole
    from bakeoff.cli.pages import update_pages
    from bakeoff.cli.progress import TerminalProgress
    from bakeoff.pipeline.budget import confirm
    from bakeoff.pipeline.choices import solution
    from bakeoff.pipeline.plan import make_programs
    from bakeoff.record.budget import shipped
    from bakeoff.record.objective import OF_BUDGET, parse_objective
    from bakeoff.record.schema import MEASURED
    from bakeoff.record.store import load_all
    from bakeoff.report.pages import budget as page
    from bakeoff.report.pages import pipelines

    goal, allowed = parse_objective(named("--objective", objective), OF_BUDGET), _classes(classes)
    if export is not None:
        refuse_target(export, force, is_whole)
    folder = options.folder
    known = load_all(folder)
    warn(known.problems)
    with TerminalProgress() as progress:
        programs = make_programs(options.request, (), folder, progress)
    found, lacking = solution(programs, goal, allowed, known.pipelines, export is not None)
    stored: Sequence[StoredPipeline] = ()
    if not options.dry_run:
        stored = confirm(found.budget, lambda budget, mixes: _run(options, budget, mixes))
    chosen = shipped(stored)
    if export is not None and chosen is not None:
        command = f"bakeoff budget {programs.loop.typed} --objective '{goal}'"
        with TerminalProgress() as progress:
            export_mix(programs, chosen, export, force, folder, command, progress)
    if export is not None and chosen is None:
        why = "no mix that ran can be shipped" if stored else "no mix was run"
        say(f"nothing is written to {export}: {why}")
    if options.as_json:
        print_json(
            {
                "budget": found.budget,
                "binding": found.binding,
                "lacking": lacking,
                "ship": {"record": chosen.id, "mix": str(chosen.record.mix)} if chosen is not None else None,
                "mixes": pipelines.as_rows(stored),
                "exported": str(export) if export is not None and chosen is not None else None,
            }
        )
    else:
        loop = programs.loop
        subject = f"{loop.name}:{loop.preset}{f' ({loop.label})' if loop.label else ''}"
        print_document(page.document(subject, loop.unit, found, lacking, stored))
    if stored:
        update_pages(folder, programs.loop.name)
        if not options.as_json:
            held = {entry.id for entry in stored}
            written = page.paths_of(folder, [run for run in load_all(folder).pipelines if run.id in held])
            print_written([*written, *([export] if export is not None and chosen is not None else [])])
    if stored and not any(entry.record.status in MEASURED for entry in stored):
        raise typer.Exit(3)
    if not found.budget.candidates or (stored and chosen is None):
        raise typer.Exit(1)


def _classes(typed: list[str] | None) -> "tuple[Quantisation, ...] | None":
    """Return the kinds of quantisation that are allowed; None: all. Raises BakeoffError for an unknown one."""
    from bakeoff.models.component import LEAST_SQNR_DB

    given = names("--classes", typed)
    known = {str(kind): kind for kind in LEAST_SQNR_DB}
    wrong = next((each for each in given if each not in known and each != "none"), None)
    if wrong is not None or ("none" in given and len(given) > 1):
        text = f"--classes {','.join(given)}: give none, or some of {', '.join(known)}"
        raise BakeoffError(text, "bad-option")
    return tuple(known[each] for each in given if each != "none") if given else None


def _run(options: PipelineOptions, budget: "Budget", mixes: "Sequence[Forecast]") -> "Sequence[StoredPipeline]":
    """Run a round of mixes side by side and return their records; with `--resume`, those of a round that ran before.

    Raises typer.Exit with 130 if it was interrupted.
    """
    from bakeoff.cli.progress import TerminalProgress
    from bakeoff.machine import paths
    from bakeoff.pipeline.plan import make_pipeline_plan
    from bakeoff.pipeline.run import run_pipeline, stored_of
    from bakeoff.sweeps.resume import find_newest

    folder, request = options.folder, replace(options.request, mixes=tuple(each.slots for each in mixes), budget=budget)
    with TerminalProgress() as progress:
        plan = make_pipeline_plan(request, folder, progress)
        before = find_newest(plan.key, folder, paths.cache_folder()) if options.resume else None
        if before is not None and before.finished:
            stored = stored_of(before, folder)
            return [stored[str(mix.mix)] for mix in plan.mixes if str(mix.mix) in stored]
        say(f"Round {budget.round}: {' and '.join(each.slots for each in mixes)}")
        goes_on = options.resume and (before is not None or budget.round == 1)
        done = run_pipeline(plan, folder, options.note, goes_on, progress)
    if done.interrupted:
        fail(f"interrupted; not run: {', '.join(done.interrupted)}; the same command with --resume runs them", 130)
    return done.stored
