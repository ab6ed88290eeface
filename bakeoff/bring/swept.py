"""What `bakeoff.sweep` returns: the records of a sweep, its table, and the best row."""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from bakeoff.models.words import counted
from bakeoff.record.schema import Record
from bakeoff.record.store import Records, Stored, StoredComparison, load_all
from bakeoff.report.document import Document
from bakeoff.report.groups import groups, newest
from bakeoff.report.pages import sweep
from bakeoff.report.recommendation import decision
from bakeoff.report.render import terminal

_Entry = TypeVar("_Entry")


@dataclass(frozen=True, slots=True)
class Swept:
    """The records of one sweep. Prints, and shows itself in a notebook, as its table."""

    sweep: str
    """Id of the sweep."""
    folder: Path
    """Of the records."""
    stored: tuple[Stored, ...]
    """Records with their ids."""
    finals: tuple[StoredComparison, ...] = ()
    """The two best rows of every input set, measured against each other."""
    held: Records | None = None
    """All that the folder held after the sweep: other sweeps, by how far its machine drifts, and ceilings."""

    @property
    def records(self) -> tuple[Record, ...]:
        return tuple(entry.record for entry in self.stored)

    @property
    def best(self) -> Record | None:
        """The winner of the final, else the row with the lowest median; None where no row can be ranked.

        Of several input sets it is that of the first.
        """
        for group in groups(newest(self.stored)):
            found = decision(group.rows, self.finals)
            if found.best:
                return (found.winner or found.best[0]).record
        return None

    def table(self) -> str:
        """The text that `bakeoff sweep` prints."""
        every, ceilings = (self.held.current, self.held.ceilings) if self.held else (self.stored, ())
        return terminal.render(Document("", sweep.newest_tables(newest(self.stored), every, self.finals, ceilings)))

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        return f"<Swept {self.sweep}: {counted(len(self.stored), 'record')} in {self.folder}>"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.table())}</pre>"


def read_swept(summary: Mapping[str, Any], runs: Path) -> Swept:
    """The records that a sweep's summary lists, in its order, from the store."""
    records = load_all(runs)
    rows_by_id = {entry.id: entry for entry in records.current} | {entry.id: entry for entry, _ in records.superseded}
    finals = {entry.id: entry for entry in records.comparisons}
    rows, decided = _listed(rows_by_id, summary["records"]), _listed(finals, summary["finals"])
    return Swept(str(summary["sweep"]), runs, rows, decided, records)


def _listed(held: Mapping[str, _Entry], ids: Sequence[str]) -> tuple[_Entry, ...]:
    return tuple(held[one] for one in ids if one in held)
