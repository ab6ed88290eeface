"""The commands that check the lab itself and this machine: selftest, ceilings."""

from typing import Annotated

import typer

from bakeoff.cli.common import Json, Runs, app, fail, named, print_json, print_text, records_folder
from bakeoff.models.errors import BakeoffError


@app.command()
def selftest(
    quick: Annotated[bool, typer.Option("--quick", help="A few faulty backends, in about a minute.")] = False,
    device: Annotated[str | None, typer.Option(help="cpu or cuda (default: cuda where there is one).")] = None,
    as_json: Json = False,
) -> None:
    """Test bakeoff itself: faulty backends must be caught and correct ones left alone; exit 1 if one check fails."""
    from rich.console import Console

    from bakeoff.cli.progress import TerminalProgress
    from bakeoff.machine import host
    from bakeoff.report.text import selftest
    from bakeoff.selftest.run import run

    asked = host.usable_device(named("--device", device))
    with TerminalProgress(Console(stderr=True)) as progress:
        found = run(quick, asked, progress)
    if as_json:
        print_json(found)
    else:
        print_text(selftest.render(found))
    if not found.stamp.passed:
        fail("the selftest failed: do not trust this host's numbers before it passes", 1, "check-failed")


@app.command()
def ceilings(
    device: Annotated[str | None, typer.Option(help="cpu or cuda (default: cuda where there is one).")] = None,
    threads: Annotated[int, typer.Option(help="CPU threads (default: all cores).")] = 0,
    again: Annotated[
        bool, typer.Option("--again", help="Measure another set; records keep what they were made with.")
    ] = False,
    runs: Runs = None,
    as_json: Json = False,
) -> None:
    """Print the best known ceilings of this machine, measured once: copies, reads, products and convolutions."""
    from rich.console import Console

    from bakeoff.cli.progress import TerminalProgress
    from bakeoff.machine import host, paths
    from bakeoff.machine.locks import device_lock
    from bakeoff.record.store import load_all
    from bakeoff.report.text import selftest
    from bakeoff.sweeps.ceilings import known_ceilings, unmeasured_dtypes

    asked = host.usable_device(named("--device", device))
    if not 0 <= threads <= 1024:
        raise BakeoffError(f"--threads {threads}: give 0 for all cores, or 1 to 1024", "bad-option")
    folder, cache = records_folder(runs), paths.ensure_writable(paths.cache_folder(), "caches")
    paths.ensure_writable(folder, "records")
    threads = threads or host.usable_cores()
    measures = again or bool(unmeasured_dtypes(load_all(folder), asked, threads))
    with TerminalProgress(Console(stderr=True)) as progress, device_lock(asked, progress.say, cache, measures):
        found = known_ceilings(asked, threads, folder, cache, progress, again)
    if as_json:
        print_json(found)
    else:
        print_text(selftest.render_ceilings(found))
    if not found:
        fail("no ceilings were measured; the worker's log is in the cache folder", 3, "worker-failed")
