"""The commands that look after the lab itself and this machine: selftest, doctor."""

from pathlib import Path
from typing import Annotated

import typer

from bakeoff.cli.common import (
    Device,
    Json,
    Threads,
    app,
    check_range,
    fail,
    named,
    print_document,
    print_json,
    print_text,
    records_folder,
)
from bakeoff.models.errors import BakeoffError


@app.command()
def selftest(
    more: Annotated[str, typer.Argument(help="More backends, as module:MORE; `make selftest` adds some 60.")] = "",
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Test bakeoff itself: faulty backends must be caught and correct ones left alone; exit 1 if one check fails."""
    from bakeoff.cli.progress import TerminalProgress
    from bakeoff.machine import host
    from bakeoff.report.pages import doctor
    from bakeoff.selftest.run import run

    asked = host.usable_device(named("--device", device))
    with TerminalProgress() as progress:
        found = run(more, asked, progress)
    print_json(found) if as_json else print_document(doctor.page_of_selftest(found))
    if not found.stamp.passed:
        fail("the selftest failed: do not trust this host's numbers before it passes", 1, "check-failed")


@app.command()
def doctor(
    ceilings: Annotated[
        bool, typer.Option("--ceilings", help="Measure this machine's best rates, and print the best known of each.")
    ] = False,
    cache: Annotated[
        str | None,
        typer.Option(metavar="show|clear", help="How large the cache folder is; clear empties it unless it is in use."),
    ] = None,
    device: Device = None,
    threads: Threads = 0,
    as_json: Json = False,
) -> None:
    """Print this host, its versions, known-bad combinations, and why a backend cannot run here.

    --device and --threads are those of --ceilings: copies, reads, products and convolutions. Sweeps measure those that
    they need once; another set can only raise them. Records keep what they were made with.
    """
    from bakeoff.report.pages import doctor

    if cache not in (None, "show", "clear") or (ceilings and cache) or ((device or threads) and not ceilings):
        text = "give --ceilings, with --device and --threads, or --cache show, or --cache clear"
        raise BakeoffError(text, "bad-option")
    if ceilings:
        _measure_ceilings(named("--device", device), threads, records_folder(), as_json)
    elif cache:
        _clear_cache(as_json) if cache == "clear" else _show_cache(as_json)
    else:
        found = doctor.read()
        print_json(found) if as_json else print_document(doctor.page(found))


def _measure_ceilings(device: str, threads: int, folder: Path, as_json: bool) -> None:
    from bakeoff.cli.progress import TerminalProgress
    from bakeoff.machine import host, paths
    from bakeoff.machine.locks import device_lock
    from bakeoff.report.pages import doctor
    from bakeoff.sweeps.describe import known_ceilings

    asked = host.usable_device(device)
    check_range("--threads", threads, 0, 1024)
    cache = paths.ensure_writable(paths.cache_folder(), "caches")
    paths.ensure_writable(folder, "records")
    with TerminalProgress() as progress, device_lock(asked, progress.say, cache):
        found = known_ceilings(asked, threads or host.usable_cores(), folder, cache, progress, again=True)
    print_json(found) if as_json else print_document(doctor.page_of_ceilings(found))
    if not found:
        fail("no ceilings were measured; the worker's log is in the cache folder", 3, "worker-failed")


def _show_cache(as_json: bool) -> None:
    from bakeoff.machine import build_cache, paths
    from bakeoff.report.document import Document, Heading, Text, blocks, table

    folder = paths.cache_folder()
    kinds = build_cache.measure(folder)
    size = sum(kinds.values())
    if as_json:
        print_json({"folder": str(folder), "bytes": size, "kinds": kinds})
        return
    rows = [(kind, _mib(each)) for kind, each in kinds.items()]
    page = blocks(Text(f"{_mib(size)} MiB in {folder}"), table(("kind", Heading("MiB", numeric=True)), rows))
    print_document(Document("Cache", page))


def _clear_cache(as_json: bool) -> None:
    from bakeoff.machine import build_cache, paths
    from bakeoff.machine.locks import clearing_lock

    folder = paths.cache_folder()
    build_cache.measure(folder)  # raises if there is none
    paths.ensure_writable(folder, "caches")
    with clearing_lock(folder):
        before = sum(build_cache.measure(folder).values())
        left = build_cache.clear(folder)
        freed = before - sum(build_cache.measure(folder).values())
    print_json({"folder": str(folder), "freed_bytes": freed}) if as_json else print_text(f"freed {_mib(freed)} MiB")
    if left:
        fail(f"{left[0]} cannot be deleted; look at its permissions", 2, "not-writable")


def _mib(size: int) -> str:
    return f"{size / 2**20:.1f}"
