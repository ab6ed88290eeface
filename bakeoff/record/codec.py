"""Record files as JSON: encoding, decoding, and telling the kinds of record apart."""

from typing import Any, Literal

import msgspec

from bakeoff.models.errors import BakeoffError
from bakeoff.record.schema import SCHEMA, Comparison, Entry, Record, Samples, Supersede


def encode_json(value: Any, order: Literal["sorted"] | None = None) -> bytes:
    """JSON of anything the lab stores or sends; with `order`, dicts that are equal give equal bytes."""
    return msgspec.json.encode(value, enc_hook=_plain, order=order)


def read_as(value: Any, kind: type) -> Any:
    """A value of plain JSON as `kind`. Raises msgspec.ValidationError."""
    return msgspec.convert(value, type=kind, dec_hook=_typed)


def _plain(value: Any) -> Any:
    if isinstance(value, Samples):
        return value.tolist()
    raise NotImplementedError(f"{type(value).__name__} is not stored")


def _typed(kind: type, value: Any) -> Any:
    if kind is Samples and isinstance(value, list):
        return Samples(value)  # raises TypeError for what is not an integer
    raise ValueError(f"expected {kind.__name__}, found {type(value).__name__}")


class _Head(msgspec.Struct):
    """What tells entries apart; the rest of a file is not looked at."""

    schema: Any = msgspec.UNSET
    supersedes: str | None = None
    rounds: msgspec.Raw = msgspec.Raw()


_HEAD = msgspec.json.Decoder(_Head)
_READERS: dict[type, msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind, dec_hook=_typed) for kind in (Record, Supersede, Comparison)
}


def encode(entry: Entry) -> bytes:
    """Stable JSON: the same entry gives the same bytes."""
    return encode_json(entry) + b"\n"


def decode(data: bytes, name: str) -> Entry:
    """Read a record file. Raises BakeoffError naming the file when it is torn, of another schema or not a record."""
    try:
        head = _HEAD.decode(data)
        if head.schema is msgspec.UNSET:
            raise BakeoffError(f"{name} is not a record: it has no schema; move it elsewhere")
        if head.schema != SCHEMA:
            raise BakeoffError(f"record {name} has schema {head.schema}, this version reads {SCHEMA}; update it")
        kind = Supersede if head.supersedes is not None else Comparison if head.rounds else Record
        entry: Entry = _READERS[kind].decode(data)
        return entry
    except (msgspec.MsgspecError, OverflowError, RecursionError, UnicodeDecodeError) as error:
        raise BakeoffError(f"record {name} cannot be read: {error}; restore it from version control") from error
