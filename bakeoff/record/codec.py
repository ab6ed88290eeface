"""Encodes entries as JSON and decodes entries of all kinds."""

from typing import Any

import msgspec

from bakeoff.models.errors import BakeoffError
from bakeoff.record.pipeline import PipelineRecord
from bakeoff.record.schema import SCHEMA, CeilingsRecord, Comparison, Record, Samples, SummaryRecord, Supersede

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
    return encode_json(entry) + b"\n"


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
        return _READERS[head.kind].decode(data)
    except (msgspec.MsgspecError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        text = f"record {name} cannot be read: {error}; restore it from version control"
        raise BakeoffError(text, code="bad-record") from error
