"""The command `budget`: which mix of a pipeline to ship, by its records and by running the best two."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bakeoff.cli.common import named, names, print_document, print_json, print_written, say, warn
from bakeoff.cli.pipeline import PipelineOptions, Schedules, on_pipelines, run_mixes
from bakeoff.models.errors import BakeoffError

if TYPE_CHECKING:
    from bakeoff.models.component import Quantisation
    from bakeoff.record.store import StoredPipeline
    from bakeoff.report.document import Document


@on_pipelines("mix", "minutes", "monitor")
def budget(
    options: PipelineOptions,
    objective: Annotated[
        str,
        typer.Option(
            help="Limits of the fastest mix: mean<=40ms, fps>=24, p99<=50ms, memory<=8GiB, sqnr>=30, first<=5s."
        ),
    ] = "mean",
    classes: Annotated[
        list[str] | None, typer.Option(help="Kinds of quantisation that are allowed, or none; as in fp8,dynamic.")
    ] = None,
    export: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write the confirmed mix there, from backends that can.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a mix that is there.")] = False,
    schedule: Schedules = None,
) -> None:
    """Which mix to ship: by this machine's records and, unless --dry-run, by running the best two side by side.

    Exits with 1 if no mix meets the limits, by the records or when run, and with 3 if nothing could be measured.
    """
    from bakeoff.artifact.export import refuse_target
    from bakeoff.artifact.mix import export_mix, is_whole
    from bakeoff.cli.progress import TerminalProgress
    from bakeoff.models.pipelines.schedule import SEQUENTIAL
    from bakeoff.pipeline.budget import by_records, contenders
    from bakeoff.pipeline.plan import make_programs
    from bakeoff.record.budget import shipped
    from bakeoff.record.objective import OF_BUDGET, parse_objective
    from bakeoff.record.store import load_all
    from bakeoff.report.pages import budget as page
    from bakeoff.report.pages import pipelines

    asked, allowed = parse_objective(named("--objective", objective), OF_BUDGET), _classes(classes)
    schedules = tuple(named("--schedule", text) for text in schedule or [])
    if export is not None:
        if schedules:
            raise BakeoffError(
                "--schedule: an exported mix is played one call after the other; leave it out", "bad-option"
            )
        refuse_target(export, force, is_whole)
    with TerminalProgress() as progress:
        programs = make_programs(options.request, (), options.folder, progress)
    loop, known = programs.loop, load_all(options.folder)
    found, misses, notes = by_records(programs, asked, allowed, export is not None)

    def show(stored: "Sequence[StoredPipeline]") -> "Document":
        subject = f"{loop.name}:{loop.preset}{f' ({loop.label})' if loop.label else ''}"
        return page.document(subject, loop.unit, found, misses, stored, notes)

    def as_data(stored: "Sequence[StoredPipeline]") -> dict[str, Any]:
        chosen = shipped(stored)
        ship = {"record": chosen.id, "mix": str(chosen.record.mix)} if chosen is not None else None
        return {"budget": found, "misses": misses, "notes": notes, "ship": ship, "mixes": pipelines.as_rows(stored)}

    chosen = None
    if options.dry_run or not found.candidates:
        warn(known.problems)
        print_json(as_data(())) if options.as_json else print_document(show(()))
    else:
        mixes = tuple(each.slots for each in contenders(found))
        every = tuple(dict.fromkeys((SEQUENTIAL, *schedules))) if schedules else ()
        request = replace(options.request, mixes=mixes, budget=found, schedules=every)
        done = run_mixes(replace(options, request=request), show, as_data)
        chosen = shipped(done.stored) if done is not None else None
    if export is not None and chosen is None:
        say(f"nothing is written to {export}: no mix that ran can be shipped")
    elif export is not None and chosen is not None:
        command = f"bakeoff budget {loop.typed} --objective '{asked}'"
        with TerminalProgress() as progress:
            export_mix(programs, chosen, export, force, options.folder, command, progress)
        if not options.as_json:
            print_written([export])
    if not found.candidates or (chosen is None and not options.dry_run):
        raise typer.Exit(1)


def _classes(typed: list[str] | None) -> "tuple[Quantisation, ...] | None":
    """Return the kinds of quantisation that are allowed; None: all. Raises BakeoffError for an unknown one."""
    from bakeoff.models.component import LEAST_SQNR_DB

    given = names("--classes", typed)
    known = {str(kind): kind for kind in LEAST_SQNR_DB}
    if given == ("none",):
        return ()
    if not known.keys() >= set(given):
        text = f"--classes {','.join(given)}: give none, or some of {', '.join(known)}"
        raise BakeoffError(text, "bad-option")
    return tuple(known[each] for each in given) or None
