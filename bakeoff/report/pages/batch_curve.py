"""The section on batch curves: items per second, latency and memory of each variant by the size of the batch."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from bakeoff.models.grouping import grouped
from bakeoff.record.comparable import subject_key
from bakeoff.record.finalists import objective_of
from bakeoff.record.schema import Record
from bakeoff.record.store import Stored
from bakeoff.report.columns import COLUMNS, Column, TableRow, columns
from bakeoff.report.document import Section, Text, blocks, listed, once_each
from bakeoff.report.groups import current, name_of, title
from bakeoff.report.links import Cited
from bakeoff.report.pages.sweep import table_of
from bakeoff.report.wording import items_per_s, rate_text

_COLUMNS: Final = (
    COLUMNS["name"],
    Column("batch", "batch", "", lambda row: row.record.batch),
    COLUMNS["status"],
    replace(COLUMNS["items_per_s"], value=lambda row: items_per_s(row.record)),
    *columns(("latency", "peak_mib", "limits", "record")),
)
_EXPLANATION = (
    "A variant saturates at the smallest batch whose interval of items/s overlaps that of its best batch. Batches are "
    "measured one after another and not ranked."
)


def batch_curves(rows: Iterable[Stored]) -> list[dict[str, list[Stored]]]:
    """Return the records of each group of rows that differ in the batch and have the same code and libraries, by
    variant, the smallest batch first.

    `rows` must contain one record for each variant and batch.
    """
    able = [(subject_key(entry.record), entry) for entry in rows if entry.record.status != "built"]
    alike = grouped(((subject, machine, *others), entry) for (subject, machine, _, *others), entry in able)
    curves = []
    for entries in map(current, alike.values()):
        if len({entry.record.batch for entry in entries}) > 1:
            ordered = sorted(entries, key=lambda entry: entry.record.batch)
            curves.append(grouped((name_of(entry.record), entry) for entry in ordered))
    return curves


def ranked(record: Record) -> tuple[float, float, float] | None:
    """Return the items per second of a row and the ends of their interval; None if the row is not ok."""
    return items_per_s(record) if record.status == "ok" else None


def saturates(points: Sequence[Stored]) -> Stored | None:
    """Return the smallest batch whose interval overlaps that of the best batch; None without two batches that are
    ok."""
    rates = [(entry, rate) for entry in points if (rate := ranked(entry.record)) is not None]
    if len(rates) < 2:
        return None
    least = max((rate for _, rate in rates), key=lambda rate: rate[0])[1]
    return next(entry for entry, rate in rates if rate[2] >= least)


def sections(rows: Sequence[Stored], cited: Cited | None = None) -> Iterator[Section]:
    """Yield a section for each subject measured with several batches; rows link to their records with `cited`."""
    for curve in batch_curves(rows):
        every = [entry for points in curve.values() for entry in points]
        objective = objective_of(every)
        made = blocks(
            listed(_saturation(name, points) for name, points in curve.items() if saturates(points)),
            table_of(_COLUMNS, [TableRow(entry, objective=objective) for entry in every], cited),
            listed(once_each(_failures(every))),
            Text(_EXPLANATION, tone="faint"),
        )
        yield Section(f"Batch curve: {title(every[0].record, batch=False)}", made)


def _saturation(name: str, points: Sequence[Stored]) -> str:
    best, largest = saturates(points), [entry for entry in points if ranked(entry.record) is not None][-1]
    assert best is not None
    rate = f"{rate_text(ranked(best.record))} items/s"
    if best is largest:
        return f"{name} is not saturated: batch {largest.record.batch}, its largest, gives the most, {rate}"
    return f"{name} saturates at batch {best.record.batch}: {rate}"


def _failures(every: Sequence[Stored]) -> Iterator[tuple[str, str]]:
    """Yield why variants have no ranked figure, each reason with a variant and batch that has it."""
    for record in (entry.record for entry in every if ranked(entry.record) is None):
        reason = f"{record.status}: {record.measurement.reason}" if record.measurement.reason else record.status
        yield reason, f"{name_of(record)} at batch {record.batch}"
