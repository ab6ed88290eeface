"""The command inspect: into an artifact, or where the time of somebody's own Python goes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bakeoff.cli.common import Json, Runs, app, error_line, names, print_json, print_text, records_folder, say
from bakeoff.models.errors import BakeoffError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bakeoff.process.inspected import Recorded


@app.command()
def inspect(
    what: Annotated[str, typer.Argument(metavar="FOLDER|FILE.py:NAME", help="An artifact, or a function of yours.")],
    passes: Annotated[int, typer.Option(help="Timed passes of your function.")] = 5,
    depth: Annotated[int, typer.Option(help="Levels of modules shown below those that it calls itself.")] = 1,
    threads: Annotated[int, typer.Option(help="CPU threads (default: all cores).")] = 0,
    seconds: Annotated[float, typer.Option(help="Time limit of the whole inspection.")] = 3600.0,
    sweep: Annotated[
        list[str] | None,
        typer.Option(metavar="NAMES", help="Modules and methods to record and sweep, comma-separated, as printed."),
    ] = None,
    backends: Annotated[list[str] | None, typer.Option(help="Of these sweeps, as in eager,inductor[freezing].")] = None,
    runs: Runs = None,
    as_json: Json = False,
) -> None:
    """What an artifact is, takes, gives and needs; or which modules of your own Python are worth a compiler."""
    if (":" in what or what.endswith(".py")) and not Path(what).is_dir():
        wanted = names("--sweep", sweep)
        recorded = _inspect_callable(what, passes, depth, threads, seconds, wanted, runs, as_json)
        _sweep(recorded, backends, threads, runs, as_json)
    else:
        _inspect_artifact(Path(what), as_json)


def _inspect_artifact(folder: Path, as_json: bool) -> None:
    """No file of it but the manifest is read."""
    from bakeoff.export import read_manifest, requirements
    from bakeoff.report.text import artifact

    manifest = read_manifest(folder)
    unmet = requirements.unmet(manifest.needs, requirements.facts())
    if as_json:
        print_json({"manifest": manifest, "unmet": unmet})
    else:
        print_text(artifact.inspect(manifest, unmet))


def _inspect_callable(
    what: str,
    passes: int,
    depth: int,
    threads: int,
    seconds: float,
    wanted: tuple[str, ...],
    runs: str | None,
    as_json: bool,
) -> "tuple[Recorded, ...]":
    from rich.console import Console

    from bakeoff.cli.progress import TerminalProgress
    from bakeoff.inspection import page
    from bakeoff.inspection.bounds import candidates, worth_sweeping
    from bakeoff.inspection.run import inspect_file, machine_ceilings, split_reference
    from bakeoff.machine import host

    if not 2 <= passes <= 1000:
        raise BakeoffError(f"--passes {passes}: give 2 to 1000", "bad-option")
    if not 0 <= depth <= 100:
        raise BakeoffError(f"--depth {depth}: give 0 to 100", "bad-option")
    if not 0 <= threads <= 1024:
        raise BakeoffError(f"--threads {threads}: give 0 for all cores, or 1 to 1024", "bad-option")
    if not 0 < seconds <= 86400:
        raise BakeoffError(f"--seconds {seconds:g}: give more than 0 and at most 86400", "bad-option")
    file, name = split_reference(what)
    threads = threads or host.usable_cores()
    with TerminalProgress(Console(stderr=True)) as progress:
        result = inspect_file(file, name, passes, threads, seconds, progress, wanted)
    found = candidates(
        result.inspection,
        host.read_host(),
        machine_ceilings(result.inspection.device, threads, records_folder(runs)),
    )
    if as_json:
        print_json(
            {
                "inspection": result.inspection,
                "candidates": found,
                "worth_sweeping": worth_sweeping(found),
                "recorded": result.recorded,
            }
        )
    else:
        print_text(f"\n{page.render(what, result.inspection, found, depth)}")
        for one in result.recorded:
            print_text(page.recorded_text(one))
    return result.recorded


def _sweep(
    recorded: "Sequence[Recorded]", backends: list[str] | None, threads: int, runs: str | None, as_json: bool
) -> None:
    """Sweep what was recorded, one after another; exit 1 if something was not recorded, else as the worst sweep."""
    from bakeoff.cli.sweep import sweep

    worst = 0
    for one in recorded:
        if one.problem:
            say(f"{one.name} was not recorded: {one.problem}")
            worst = max(worst, 1)
            continue
        try:
            sweep(one.folder, backends=backends, threads=threads, runs=runs, as_json=as_json)
        except typer.Exit as end:
            if end.exit_code > 128:
                raise
            worst = max(worst, end.exit_code)
        except BakeoffError as error:
            say(error_line(f"{one.name}: {error}", error.code))
            worst = max(worst, 2)
    if worst:
        raise typer.Exit(worst)
