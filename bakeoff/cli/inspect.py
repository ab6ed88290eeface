"""The command `inspect`: describes an artifact, or shows where the time of a user's own Python goes."""

from pathlib import Path
from typing import Annotated

import typer

from bakeoff.cli.common import Json, Threads, app, check_range, names, print_document, print_json
from bakeoff.models.errors import BakeoffError


@app.command()
def inspect(
    what: Annotated[str, typer.Argument(metavar="FOLDER|FILE.py:NAME", help="An artifact, a mix, or your function.")],
    passes: Annotated[int, typer.Option(help="Timed passes of your function.")] = 5,
    depth: Annotated[int, typer.Option(help="Levels of modules shown below those that it calls itself.")] = 1,
    threads: Threads = 0,
    record: Annotated[
        list[str] | None,
        typer.Option(metavar="NAMES", help="Modules and methods whose calls to keep for a sweep, as printed."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what an artifact is, takes, gives and needs; or which modules of your own Python are worth a compiler."""
    wanted = names("--record", record)
    if (":" in what or what.endswith(".py")) and not Path(what).is_dir():
        _inspect_callable(what, passes, depth, threads, wanted, as_json)
    elif wanted:
        raise BakeoffError(f"--record: {what} is an artifact's folder; give FILE.py:NAME", "bad-option")
    else:
        _inspect_artifact(Path(what), as_json)


def _inspect_artifact(folder: Path, as_json: bool) -> None:
    """Print what an artifact or a mix is and what this host lacks for it; no program is read."""
    from bakeoff.export import read_manifest, requirements
    from bakeoff.export.mix import is_mix, read_mix
    from bakeoff.report.pages import artifact

    if is_mix(folder):
        mix = read_mix(folder)
        held = {name: read_manifest(folder / name) for name in mix.digests}
    else:
        mix, held = None, {"": read_manifest(folder)}
    needs = dict.fromkeys(need for manifest in held.values() for need in manifest.needs)
    unmet = requirements.unmet(tuple(needs), requirements.facts())
    if as_json:
        print_json({"manifest": mix or held[""], "unmet": unmet})
    else:
        print_document(artifact.inspected_mix(folder, mix, held, unmet) if mix else artifact.inspected(held[""], unmet))


def _inspect_callable(what: str, passes: int, depth: int, threads: int, wanted: tuple[str, ...], as_json: bool) -> None:
    """Print where the time of a pass goes, and what was recorded; exit with 1 if a wanted module was not recorded."""
    from bakeoff.bring.inspect import inspect_file, split_reference
    from bakeoff.cli.progress import TerminalProgress
    from bakeoff.machine import host
    from bakeoff.report.pages import inspection

    check_range("--passes", passes, 2, 1000)
    check_range("--depth", depth, 0, 100)
    check_range("--threads", threads, 0, 1024)
    file, name = split_reference(what)
    threads = threads or host.usable_cores()
    with TerminalProgress() as progress:
        inspected = inspect_file(file, name, passes, threads, progress, wanted)
    found = inspection.candidates(inspected)
    if as_json:
        print_json({"inspection": inspected, "candidates": found, "worth_sweeping": inspection.worth_sweeping(found)})
    else:
        print_document(inspection.document(what, inspected, found, depth))
    if any(one.problem for one in inspected.recorded):
        raise typer.Exit(1)
