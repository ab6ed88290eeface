"""The commands `records export`, which gives records to other tools, and `records merge`."""

import re
import tarfile
import zlib
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from bakeoff.cli.common import (
    Machines,
    Named,
    app,
    named,
    print_text,
    print_written,
    program,
    records_folder,
    say,
    say_command,
)
from bakeoff.models.errors import BakeoffError
from bakeoff.models.words import counted

records = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Give records to other tools, or bring folders of records together.",
)
app.add_typer(records, name="records")
FORMATS = ("csv", "mlflow")
_UNFINISHED = "unfinished"
_MEMBER = re.compile(rf"runs/(([a-z0-9][a-z0-9-]*/records|{_UNFINISHED})/[^/]+\.json)")
_LARGEST_BYTES = 64 << 20
"""Bytes of a record that an archive may hold."""


@records.command()
def export(
    name: Named = "",
    kind: Annotated[str, typer.Option("--format", help="csv or mlflow.")] = "csv",
    to: Annotated[
        str | None, typer.Option(help="The file to write (default: stdout); of mlflow, a folder or its address.")
    ] = None,
    machine: Machines = None,
) -> None:
    """Write every record of this machine for another tool, one row each, under names that stay the same."""
    from bakeoff.backends.install import extra_command
    from bakeoff.cli.reports import selected
    from bakeoff.machine.files import write_atomically
    from bakeoff.report.exports import as_csv, flat_rows, to_mlflow

    target = named("--to", to)
    if kind not in FORMATS:
        raise BakeoffError(f"--format {kind}: known are {', '.join(FORMATS)}", "bad-option")
    if kind == "mlflow" and find_spec("mlflow") is None:
        text = f"--format mlflow: mlflow is not installed; run {extra_command('mlflow')}"
        raise BakeoffError(text, "missing-library")
    folder = records_folder()
    found = selected(folder, name, machine).records
    rows = flat_rows(found)
    if found.ran:
        say(f"{counted(len(found.ran), 'record')} of pipelines not exported; bakeoff table --json prints them")
    if not rows:
        raise BakeoffError("there are no records of sweeps to export", "no-record")
    if kind == "mlflow":
        added, store = to_mlflow(rows, folder, target)
        print_text(f"{counted(added, 'record')} added to {store}, {len(rows) - added} were there")
        return
    text = as_csv(rows)
    if target:
        write_atomically(Path(target), text.encode())
        print_written([target])
    else:
        print_text(text.rstrip("\n"))


@records.command()
def merge(
    sources: Annotated[
        list[Path],
        typer.Argument(metavar="FOLDER|ARCHIVE", help="Folders of records, as in runs/, or evidence.tar.gz."),
    ],
) -> None:
    """Copy the records that other folders or archives have, such as those of other machines, into the folder of
    records.

    Each is checked before the first is copied; records that are there already stay as they are.
    """
    from bakeoff.record.codec import decode
    from bakeoff.record.schema import Record
    from bakeoff.record.store import load_all, read_record, record_files, save
    from bakeoff.record.store import merge as merge_folders
    from bakeoff.sweeps.resume import key_of

    target = records_folder()
    with ExitStack() as stack:
        folders = [_unpacked(source, stack) if source.is_file() else source for source in sources]
        timed = [path for folder in folders for path in sorted((folder / _UNFINISHED).glob("*.json"))]
        rows = [row for path in timed if isinstance(row := decode(read_record(path), path.name), Record)]
        for source, folder in zip(sources, folders, strict=True):
            if not rows and not any(record_files(folder)):
                text = f"{source} holds no records; give a folder of records, which has a folder for each machine"
                raise BakeoffError(text, "no-record")
        copied, had = merge_folders(target, *folders)
    whole = {(entry.record.sweep, key_of(entry.record)) for entry in load_all(target).current}
    for row in rows:
        if (row.sweep, key_of(row)) in whole:
            continue
        save(target, row)
        copied += 1
    print_text(f"{counted(copied, 'record')} copied to {target}, {had} were there")
    if copied:
        say("to write their pages:")
        say_command(f"{program()} history")


def _unpacked(archive: Path, stack: ExitStack) -> Path:
    """Unpack the records of an archive of `gpu-evidence` into a temporary folder, and nothing else.

    Raises BakeoffError for a file that is no whole archive.
    """
    folder = Path(stack.enter_context(TemporaryDirectory()))
    try:
        with tarfile.open(archive) as opened:
            for member in opened:
                name = _MEMBER.fullmatch(member.name)
                content = opened.extractfile(member) if name and member.size <= _LARGEST_BYTES else None
                if name and content is not None:
                    (folder / name[1]).parent.mkdir(parents=True, exist_ok=True)
                    (folder / name[1]).write_bytes(content.read())
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        text = f"{archive} is no whole archive: {str(error).splitlines()[0]}; copy it again"
        raise BakeoffError(text, "not-readable") from error
    return folder
