"""Records for other tools: each as one flat row of facts and figures, as CSV, or in MLflow."""

import csv
import io
import logging
import os
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from bakeoff.machine.paths import ensure_writable
from bakeoff.machine.terminal import one_line
from bakeoff.models.errors import BakeoffError
from bakeoff.record.floor import best_ceilings, floor
from bakeoff.record.schema import Record
from bakeoff.record.store import Records, Stored
from bakeoff.report.columns import TableRow, data, table_rows
from bakeoff.report.groups import by_sweep, groups, newest

_FACTS: Final = ("status", "reason", "stale", "quantisation", "lossless", "limits")
_FIGURES: Final = (
    "median_ms", "mean_ms", "min_ms", "max_ms", "std_ms", "p99_ms", "calls_per_s", "items_per_s", "video_fps",
    "of_floor", "vs_eager", "vs_eager_fp32", "peak_mib", "error", "sqnr_db", "graph_breaks",
)  # fmt: skip
"""Columns (bakeoff.report.columns) whose data is one value."""


FlatRow = tuple[Stored, dict[str, Any], dict[str, Any]]
"""A record as one row: what ran, where, and how it ended; then numbers. Names are the same for all records and stable;
a value is None if the record lacks it."""


def flat_rows(records: Records) -> list[FlatRow]:
    """Return every record that is not superseded as a row, by time; ratios are over the baselines of its own sweep."""
    found: list[FlatRow] = []
    for group in groups(records.current):
        first = group[0]
        ceilings = best_ceilings(records.current, records.ceilings, first.machine, first.record.threads)
        for rows in by_sweep(group):
            found += map(_row, table_rows(rows, records.comparisons, ceilings, newest(rows)))
    return sorted(found, key=lambda row: (row[0].record.created, row[0].id))


def _row(row: TableRow) -> FlatRow:
    record, clock = row.record, row.record.latency
    bound = floor(record, row.ceilings)
    copy, build = record.measurement.input_copy, record.measurement.build
    figures = data(_FIGURES, row) | {
        "low_ms": clock and clock.low_ms,
        "high_ms": clock and clock.high_ms,
        "throughput_ms": record.throughput and record.throughput.median_ms,
        "floor_ms": bound and bound.ms,
        "copy_ms": copy and copy.median_ms,
        "build_s": build and build.build_s,
        "warm_build_s": build and build.warm_s,
    }
    facts = _facts(row.entry.id, record) | data(_FACTS, row)
    return row.entry, facts, figures


def _facts(name: str, record: Record) -> dict[str, Any]:
    variant = record.variant
    return {
        "record": name,
        "created": record.created,
        "sweep": record.sweep,
        "machine": record.machine.name,
        "machine_id": record.machine.id,
        "machine_class": record.machine.machine_class,
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
    writer.writerow([*rows[0][1], *rows[0][2]])
    for _, facts, figures in rows:
        values = (*facts.values(), *figures.values())
        writer.writerow([one_line(value) if isinstance(value, str) else value for value in values])
    return file.getvalue()


_LONGEST: Final = 5000
"""Most characters of a parameter or tag that MLflow takes everywhere."""
_TAGGED: Final = ("record", "status", "reason", "machine", "note")


def to_mlflow(rows: Sequence[FlatRow], runs: Path, to: str) -> tuple[int, str]:
    """Log the rows that MLflow does not have yet, and return how many these are, and the address of its store.

    A component is an experiment, a sweep of it a run, and a row a run below that, with its record file from `runs`
    attached. `to` is a folder, in which a database and the attached files are kept, or an address of MLflow's own; ""
    is its default. Raises BakeoffError if MLflow refuses.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # its own 7 take minutes
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    logging.getLogger("mlflow").setLevel(logging.WARNING)
    files = None
    if to and "://" not in to:
        folder = ensure_writable(Path(to).absolute(), "records")
        to, files = f"sqlite:///{folder}/mlflow.db", (folder / "artifacts").as_uri()
    try:
        client = MlflowClient(to or None)
        added = sum([_log(client, row, runs, files) for row in rows])
    except (MlflowException, SQLAlchemyError) as error:
        raise BakeoffError(f"--to: MLflow says: {str(error).splitlines()[0]}", "not-writable") from error
    return added, re.sub("//[^/@]*@", "//", client.tracking_uri)  # without a password


def _log(client: Any, row: FlatRow, runs: Path, files: str | None) -> bool:
    """Log one row unless it is there. A run that is not whole is deleted."""
    entry, facts, figures = row
    record, name = entry.record, entry.record.variant.component
    known = client.get_experiment_by_name(name)
    experiment = known.experiment_id if known else client.create_experiment(name, files and f"{files}/{name}")

    def find(tag: str, value: str) -> str:
        found = client.search_runs([experiment], f"tags.`{tag}` = '{value}'", max_results=1)
        return found[0].info.run_id if found else ""

    if find("bakeoff.record", entry.id):
        return False
    end = round(datetime.fromisoformat(record.created).timestamp() * 1000)
    start = end - round(record.wall_s * 1000)
    sweep = find("bakeoff.sweep", record.sweep)
    sweep = sweep or client.create_run(experiment, start, {"bakeoff.sweep": record.sweep}, record.sweep).info.run_id
    client.set_terminated(sweep, end_time=end)
    run = client.create_run(experiment, start, {"mlflow.parentRunId": sweep}, str(record.variant)).info.run_id
    try:
        _fill(client, run, facts, figures, end)
        client.log_artifact(run, str(runs / entry.folder / f"{entry.id}.json"))
        client.set_terminated(run, "FINISHED" if record.status in ("ok", "built") else "FAILED", end)
    except BaseException:
        client.delete_run(run)
        raise
    return True


def _fill(client: Any, run: str, values: dict[str, Any], figures: dict[str, Any], at_ms: int) -> None:
    from mlflow.entities import Metric, Param, RunTag

    facts = {key: str(value)[:_LONGEST] for key, value in values.items() if value not in (None, "")}
    client.log_batch(
        run,
        [Metric(key, value, at_ms, 0) for key, value in figures.items() if value is not None],
        [Param(key, value) for key, value in facts.items()],
        [RunTag(f"bakeoff.{key}", facts[key]) for key in _TAGGED if key in facts],
    )
