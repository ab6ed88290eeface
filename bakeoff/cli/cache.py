"""The command for the cache folder: its size, and emptying it."""

from typing import Annotated

import typer

from bakeoff.cli.common import Json, app, fail, print_document, print_json, print_text


@app.command()
def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Delete what takes room; never while it is used.")] = False,
    as_json: Json = False,
) -> None:
    """Show how large the cache folder is; all of it can be made again."""
    from bakeoff.machine import cache_folder, paths
    from bakeoff.machine.locks import clearing_lock
    from bakeoff.report.document import Document, Heading, Text, blocks, table

    folder = paths.cache_folder()
    before = cache_folder.measure(folder)
    if not clear:
        kinds = [(kind, _mib(size)) for kind, size in before.kinds.items()]
        total = Text(f"{_mib(before.bytes)} MiB in {folder}")
        page = blocks(total, table(("kind", Heading("MiB", numeric=True)), kinds))
        print_json(before) if as_json else print_document(Document("Cache", page))
        return
    paths.ensure_writable(folder, "caches")
    with clearing_lock(folder):
        before = cache_folder.measure(folder)
        left = cache_folder.clear(folder)
        freed = before.bytes - cache_folder.measure(folder).bytes
    print_json({"folder": str(folder), "freed_bytes": freed}) if as_json else print_text(f"freed {_mib(freed)} MiB")
    if left:
        fail(f"{left[0]} cannot be deleted; look at its permissions", 2, "not-writable")


def _mib(size: int) -> str:
    return f"{size / 2**20:.1f}"
