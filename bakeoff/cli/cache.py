"""The command for the cache folder: its contents, and `clear`."""

import time
from typing import Annotated

import typer

from bakeoff.cli.common import Json, app, fail, named, print_json, print_text
from bakeoff.models.errors import BakeoffError
from bakeoff.models.words import counted

caching = typer.Typer(rich_markup_mode=None)
app.add_typer(caching, name="cache")


@caching.callback(invoke_without_command=True)
def cache(
    context: typer.Context,
    verbose: Annotated[bool, typer.Option("--verbose", help="List each compiled variant.")] = False,
    as_json: Json = False,
) -> None:
    """Show the cache folder: kinds, entries, MiB and last use."""
    from bakeoff.machine import paths
    from bakeoff.machine.cache_inventory import read
    from bakeoff.report.text import cache

    if context.invoked_subcommand is not None:
        if verbose or as_json:
            text = f"options of cache {context.invoked_subcommand} are written after it"
            raise BakeoffError(text, "bad-option")
        return
    folder = paths.cache_folder()
    found = cache.survey(folder, read(folder))
    if as_json:
        print_json(found)
    else:
        print_text(cache.render(found, verbose))


@caching.command()
def clear(
    kinds: Annotated[
        list[str] | None,
        typer.Argument(
            help="compiled, headers, references, brought, live, logs, traces, work (these if none is named), ceilings, "
            "instrument, sweeps, checkpoints, selftest.",
            show_default=False,
        ),
    ] = None,
    variant: Annotated[str | None, typer.Option(help="Only compiled variants whose name holds this.")] = None,
    older_than: Annotated[float, typer.Option(metavar="DAYS", help="Only what was last used before that.")] = 0.0,
    as_json: Json = False,
) -> None:
    """Remove what can be made again, without asking, and say what it was; never while the cache is used."""
    from bakeoff.machine import paths
    from bakeoff.machine.cache_inventory import Selection, read, remove, select
    from bakeoff.machine.locks import clearing_lock
    from bakeoff.report.text import cache

    folder = paths.cache_folder()
    choice = Selection(tuple(kinds or ()), named("--variant", variant), older_than)
    select((), choice, 0.0)  # validate arguments before reading the cache
    read(folder)
    paths.ensure_writable(folder, "caches")
    with clearing_lock(folder):
        cleared = remove(folder, select(read(folder), choice, time.time()))
    if as_json:
        print_json({"removed": cleared.removed, "kept": cleared.kept, "bytes": cleared.bytes})
    else:
        print_text(cache.render_cleared(cleared))
    if cleared.kept:
        first = cleared.kept[0].place
        kept = counted(len(cleared.kept), "entry", "entries")
        text = f"{kept} cannot be removed, first {folder / first}; look at its permissions"
        fail(text, 2, "not-writable")
