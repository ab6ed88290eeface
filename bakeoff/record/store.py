"""The folder of records: one file for each, named by time, variant and content hash, and written atomically."""

import hashlib
import os
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from bakeoff.machine.files import write_atomically
from bakeoff.models import ALIASES, current_name
from bakeoff.models.errors import BakeoffError
from bakeoff.record.codec import decode, encode
from bakeoff.record.schema import SCHEMA, Comparison, Entry, Record, Supersede


@dataclass(frozen=True, slots=True)
class Stored:
    """A record with its id, the name of its file without `.json`."""

    id: str
    record: Record


@dataclass(frozen=True, slots=True)
class StoredComparison:
    """A comparison with its id."""

    id: str
    comparison: Comparison


@dataclass(frozen=True, slots=True)
class Records:
    """All readable records by time of creation; superseded ones are listed separately, with the reason."""

    current: tuple[Stored, ...]
    superseded: tuple[tuple[Stored, str], ...]
    problems: tuple[str, ...]
    """One message for each file that could not be read."""
    comparisons: tuple[StoredComparison, ...] = ()


def now() -> str:
    """The time as records store it: UTC, ISO 8601 with microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def save(runs: Path, entry: Entry) -> str:
    """Write one entry and return its id. Raises BakeoffError if it cannot be written."""
    data = encode(entry)
    match entry:
        case Record():
            slug = entry.variant.slug
        case Comparison():
            slug = f"compare_{entry.a.variant.slug}"
        case Supersede():
            slug = "supersede"
    stamp = entry.created.replace("-", "").replace(":", "").partition(".")[0]
    name = f"{stamp}Z_{slug}_{_hash(data)}"
    write_atomically(runs / "records" / f"{name}.json", data)
    return name


def load_all(runs: Path) -> Records:
    """Read all records of `runs`; a missing folder has none.

    Raises BakeoffError if the folder cannot be read.
    """
    records: list[Stored] = []
    reasons: dict[str, str] = {}
    comparisons: list[StoredComparison] = []
    problems: list[str] = []
    for path in _files(runs):
        try:
            entry = _read(path)
        except BakeoffError as error:
            problems.append(str(error))
            continue
        match entry:
            case Supersede():
                reasons[entry.supersedes] = entry.reason
            case Comparison():
                comparisons.append(StoredComparison(path.stem, entry))
            case Record():
                records.append(Stored(path.stem, entry))
    comparisons.sort(key=lambda compared: (compared.comparison.created, compared.id))
    records.sort(key=lambda stored: (stored.record.created, stored.id))
    return Records(
        current=tuple(stored for stored in records if stored.id not in reasons),
        superseded=tuple((stored, reasons[stored.id]) for stored in records if stored.id in reasons),
        problems=tuple(problems),
        comparisons=tuple(compared for compared in comparisons if compared.id not in reasons),
    )


def _files(runs: Path) -> list[Path]:
    folder = runs / "records"
    try:
        return sorted(folder / name for name in os.listdir(folder) if name.endswith(".json") and name[0] != ".")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise BakeoffError(
            f"records cannot be read from {folder}: {error.strerror}; choose another folder", code="not-readable"
        ) from error


def _read(path: Path) -> Entry:
    """Read one file. Raises BakeoffError if it cannot be read, or if its content does not have the hash in its name."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BakeoffError(f"record {path.name} cannot be read: {error.strerror}", code="bad-record") from error
    entry = decode(data, path.name)
    if _hash(data) != _ending(path):
        raise BakeoffError(
            f"record {path.name} was edited or renamed: its content has the hash {_hash(data)}; restore it",
            code="bad-record",
        )
    return _with_current_names(entry)


def _with_current_names(entry: Entry) -> Entry:
    """The entry with present names of components, so that old and new records are rows of one table."""
    match entry:
        case Record():
            return _with_current_name(entry)
        case Comparison():
            return replace(entry, a=_with_current_name(entry.a), b=_with_current_name(entry.b))
        case Supersede():
            return entry


def _with_current_name(record: Record) -> Record:
    if record.variant.component not in ALIASES:
        return record
    return replace(record, variant=replace(record.variant, component=current_name(record.variant.component)))


def _ending(path: Path) -> str:
    """The content hash in a record's name."""
    return path.stem.rpartition("_")[2]


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


def find(runs: Path, asked: str) -> Stored:
    """The record with this id, unique beginning of an id, unique content hash, or path of a file.

    Raises BakeoffError if none or several match, or if the match is not a record.
    """
    name, entry = _find(runs, asked)
    match entry:
        case Record():
            return Stored(name, entry)
        case Comparison():
            raise BakeoffError(
                f"{name} is a comparison of {entry.a.variant} and {entry.b.variant}; run: bakeoff compare {name}",
                code="no-record",
            )
        case Supersede():
            raise BakeoffError(
                f"{name} is not a record: it supersedes {entry.supersedes} ({entry.reason})", code="no-record"
            )


def find_comparison(runs: Path, asked: str) -> StoredComparison:
    """The comparison that `asked` names, as in `find`. Raises BakeoffError if none or several match."""
    name, entry = _find(runs, asked)
    if not isinstance(entry, Comparison):
        raise BakeoffError(
            f"{name} is not a comparison; give two records, or run: bakeoff show {name}", code="no-record"
        )
    return StoredComparison(name, entry)


def _find(runs: Path, asked: str) -> tuple[str, Entry]:
    if asked.endswith(".json") and os.path.isfile(asked):
        hits = [Path(asked)]
    else:
        files = _files(runs)
        hits = [path for path in files if asked and (path.stem.startswith(asked) or _ending(path).startswith(asked))]
        if len(hits) != 1:
            found = f"{len(hits)} of {len(files)} records match" if hits else f"none of {len(files)} records matches"
            advice = "give more of the name" if hits else "run bakeoff table --json for all names"
            raise BakeoffError(f"'{asked}': {found} in {runs / 'records'}; {advice}", code="no-record")
    return hits[0].stem, _read(hits[0])


def supersede(runs: Path, asked: str, reason: str) -> str:
    """Exclude a record from tables, and return the id of the entry that says so.

    Raises BakeoffError without a reason, or if not exactly one record matches.
    """
    if not reason.strip():
        raise BakeoffError("a record is superseded only with a reason; give --reason", code="bad-option")
    name, entry = _find(runs, asked)
    if isinstance(entry, Supersede):
        raise BakeoffError(
            f"{name} is not a record: it supersedes {entry.supersedes} ({entry.reason})", code="no-record"
        )
    if not (runs / "records" / f"{name}.json").is_file():
        raise BakeoffError(f"{name} is not in {runs / 'records'}; give its folder by --runs", code="no-record")
    return save(runs, Supersede(SCHEMA, now(), name, reason.strip()))
