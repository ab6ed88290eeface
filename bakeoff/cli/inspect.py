"""The command `inspect`: describes an artifact, or shows where the time of a user's own Python goes."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bakeoff.cli.common import (
    Backends,
    DryRun,
    Dtypes,
    Final,
    Json,
    Runs,
    Threads,
    TimeLimit,
    app,
    check_range,
    names,
    print_document,
    print_json,
    records_folder,
)
from bakeoff.cli.options import SweepOptions
from bakeoff.cli.recorded import check, sweep_recorded
from bakeoff.models.errors import BakeoffError

if TYPE_CHECKING:
    from bakeoff.process.inspected import InspectResult
    from bakeoff.report.pages.inspection import Candidate


@app.command()
def inspect(
    what: Annotated[str, typer.Argument(metavar="FOLDER|FILE.py:NAME", help="An artifact, a mix, or your function.")],
    passes: Annotated[int, typer.Option(help="Timed passes of your function.")] = 5,
    depth: Annotated[int, typer.Option(help="Levels of modules shown below those that it calls itself.")] = 1,
    threads: Threads = 0,
    seconds: Annotated[float, typer.Option(help="Time limit of the whole inspection.")] = 3600.0,
    sweep: Annotated[
        list[str] | None,
        typer.Option(metavar="NAMES", help="Modules and methods to record and sweep, comma-separated, as printed."),
    ] = None,
    backends: Backends = None,
    dtype: Dtypes = None,
    time_limit: TimeLimit = None,
    final: Final = True,
    dry_run: DryRun = False,
    runs: Runs = None,
    as_json: Json = False,
) -> None:
    """Say what an artifact is, takes, gives and needs; or which modules of your own Python are worth a compiler.

    --backends, --dtype, --time-limit (of all together), --no-final and --dry-run are those of the sweeps.
    """
    wanted = names("--sweep", sweep)
    given = {
        "--backends": backends,
        "--dtype": dtype,
        "--time-limit": time_limit,
        "--no-final": not final,
        "--dry-run": dry_run,
    }
    alone = next((option for option, value in given.items() if value), None)
    if alone and not wanted:
        raise BakeoffError(f"{alone} is for the sweeps of --sweep; name modules, as in --sweep unet", "bad-option")
    if (":" not in what and not what.endswith(".py")) or Path(what).is_dir():
        if wanted:
            raise BakeoffError(f"--sweep: {what} is an artifact's folder; give FILE.py:NAME", "bad-option")
        _inspect_artifact(Path(what), as_json)
        return
    options = SweepOptions(
        [what],
        backends=backends,
        dtype=dtype,
        time_limit=time_limit,
        final=final,
        threads=threads,
        runs=runs,
        dry_run=dry_run,
        as_json=as_json,
    )
    if wanted:
        check(options)
    result, found = _inspect_callable(what, passes, depth, threads, seconds, wanted, runs, as_json)
    sweeps: dict[str, object] = {}
    code = sweep_recorded(result.recorded, options, sweeps)
    if as_json:
        print_json(_document(result, found, sweeps))
    if code:
        raise typer.Exit(code)


def _document(result: "InspectResult", found: "tuple[Candidate, ...]", sweeps: dict[str, object]) -> dict[str, object]:
    """Return all that `--json` prints."""
    from bakeoff.report.pages.inspection import worth_sweeping

    return {
        "inspection": result.inspection,
        "candidates": found,
        "worth_sweeping": worth_sweeping(found),
        "recorded": result.recorded,
        "sweeps": sweeps,
    }


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


def _inspect_callable(
    what: str,
    passes: int,
    depth: int,
    threads: int,
    seconds: float,
    wanted: tuple[str, ...],
    runs: str | None,
    as_json: bool,
) -> "tuple[InspectResult, tuple[Candidate, ...]]":
    from bakeoff.bring.inspect import inspect_file, machine_ceilings, split_reference
    from bakeoff.cli.progress import TerminalProgress
    from bakeoff.machine import host
    from bakeoff.record.store import load_all
    from bakeoff.report.pages import inspection

    check_range("--passes", passes, 2, 1000)
    check_range("--depth", depth, 0, 100)
    check_range("--threads", threads, 0, 1024)
    check_range("--seconds", seconds, 0.1, 86400)
    file, name = split_reference(what)
    threads = threads or host.usable_cores()
    records = load_all(records_folder(runs))
    with TerminalProgress() as progress:
        result = inspect_file(file, name, passes, threads, seconds, progress, wanted)
    ceilings = machine_ceilings(result.inspection.device, threads, records)
    found = inspection.candidates(result.inspection, host.read_host(), ceilings)
    if not as_json:
        about = inspection.document(what, result.inspection, found, depth, runs or "")
        recorded = inspection.recorded(result.recorded)
        print_document(about if recorded is None else replace(about, blocks=(*about.blocks, recorded)))
    return result, found
