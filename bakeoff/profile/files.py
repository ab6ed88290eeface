"""Names, writing and reading of a session's files: the record, and the page and JSON report that are made from it.

A file's name consists of the session's name, its start in UTC and the record's content hash, so that no name leads out
of the folder and no session overwrites another. Records of ranks are in one folder of their group, named by rank.
"""

import hashlib
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import msgspec

from bakeoff.machine.files import digest, slug, write_atomically
from bakeoff.machine.terminal import one_line
from bakeoff.models.errors import BakeoffError
from bakeoff.models.plain_file import read_plain
from bakeoff.profile.plain import say
from bakeoff.profile.settings import Settings
from bakeoff.record.session import SESSION_SCHEMA, RankFacts, SessionRecord, violation

RECORD, PAGE, REPORT, SAMPLES = ".session.json", ".html", ".report.json", ".samples.jsonl"
"""Endings of the files of one session, whose names are otherwise the same."""
MOST_BYTES = 64 << 20
"""Largest size of a record that is read; one of 10,000 units has less than 4 MiB."""
_HASH = 12
_NAMED_HASH = re.compile(rf"(?:-\d{{8}}T\d{{6}}Z|^rank-\d{{5}})-([0-9a-f]{{{_HASH}}}){re.escape(RECORD)}$")
_LARGEST = 2**63


def write_session(record: SessionRecord, settings: Settings, raw: Path | None = None) -> tuple[Path, ...]:
    """Write the record, and rename the monitor's file `raw` to lie beside it; return the paths, the record's first.

    If the samples cannot be renamed, a line on stderr says so. Raises BakeoffError if the record cannot be written.
    """
    data = encode(record)
    folder, stem = _place(record, data, settings)
    path = folder / f"{stem}{RECORD}"
    write_atomically(path, data)
    if raw is None or not raw.exists():
        return (path,)
    try:
        return path, raw.replace(folder / f"{stem}{SAMPLES}")
    except OSError as error:  # whatever fails now, the pipeline must go on, and its record is there
        say(f"samples of a session cannot be renamed: {error.strerror}; the record is {path}")
        return (path,)


def reports_of(path: Path, record: SessionRecord, settings: Settings) -> tuple[Path, ...]:
    """Return the paths, beside the record, of the JSON report and page that the settings ask for.

    They are none for ranks: `bakeoff session aggregate` makes a page of all ranks, `bakeoff session show --html` of
    one.
    """
    if not settings.generate_final_report or record.rank is not None:
        return ()
    stem = path.name.removesuffix(RECORD)
    endings = {"json": (REPORT,), "html": (PAGE,), "both": (REPORT, PAGE)}[settings.report_format]
    return tuple(path.with_name(f"{stem}{ending}") for ending in endings)


def check_writable(name: str, settings: Settings, rank: RankFacts | None) -> None:
    """Create the folder of a session's files.

    Raises BakeoffError, code not-writable, if no file can be written there.
    """
    folder = _folder(name, settings, rank)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):  # as root, the mode of a folder tells nothing
            pass
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        raise BakeoffError(one_line(f"{folder} cannot be written: {reason}"), "not-writable") from error


def raw_file(name: str, started_wall_ns: int, settings: Settings, rank: RankFacts | None = None) -> Path | None:
    """Return the path to which a monitor writes every sample of a session; None if the settings do not ask for it."""
    if not settings.save_raw_data:
        return None
    ending = digest((_named(name), started_wall_ns, os.getpid()))[:_HASH]
    return _folder(name, settings, rank) / f"{_start(name, started_wall_ns)}-{ending}{SAMPLES}"


def read_session(path: Path) -> SessionRecord:
    """Read the record of a session from a file.

    Raises BakeoffError, code not-readable, if the path is no regular file or the file has more than 64 MiB, and code
    bad-record if the content is no JSON, has another schema, contradicts itself, or does not have the hash in its name.
    """
    data = _read(path)
    try:
        raw = msgspec.json.decode(data)
        if not isinstance(raw, dict) or "schema" not in raw:
            raise BakeoffError(f"{path} is no record of a session; give a file *{RECORD}", "bad-record")
        if raw["schema"] != SESSION_SCHEMA:
            text = f"{path} has schema {raw['schema']!r:.40}, but this version reads {SESSION_SCHEMA}; update bakeoff"
            raise BakeoffError(text, "bad-record")
        if not all(abs(each) < _LARGEST for each in _whole_numbers(raw)):  # JSON has no other numbers but finite ones
            raise BakeoffError(f"{path} holds a number that no clock gives; record the session again", "bad-record")
        record = msgspec.convert(raw, SessionRecord)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        text = f"{path} is no record of a session: {one_line(str(error))[:200]}; give a file *{RECORD}"
        raise BakeoffError(text, "bad-record") from error
    wrong = violation(record)
    if wrong is not None:
        raise BakeoffError(f"{path} contradicts itself: {wrong}; record the session again", "bad-record")
    named = _NAMED_HASH.search(path.name)
    if named is not None and named[1] != _hash(data):
        text = f"{path} was edited or renamed: its content has the hash {_hash(data)}; restore it"
        raise BakeoffError(text, "bad-record")
    return record


def page_path(record: Path) -> Path:
    """Return the path of a record's page."""
    return record.with_name(record.name.removesuffix(RECORD) + PAGE)


def encode(record: SessionRecord) -> bytes:
    """Encode a record as one line of JSON; equal records give equal bytes."""
    try:
        return msgspec.json.encode(record) + b"\n"
    except (UnicodeEncodeError, OverflowError, TypeError):
        return msgspec.json.encode(_storable(msgspec.to_builtins(record, enc_hook=str))) + b"\n"


def _storable(value: Any) -> Any:
    """Return the value with text made encodable as UTF-8, and with integers of more than 64 bits as text."""
    match value:
        case dict():
            return {_storable(key): _storable(each) for key, each in value.items()}
        case list() | tuple():
            return [_storable(each) for each in value]
        case str():
            return value.encode("utf-8", "replace").decode()
        case int() if abs(value) >= _LARGEST:
            return str(value)
    return value


def _place(record: SessionRecord, data: bytes, settings: Settings) -> tuple[Path, str]:
    """Return the folder of a session's files, and the stem of their names."""
    folder = _folder(record.name, settings, record.rank)
    content = _hash(data)
    if record.rank is None:
        return folder, f"{_start(record.name, record.started_wall_ns)}-{content}"
    stem = f"rank-{record.rank.rank:05d}"
    taken = (folder / f"{stem}{RECORD}").exists()  # by an earlier session of the same name
    return folder, f"{stem}-{content}" if taken else stem


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_HASH]


def _folder(name: str, settings: Settings, rank: RankFacts | None) -> Path:
    folder = Path(settings.output_dir)
    if rank is None:
        return folder
    group = slug(rank.group)
    return (
        folder
        / f"{_named(name)}-{group if group == rank.group else f'{group}-{digest(ascii(rank.group))[:8]}'.strip('-')}"
    )


def _named(name: str) -> str:
    return slug(name) or "session"


def _start(name: str, started_wall_ns: int) -> str:
    return f"{_named(name)}-{datetime.fromtimestamp(started_wall_ns // 10**9, UTC):%Y%m%dT%H%M%SZ}"


def _read(path: Path) -> bytes:
    try:
        return read_plain(path, MOST_BYTES)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) else str(error)
        text = f"{path} cannot be read: {reason}; give a file *{RECORD}"
        raise BakeoffError(one_line(text), "not-readable") from error


def _whole_numbers(value: Any) -> Iterator[int]:
    """Yield every integer within a decoded JSON value."""
    pending = [value]
    while pending:
        each = pending.pop()
        if isinstance(each, dict):
            pending += each.values()
        elif isinstance(each, list):
            pending += each
        elif isinstance(each, int):
            yield each
