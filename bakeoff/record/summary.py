"""Condenses the records of a former sweep or run into one, with figures instead of samples, and reads them back."""

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from statistics import median
from typing import Any, TypedDict

import msgspec

from bakeoff.record.codec import encode_json, read_as
from bakeoff.record.pipeline import PipelineRecord
from bakeoff.record.schema import SCHEMA, Comparison, Record, SummaryRecord
from bakeoff.record.statistics import Mode, Summary

Condensed = Record | Comparison | PipelineRecord
_KEPT = (
    "status", "reason", "findings", "latency", "throughput", "parity", "memory", "programs", "opened_ns", "units",
)  # fmt: skip
"""Fields of a measurement that the history reads."""
_OF_OUTPUT = "name", "rel_l2", "limit", "passed", "problem"
_OF_PROGRAM = "slot", "variant", "batch", "status", "reason", "quantisation", "source"
_LEFT_OUT: dict[str, Any] = {
    "environment": {}, "log": "", "phase_s": {}, "monitored": None, "monitored_window_ns": None,
}  # fmt: skip


class _Figures(TypedDict):
    """The statistics of a clock, as its samples gave them."""

    figures: Summary | None
    modes: tuple[Mode, Mode] | None


def sweep_of(entry: object) -> str:
    """Return the sweep or run whose summary an entry belongs in; "" if that is none."""
    is_apart = isinstance(entry, PipelineRecord) and (entry.how in ("rollout", "cold") or entry.sustained is not None)
    return "" if is_apart else getattr(entry, "sweep", getattr(entry, "run", ""))


def summarised(sweep: str, records: Mapping[str, Condensed]) -> SummaryRecord:
    """Return the summary of records of one sweep or run, given by id; it needs one at least."""
    newest = max(records.values(), key=lambda record: record.created)
    entries = {id: _fields(record) for id, record in sorted(records.items())}
    parts = [part for entry in entries.values() for part in entry.get("sides", [entry])]
    common = {key: max(values := [part[key] for part in parts], key=values.count) for key in parts[0]}
    for part in parts:
        for key in [key for key, value in part.items() if value == common[key]]:
            del part[key]
    return SummaryRecord(SCHEMA, newest.created, newest.machine, sweep, common, entries)


def records_of(summary: SummaryRecord) -> dict[str, Condensed]:
    """Return the records of a summary by id. Raises msgspec.ValidationError or KeyError if a field lacks."""
    return {id: _record(summary.common, entry) for id, entry in summary.entries.items()}


def _record(common: dict[str, Any], own: dict[str, Any]) -> Any:
    if "sides" in own:
        sides = tuple(_record(common, side) for side in own["sides"])
        return replace(read_as(own | {"sides": []}, Comparison), sides=sides)
    entry = common | own
    record = read_as(entry, PipelineRecord if entry["kind"] == "pipeline" else Record)
    for name in ("latency", "throughput"):
        if kept := entry["measurement"].get(name):
            vars(getattr(record.measurement, name)).update(read_as(kept, _Figures))  # as `cached_property` keeps them
    return record


def _fields(record: Condensed) -> dict[str, Any]:
    """Return what the history reads of a record: what ran, where, by which code, how it ended, the figures of its
    clocks, each output's error at its worst, memory; of a final the median of each block, of a mix its units' times."""
    entry: dict[str, Any] = msgspec.json.decode(encode_json(record))
    if isinstance(record, Comparison):
        for each in entry["rounds"]:
            each["samples_ns"] = [[round(median(samples))] for samples in each["samples_ns"]]
        return entry | {"sides": [*map(_fields, record.sides)]}
    made = {key: value for key in _KEPT if (value := entry["measurement"].get(key))}
    for name in ("latency", "throughput"):
        if name in made:
            clock = getattr(record.measurement, name)
            figures = _Figures(figures=clock.figures, modes=clock.modes)
            made[name] |= {"samples_ns": [], "warmup_ns": [], "after_pause_ns": [], **figures}
    for each in made["parity"].get("units", [made["parity"]]) if "parity" in made else ():
        each["outputs"].sort(key=lambda output: inf if output["rel_l2"] is None else output["rel_l2"])
        each["outputs"] = [{key: output[key] for key in _OF_OUTPUT} for output in each["outputs"][-1:]]
    made["programs"] = [{key: program[key] for key in _OF_PROGRAM} for program in made.get("programs", ())]
    if "units" in made:
        made["units"] |= {"started_ns": [], "lines": [], "programs": [], "copied_bytes": []}
    return entry | _LEFT_OUT | {"measurement": made}
