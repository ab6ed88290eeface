"""Records for other tools: each as one flat row of facts and figures, written as CSV or logged to MLflow."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bakeoff.machine.terminal import one_line
from bakeoff.record.floor import best_ceilings, floor
from bakeoff.record.schema import Record
from bakeoff.record.store import Records, Stored
from bakeoff.report.columns import Context, contexts, data
from bakeoff.report.groups import by_sweep, groups, newest

_FACTS: Final = ("status", "reason", "stale", "quantisation", "lossless", "limits")
_FIGURES: Final = (
    "median_ms", "mean_ms", "min_ms", "max_ms", "std_ms", "p99_ms", "calls_per_s", "items_per_s", "video_fps",
    "of_floor", "vs_eager", "vs_eager_fp32", "peak_mib", "error", "sqnr_db", "graph_breaks",
)  # fmt: skip
"""Columns (bakeoff.report.columns) whose data is one value."""


@dataclass(frozen=True, slots=True)
class FlatRow:
    """A record as one row. Names are the same for all records and stable; a value is None if the record lacks it."""

    entry: Stored
    facts: dict[str, Any]
    """What ran, where, and how it ended."""
    figures: dict[str, Any]
    """Numbers."""


def flat_rows(records: Records) -> list[FlatRow]:
    """Return every record that is not superseded as a row, by time; ratios are over the baselines of its own sweep."""
    found = []
    for group in groups(records.current):
        first = group.rows[0]
        ceilings = best_ceilings(records.current, records.ceilings, first.machine.id, first.record.threads)
        for rows in by_sweep(group.rows):
            held = contexts(rows, records.comparisons, ceilings, newest(rows))
            found += [_row(entry, context) for entry, (_, context) in zip(rows, held, strict=True)]
    return sorted(found, key=lambda row: (row.entry.record.created, row.entry.id))


def _row(entry: Stored, context: Context) -> FlatRow:
    record, clock = entry.record, entry.record.latency
    bound = floor(record, context.ceilings)
    copy, build = record.measurement.input_copy, record.measurement.build
    figures = data(_FIGURES, record, context) | {
        "low_ms": clock and clock.low_ms,
        "high_ms": clock and clock.high_ms,
        "throughput_ms": record.throughput and record.throughput.median_ms,
        "floor_ms": bound and bound.ms,
        "copy_ms": copy and copy.median_ms,
        "build_s": build and build.build_s,
        "warm_build_s": build and build.warm_s,
    }
    facts = _facts(entry.id, record) | data(_FACTS, record, context)
    return FlatRow(entry, facts, figures)


def _facts(name: str, record: Record) -> dict[str, Any]:
    variant = record.variant
    return {
        "record": name,
        "created": record.created,
        "sweep": record.sweep,
        "machine": record.machine.name,
        "machine_id": record.machine.id,
        "component": variant.component,
        "preset": variant.preset,
        "workload": variant.workload,
        "backend": variant.backend,
        "dtype": variant.dtype,
        "device": variant.device,
        "batch": record.batch,
        "threads": record.threads,
        "build": record.build_number,
        "process": record.process,
        "weights": record.checkpoint or f"random, seed {record.weight_seed}",
        "config": _listed(record.config),
        "parameters": record.parameters,
        "flops": record.flops,
        "commit": record.commit,
        "torch": record.versions.get("torch"),
        "versions": _listed(record.versions),
        "note": record.note,
    }


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def as_csv(rows: Sequence[FlatRow]) -> str:
    """Return a line with the names, then one for each row; a value that the record lacks is empty (RFC 4180, but for
    its line ends)."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*rows[0].facts, *rows[0].figures])
    for row in rows:
        values = (*row.facts.values(), *row.figures.values())
        writer.writerow([one_line(value) if isinstance(value, str) else value for value in values])
    return file.getvalue()
