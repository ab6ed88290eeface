"""The commands that look after the lab itself and this machine: selftest, ceilings, cache."""

from typing import Annotated

import typer

from bakeoff.cli.common import (
    Json,
    Runs,
    app,
    check_range,
    fail,
    named,
    print_document,
    print_json,
    print_text,
    records_folder,
)


@app.command()
def selftest(
    more: Annotated[str, typer.Argument(help="More backends, as module:MORE; `make selftest` adds some 60.")] = "",
    device: Annotated[str | None, typer.Option(help="cpu or cuda (default: cuda where there is one).")] = None,
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
def ceilings(
    device: Annotated[str | None, typer.Option(help="cpu or cuda (default: cuda where there is one).")] = None,
    threads: Annotated[int, typer.Option(help="CPU threads (default: all cores).")] = 0,
    runs: Runs = None,
    as_json: Json = False,
) -> None:
    """Measure copies, reads, products and convolutions of this machine, and print the best that is known of each.

    Sweeps measure those that they need once; another set can only raise them. Records keep what they were made with.
    """
    from bakeoff.cli.progress import TerminalProgress
    from bakeoff.machine import host, paths
    from bakeoff.machine.locks import device_lock
    from bakeoff.report.pages import doctor
    from bakeoff.sweeps.describe import known_ceilings

    asked = host.usable_device(named("--device", device))
    check_range("--threads", threads, 0, 1024)
    folder, cache = records_folder(runs), paths.ensure_writable(paths.cache_folder(), "caches")
    paths.ensure_writable(folder, "records")
    with TerminalProgress() as progress, device_lock(asked, progress.say, cache):
        found = known_ceilings(asked, threads or host.usable_cores(), folder, cache, progress, again=True)
    print_json(found) if as_json else print_document(doctor.page_of_ceilings(found))
    if not found:
        fail("no ceilings were measured; the worker's log is in the cache folder", 3, "worker-failed")


@app.command()
def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Delete what takes room; never while it is used.")] = False,
    as_json: Json = False,
) -> None:
    """Show how large the cache folder is, or clear it; all of it can be made again."""
    from bakeoff.machine import build_cache, paths
    from bakeoff.machine.locks import clearing_lock
    from bakeoff.report.document import Document, Heading, Text, blocks, table

    folder = paths.cache_folder()
    before = build_cache.measure(folder)
    if not clear:
        kinds = [(kind, _mib(size)) for kind, size in before.kinds.items()]
        total = Text(f"{_mib(before.bytes)} MiB in {folder}")
        page = blocks(total, table(("kind", Heading("MiB", numeric=True)), kinds))
        print_json(before) if as_json else print_document(Document("Cache", page))
        return
    paths.ensure_writable(folder, "caches")
    with clearing_lock(folder):
        before = build_cache.measure(folder)
        left = build_cache.clear(folder)
        freed = before.bytes - build_cache.measure(folder).bytes
    print_json({"folder": str(folder), "freed_bytes": freed}) if as_json else print_text(f"freed {_mib(freed)} MiB")
    if left:
        fail(f"{left[0]} cannot be deleted; look at its permissions", 2, "not-writable")


def _mib(size: int) -> str:
    return f"{size / 2**20:.1f}"
