"""Encodes entries as JSON and decodes entries of all kinds; in a summary, records are condensed to figures."""

from dataclasses import replace
from math import inf
from statistics import median
from typing import Any, TypedDict

import msgspec

from bakeoff.models.errors import BakeoffError
from bakeoff.record.pipeline import PipelineRecord
from bakeoff.record.schema import SCHEMA, CeilingsRecord, Comparison, Record, Samples, SummaryRecord, Supersede
from bakeoff.record.statistics import Mode, Summary

Entry = Record | Supersede | Comparison | CeilingsRecord | PipelineRecord | SummaryRecord


def encode_json(value: Any) -> bytes:
    """Encode a value as JSON: dataclasses and plain values, including samples."""
    return msgspec.json.encode(value, enc_hook=_plain)


def read_as(value: Any, kind: type) -> Any:
    """Convert a plain JSON value to type `kind`. Raises msgspec.ValidationError if it does not fit."""
    return msgspec.convert(value, type=kind, dec_hook=_typed)


def _plain(value: Any) -> Any:
    if isinstance(value, Samples):
        return value.tolist()
    raise NotImplementedError(f"{type(value).__name__} is not stored")


def _typed(kind: type, value: Any) -> Any:
    if kind is Samples and isinstance(value, list):
        samples = Samples(value)  # raises TypeError for what is not an integer
        if samples and min(samples) <= 0:
            raise ValueError(f"a sample of {min(samples)} ns; times are positive")
        return samples
    raise ValueError(f"expected {kind.__name__}, found {type(value).__name__}")


_KINDS: dict[str, type[Entry]] = {
    "record": Record,
    "comparison": Comparison,
    "supersede": Supersede,
    "ceilings": CeilingsRecord,
    "pipeline": PipelineRecord,
    "summary": SummaryRecord,
}
"""Type of an entry by its tag."""


class _Head(msgspec.Struct):
    """The fields that determine how a file is read; the others are skipped."""

    schema: Any = msgspec.UNSET
    kind: str = ""


_HEAD = msgspec.json.Decoder(_Head)
_READERS: dict[str, msgspec.json.Decoder[Entry]] = {
    kind: msgspec.json.Decoder(entry_type, dec_hook=_typed) for kind, entry_type in _KINDS.items()
}


def encode(entry: Entry) -> bytes:
    """Encode an entry as one line of JSON; the same entry gives the same bytes."""
    return encode_json(_packed(entry) if isinstance(entry, SummaryRecord) else entry) + b"\n"


def decode(data: bytes, name: str) -> Entry:
    """Decode a record file.

    Raises BakeoffError naming the file if it is incomplete, of another schema or not a record.
    """
    try:
        head = _HEAD.decode(data)
        if head.schema is msgspec.UNSET:
            raise BakeoffError(
                f"{name} is not a record: it has no schema; move it to another folder", code="bad-record"
            )
        if head.schema != SCHEMA:
            text = f"record {name} has schema {head.schema}, but this version reads {SCHEMA}; use another version"
            raise BakeoffError(text, code="bad-record")
        if head.kind not in _READERS:
            text = f"record {name} is of kind '{head.kind}', not {', '.join(_READERS)}; update bakeoff"
            raise BakeoffError(text, code="bad-record")
        entry = _READERS[head.kind].decode(data)
        if not isinstance(entry, SummaryRecord):
            return entry
        entries = {id: _unpacked(entry.common, each) for id, each in entry.entries.items()}
        return replace(entry, entries=entries, common={})
    except (msgspec.MsgspecError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        text = f"record {name} cannot be read: {error}; restore it from version control"
        raise BakeoffError(text, code="bad-record") from error


_KEPT = (
    "status", "reason", "findings", "latency", "throughput", "parity", "memory", "programs", "opened_ns", "units",
)  # fmt: skip
"""Fields of a measurement that a summary has."""
_OF_OUTPUT = "name", "rel_l2", "limit", "passed", "problem"
_OF_PROGRAM = "slot", "variant", "batch", "status", "reason", "quantisation", "source"


class _Figures(TypedDict):
    """Statistics of a clock, as its samples gave them."""

    figures: Summary | None
    modes: tuple[Mode, Mode] | None


def _packed(summary: SummaryRecord) -> SummaryRecord:
    """Return the summary as it is stored."""
    entries = {id: _condensed(record) for id, record in sorted(summary.entries.items())}
    parts = [part for entry in entries.values() for part in entry.get("sides", [entry])]
    common = {**parts[-1]}
    for part in parts:
        for key in [key for key, value in part.items() if value == common[key]]:
            del part[key]
    return replace(summary, common=common, entries=entries)


def _condensed(record: Any) -> dict[str, Any]:
    entry: dict[str, Any] = msgspec.json.decode(encode_json(record))
    if isinstance(record, Comparison):
        for each in entry["rounds"]:
            each["samples_ns"] = [[round(median(samples))] for samples in each["samples_ns"]]
        return entry | {"sides": [*map(_condensed, record.sides)]}
    made = {key: value for key in _KEPT if (value := entry["measurement"].get(key))}
    for name in {"latency", "throughput"} & made.keys():
        clock = getattr(record.measurement, name)
        made[name] |= {"samples_ns": [], "warmup_ns": [], "after_pause_ns": []}
        made[name] |= {"figures": clock.figures, "modes": clock.modes}
    parity = made.get("parity", {"outputs": []})
    for each in parity.get("units", [parity]):
        each["outputs"].sort(key=lambda output: inf if output["rel_l2"] is None else output["rel_l2"])
        each["outputs"] = [{key: output[key] for key in _OF_OUTPUT} for output in each["outputs"][-1:]]
    made["programs"] = [{key: program[key] for key in _OF_PROGRAM} for program in made.get("programs", ())]
    if "units" in made:
        made["units"] |= {"started_ns": [], "lines": [], "programs": [], "copied_bytes": []}
    return entry | {"log": "", "phase_s": {}, "monitored": None, "forecast": None, "measurement": made}


def _unpacked(common: dict[str, Any], own: dict[str, Any]) -> Any:
    if "sides" in own:
        sides = tuple(_unpacked(common, side) for side in own["sides"])
        return replace(read_as(own | {"sides": []}, Comparison), sides=sides)
    entry = common | own
    record = read_as(entry, _KINDS[entry["kind"]])
    for name in {"latency", "throughput"} & entry["measurement"].keys():
        figures = read_as(entry["measurement"][name], _Figures)
        vars(getattr(record.measurement, name)).update(figures)  # as `cached_property` keeps them
    return record
