"""The command `records export`, which gives records to other tools."""

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
    say,
)
from bakeoff.models.errors import BakeoffError
from bakeoff.models.words import counted

records = typer.Typer(rich_markup_mode=None, no_args_is_help=True, help="Give records to other tools.")
app.add_typer(records, name="records")
FORMATS = ("csv", "mlflow")


@records.command()
def export(
    name: Named = "",
    kind: Annotated[str, typer.Option("--format", help="csv or mlflow.")] = "csv",
    to: Annotated[
        str | None, typer.Option(help="The file to write (default: stdout); of mlflow, a folder or its address.")
    ] = None,
    machine: Machines = None,
    runs: Runs = None,
) -> None:
    """Write every record of this machine for another tool, one row each, under names that stay the same."""
    from bakeoff.cli.reports import selected
    from bakeoff.machine.files import write_atomically
    from bakeoff.report.exports import as_csv, flat_rows, to_mlflow

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
    text = as_csv(rows)
    if target:
        write_atomically(Path(target), text.encode())
        print_written([target])
    else:
        print_text(text.rstrip("\n"))
