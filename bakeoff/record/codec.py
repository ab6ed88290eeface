"""Encoding of records as JSON, and decoding of records, comparisons and supersede entries."""

from typing import Any, Literal

import msgspec

from bakeoff.models.errors import BakeoffError
from bakeoff.record.schema import SCHEMA, Comparison, Entry, Record, Samples, Supersede


def encode_json(value: Any, order: Literal["sorted"] | None = None) -> bytes:
    """JSON of dataclasses and plain values, including samples; with `order`, equal dicts give equal bytes."""
    return msgspec.json.encode(value, enc_hook=_plain, order=order)


def read_as(value: Any, kind: type) -> Any:
    """A value of plain JSON converted to type `kind`. Raises msgspec.ValidationError if it does not fit."""
    return msgspec.convert(value, type=kind, dec_hook=_typed)


def _plain(value: Any) -> Any:
    if isinstance(value, Samples):
        return value.tolist()
    raise NotImplementedError(f"{type(value).__name__} is not stored")


def _typed(kind: type, value: Any) -> Any:
    if kind is Samples and isinstance(value, list):
        return Samples(value)  # raises TypeError for what is not an integer
    raise ValueError(f"expected {kind.__name__}, found {type(value).__name__}")


_KINDS: dict[str, type[Entry]] = {"record": Record, "comparison": Comparison, "supersede": Supersede}
"""Type of an entry by the tag that a file may have in its field `kind`."""
_FIELD_OF = {"supersede": "supersedes", "comparison": "rounds"}
"""A field that only entries of this kind have. Files of schema 1 have no tag; one with neither field is a record.
To write tags, give each entry type of the next schema a first field `kind: Literal["..."] = "..."`."""


class _Head(msgspec.Struct):
    """The fields that determine the kind of a file; the others are skipped."""

    schema: Any = msgspec.UNSET
    kind: str | msgspec.UnsetType = msgspec.UNSET
    supersedes: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    rounds: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_HEAD = msgspec.json.Decoder(_Head)
_READERS: dict[str, msgspec.json.Decoder[Entry]] = {
    kind: msgspec.json.Decoder(entry_type, dec_hook=_typed) for kind, entry_type in _KINDS.items()
}


def encode(entry: Entry) -> bytes:
    """One line of JSON; the same entry gives the same bytes."""
    return encode_json(entry) + b"\n"


def decode(data: bytes, name: str) -> Entry:
    """Decode a record file; component names are returned as stored.

    Raises BakeoffError naming the file if it is incomplete, of another schema or not a record.
    """
    try:
        head = _HEAD.decode(data)
        if head.schema is msgspec.UNSET:
            raise BakeoffError(
                f"{name} is not a record: it has no schema; move it to another folder", code="bad-record"
            )
        if head.schema != SCHEMA:
            text = f"record {name} has schema {head.schema}, but this version reads {SCHEMA}; update bakeoff"
            raise BakeoffError(text, code="bad-record")
        kind = _kind(head)
        if kind not in _READERS:
            known = ", ".join(_READERS)
            raise BakeoffError(f"record {name} is of kind '{kind}', not {known}; update bakeoff", code="bad-record")
        return _READERS[kind].decode(data)
    except (msgspec.MsgspecError, OverflowError, RecursionError, UnicodeDecodeError) as error:
        text = f"record {name} cannot be read: {error}; restore it from version control"
        raise BakeoffError(text, code="bad-record") from error


def _kind(head: _Head) -> str:
    if head.kind is not msgspec.UNSET:
        return head.kind
    return next((kind for kind, field in _FIELD_OF.items() if getattr(head, field) is not msgspec.UNSET), "record")
