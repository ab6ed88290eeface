"""The commands `records export`, which gives records to other tools, and `records merge`."""

from pathlib import Path
from typing import Annotated

import typer

from bakeoff.cli.common import (
    Machines,
    Named,
    Runs,
    app,
    named,
    print_text,
    print_written,
    records_folder,
    runs_option,
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
FORMATS = ("csv", "mlflow", "pytorch-hud")


@records.command()
def export(
    name: Named = "",
    kind: Annotated[str, typer.Option("--format", help="csv, mlflow or pytorch-hud.")] = "csv",
    to: Annotated[
        str | None, typer.Option(help="The file to write (default: stdout); of mlflow, a folder or its address.")
    ] = None,
    machine: Machines = None,
    runs: Runs = None,
) -> None:
    """Write every record of this machine for another tool, one row each, under names that stay the same."""
    from bakeoff.cli.reports import selected
    from bakeoff.machine.files import write_atomically
    from bakeoff.report.exports import as_csv, as_hud, flat_rows, to_mlflow

    target = named("--to", to)
    if kind not in FORMATS:
        raise BakeoffError(f"--format {kind}: known are {', '.join(FORMATS)}", "bad-option")
    folder = records_folder(runs)
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
    text = as_csv(rows) if kind == "csv" else as_hud(rows)
    if target:
        write_atomically(Path(target), text.encode())
        print_written([target])
    else:
        print_text(text.rstrip("\n"))


@records.command()
def merge(
    folders: Annotated[list[Path], typer.Argument(metavar="FOLDER", help="Folders of records, as in runs/.")],
    runs: Runs = None,
) -> None:
    """Copy the records that other folders have, such as those of other machines, into the folder of records.

    Each is checked before the first is copied; records that are there already stay as they are.
    """
    from bakeoff.record.store import merge as merge_folders
    from bakeoff.record.store import record_files

    for folder in folders:
        if not any(record_files(folder)):
            text = f"{folder} holds no records; give a folder of records, which has a folder for each machine"
            raise BakeoffError(text, "no-record")
    target = records_folder(runs)
    copied, had = merge_folders(target, *folders)
    print_text(f"{counted(copied, 'record')} copied to {target}, {had} were there")
    if copied:
        say("to write their pages:")
        say_command(f"bakeoff history {runs_option(target)}".rstrip())
