"""The command `explain`: why two records, sweeps or commits differ in time."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bakeoff.cli.common import Json, app, print_document, print_json, records_folder, records_folders
from bakeoff.cli.complete import records
from bakeoff.cli.reports import stored_of
from bakeoff.models.errors import BakeoffError

if TYPE_CHECKING:
    from bakeoff.record.schema import Record

_LEAST_COMMIT = 7
"""Fewest characters that name a sweep or a commit."""


@app.command()
def explain(
    a: Annotated[
        str, typer.Argument(help="A record, a sweep (20261124T041732-1f65bf) or a commit.", autocompletion=records)
    ],
    b: Annotated[str, typer.Argument(help="Another one.", autocompletion=records)],
    as_json: Json = False,
) -> None:
    """Say why times differ: what was changed, how much of the difference each can explain, and where the time went."""
    show(records_folder(), a, b, as_json)


def show(folder: Path, a: str, b: str, as_json: bool) -> None:
    """Print the explanation. Raises BakeoffError for names of nothing, and for records without samples."""
    from bakeoff.record.causes import explain as explained
    from bakeoff.report.pages import explain as page

    first, second = (_records(folder, asked) for asked in (a, b))
    if len(first) == len(second) == 1:
        pairs, alone = [(first[0], second[0])], []
    else:
        sides = [{_identity(record): record for record in records} for records in (first, second)]
        pairs = [(sides[0][key], sides[1][key]) for key in sides[0] if key in sides[1]]
        alone = [str(key[0]) for key in {**sides[0], **sides[1]} if (key in sides[0]) != (key in sides[1])]
    found = [made for left, right in pairs if (made := explained(left, right)) is not None]
    if not found:
        text = f"{a} and {b} have no variant with samples in common; give two records, or sweeps of the same rows"
        raise BakeoffError(text, "not-comparable")
    if as_json:
        print_json({"pairs": [page.as_json(one) for one in found], "alone": alone})
    else:
        print_document(page.document(found[0]) if len(pairs) == 1 else page.together(found, alone))


def _identity(record: "Record") -> tuple[object, ...]:
    return str(record.variant), record.batch, record.weight_seed, record.input_seed, record.weights_key


def _records(folder: Path, asked: str) -> "Sequence[Record]":
    """Return the record that `asked` names, or the newest of each variant of a sweep or a commit."""
    from bakeoff.record.schema import Record
    from bakeoff.record.store import load_all

    folders = records_folders(folder)
    if len(asked) >= _LEAST_COMMIT:
        current = [entry.record for place in folders for entry in load_all(place).current]
        found = {
            _identity(record): record
            for record in sorted(current, key=lambda record: record.created)
            if record.sweep.startswith(asked) or record.commit.startswith(asked)
        }
        if found:
            return list(found.values())
    entry = stored_of(folder, asked)
    if not isinstance(entry.record, Record):
        text = f"{entry.id} is no record of a variant; run: bakeoff show {entry.id}"
        raise BakeoffError(text, "no-record")
    if entry.record.latency is None:
        text = f"{entry.id} has no samples, its status is {entry.record.status}; give a record that has samples"
        raise BakeoffError(text, "not-comparable")
    return [entry.record]
