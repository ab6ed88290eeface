"""Tables of records in markdown."""

from collections.abc import Sequence

from bakeoff.record.store import Stored
from bakeoff.report.columns import cells, columns, contexts
from bakeoff.report.markdown.escape import escape


def table(rows: Sequence[Stored], keys: Sequence[str], folder: str, reason_in: str = "") -> list[str]:
    """Lines of a table with the columns `keys`; the record's name links to its file in `folder`.

    Where a row has no figures, its reason is in the column `reason_in`.
    """
    chosen = columns(keys)
    lines = [
        _line([column.heading for column in chosen]),
        "|" + "|".join(" ---: " if column.numeric else " --- " for column in chosen) + "|",
    ]
    for record, context in contexts(rows):
        texts = dict(zip(keys, map(escape, cells(keys, record, context)), strict=True))
        if "record" in texts:
            texts["record"] = link(context.id, folder)
        if reason_in and not texts[reason_in]:
            texts[reason_in] = escape(record.measurement.reason)
        lines.append(_line(list(texts.values())))
    return lines


def link(name: str, folder: str) -> str:
    """A record's or comparison's hash as a link to its file."""
    return f"[{name.rpartition('_')[2]}]({folder}/{name}.json)"


def _line(cells_of_row: Sequence[str]) -> str:
    return "| " + " | ".join(cells_of_row) + " |"
