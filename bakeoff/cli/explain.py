"""The command `explain`: why two records differ in time."""

from typing import Annotated

import typer

from bakeoff.cli.common import Json, app, print_document, print_json, records_folder
from bakeoff.cli.complete import records
from bakeoff.cli.reports import stored_of
from bakeoff.models.errors import BakeoffError


@app.command()
def explain(
    a: Annotated[str, typer.Argument(help="A record, or the title of a table.", autocompletion=records)],
    b: Annotated[str, typer.Argument(help="Another one.", autocompletion=records)],
    as_json: Json = False,
) -> None:
    """Say why times differ: what was changed, how much of the difference each can explain, and where the time went."""
    from bakeoff.record.causes import explain as explained
    from bakeoff.record.schema import Record
    from bakeoff.report.pages import explain as page

    folder, sides = records_folder(), list[Record]()
    for asked in (a, b):
        entry = stored_of(folder, asked)
        if not isinstance(entry.record, Record):
            text = f"{entry.id} is no record of a variant; run: bakeoff show {entry.id}"
            raise BakeoffError(text, "no-record")
        sides.append(entry.record)
    found = explained(*sides)
    if found is None:
        statuses = " and ".join(record.status for record in sides)
        text = f"{a} and {b} do not both have samples, they are {statuses}; give records that have samples"
        raise BakeoffError(text, "not-comparable")
    print_json(page.as_json(found)) if as_json else print_document(page.document(found))
