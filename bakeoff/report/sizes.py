"""The table by size: what each engine that was built for a range of sizes does at each of them."""

from collections.abc import Sequence
from typing import Final

from bakeoff.record.schema import Record, SizeResult
from bakeoff.record.store import Stored
from bakeoff.report.document import Heading, Table, table
from bakeoff.report.format import duration, median_and_interval
from bakeoff.report.groups import name_of

_TITLE: Final = "One engine for all sizes: ms a call [95 %]; *: within the range, but not asked for"


def by_size(rows: Sequence[Stored]) -> Table | None:
    """The sizes of the rows that have some; None where none has."""
    records = [entry.record for entry in rows if entry.record.measurement.sizes]
    sizes = {one.name: one for record in records for one in record.measurement.sizes}
    shown = (Heading(f"{name} *" if one.which == "unseen" else name, leaves=1) for name, one in sizes.items())
    return table(["by size", *shown], [_row(record, tuple(sizes)) for record in records], _TITLE)


def _row(record: Record, names: Sequence[str]) -> tuple[str, ...]:
    found = {one.name: _cell(record, one) for one in record.measurement.sizes}
    return (name_of(record), *(found.get(name, "") for name in names))


def _cell(record: Record, result: SizeResult) -> str:
    figures = record.latency if result.which == "usual" else result.figures
    words = list(median_and_interval(figures)) if figures is not None else []
    if result.status == "recompiled":
        words.append(f"recompiled {result.compilations}x, first call {duration(result.first_call_ns / 1e6)}")
    elif result.status != "ok":
        words.append(result.status)
    return " ".join(words)


def as_data(record: Record) -> list[dict[str, object]]:
    """The sizes under stable keys, with figures as numbers."""
    found: list[dict[str, object]] = []
    for one in record.measurement.sizes:
        figures = record.latency if one.which == "usual" else one.figures
        found.append(
            {
                "size": one.name,
                "which": one.which,
                "inputs": one.inputs,
                "status": one.status,
                "reason": one.reason,
                "median_ms": figures and figures.median_ms,
                "interval_ms": figures and [figures.low_ms, figures.high_ms],
                "samples": figures.count if figures else 0,
                "compilations": one.compilations,
                "rel_l2": one.rel_l2,
                "limit": one.limit,
                "recorded_sets": one.recorded_sets,
                "drawn_sets": one.drawn_sets,
            }
        )
    return found
