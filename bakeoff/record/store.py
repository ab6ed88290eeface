"""Reads and writes records: one file for each, named by time, variant and content hash, and written atomically."""

import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from bakeoff.machine.files import write_atomically
from bakeoff.machine.identity import Machine, same_machine
from bakeoff.models.errors import BakeoffError
from bakeoff.models.plain_file import read_plain
from bakeoff.models.words import counted
from bakeoff.record.codec import Entry, decode, encode
from bakeoff.record.pipeline import PipelineRecord
from bakeoff.record.schema import SCHEMA, CeilingsRecord, Comparison, Record, SummaryRecord, Supersede

if TYPE_CHECKING:
    from typing_extensions import TypeIs

Measured = Record | Comparison | CeilingsRecord | PipelineRecord
"""Entries that a machine measured."""
Kind = TypeVar("Kind", bound=Measured, covariant=True)


@dataclass(frozen=True)  # with slots, Python 3.11 cannot make one by its names below
class StoredEntry(Generic[Kind]):
    """Record of a machine, with its id: the name of its file without `.json`."""

    id: str
    record: Kind
    folder: str = ""
    """Folder of its file, relative to the folder of runs that was read first, with forward slashes; "" if it is not
    known."""
    summary: str = ""
    """Id of the summary that has it; "" if it has a file of its own."""

    @property
    def machine(self) -> Machine:
        return self.record.machine


Stored = StoredEntry[Record]
StoredComparison = StoredEntry[Comparison]
StoredCeilings = StoredEntry[CeilingsRecord]
StoredPipeline = StoredEntry[PipelineRecord]


def is_run(entry: StoredEntry[Any]) -> "TypeIs[StoredPipeline]":
    """Return whether the record is a run of a pipeline."""
    return isinstance(entry.record, PipelineRecord)


@dataclass(frozen=True, slots=True)
class Records:
    """All readable records by time of creation; superseded ones are listed separately, with the reason."""

    current: tuple[Stored, ...]
    superseded: tuple[tuple[Stored, str], ...]
    problems: tuple[str, ...]
    """One message for each file that could not be read."""
    comparisons: tuple[StoredComparison, ...] = ()
    ceilings: tuple[StoredCeilings, ...] = ()
    pipelines: tuple[StoredPipeline, ...] = ()
    """Runs of pipelines whose units were timed, or that failed."""
    rollouts: tuple[StoredPipeline, ...] = ()
    sustained: tuple[StoredPipeline, ...] = ()
    """Sustained runs of pipelines, which are in no table with the others."""

    @property
    def ran(self) -> tuple[StoredPipeline, ...]:
        """All runs of pipelines."""
        return *self.pipelines, *self.rollouts, *self.sustained

    def machines(self) -> list[Machine]:
        """Return a host of every machine that has a record or a comparison, the one that measured last first.

        Machines with superseded records only come last.
        """
        found: dict[str, Machine] = {}
        for host in self.hosts():
            found.setdefault(host.key, host)
        return list(found.values())

    def hosts(self) -> list[Machine]:
        """Return every host of these machines, in the same order."""
        entries: list[StoredEntry[Measured]] = [*self.current, *self.comparisons, *self.ran]
        measured = [("", entry.machine) for entry, _ in self.superseded]
        measured += [(entry.record.created, entry.machine) for entry in entries]
        last = {machine.host: (created, machine) for created, machine in sorted(measured, key=_created)}
        return [machine for _, machine in sorted(last.values(), key=_created, reverse=True)]

    def where(self, keep: Callable[[StoredEntry[Any]], bool]) -> "Records":
        """Return the entries that `keep` accepts; problems stay, since nothing is known of a file that cannot be
        read."""

        def kept(entries: Iterable[StoredEntry[Kind]]) -> tuple[StoredEntry[Kind], ...]:
            return tuple(filter(keep, entries))

        return Records(
            kept(self.current),
            tuple(pair for pair in self.superseded if keep(pair[0])),
            self.problems,
            kept(self.comparisons),
            kept(self.ceilings),
            kept(self.pipelines),
            kept(self.rollouts),
            kept(self.sustained),
        )

    def of_machines(self, keys: Collection[str]) -> "Records":
        """Return the entries of the machines with these keys alone."""
        return self.where(lambda entry: entry.machine.key in keys)


def of_one_host(entries: Iterable[StoredEntry[Kind]], machine: Machine) -> list[StoredEntry[Kind]]:
    """Return the entries of one host of a machine, the oldest first as given: of `machine` itself or, if there are
    none, of the host that measured last. Times of two hosts are never compared."""
    own = [entry for entry in entries if same_machine(entry.machine, machine)]
    hosts = [entry.machine.host for entry in own]
    return [entry for entry in own if entry.machine.host == (machine.host if machine.host in hosts else hosts[-1])]


def _created(pair: tuple[str, Machine]) -> str:
    return pair[0]


def now() -> str:
    """Return the time as records store it: UTC, ISO 8601 with microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def save(runs: Path, entry: Entry, *others: Path) -> str:
    """Write one entry into the folder of its machine and return its id. Raises BakeoffError if it cannot be written.

    `others` are more folders of runs that may contain the record that the entry supersedes.
    """
    match entry:
        case Record():
            slug = entry.variant.slug
        case Comparison():
            slug = f"compare_{entry.a.variant.slug}"
        case CeilingsRecord():
            slug = "ceilings"
        case PipelineRecord():
            slug = f"pipeline_{entry.mix.slug}"
        case SummaryRecord() | Supersede():
            slug = entry.kind
    folder, data = _folder_of(runs, entry, *others), encode(entry)
    stamp = entry.created.replace("-", "").replace(":", "").partition(".")[0]
    name = f"{stamp}Z_{slug}_{_hash(data)}"
    write_atomically(folder / f"{name}.json", data)
    return name


def _folder_of(runs: Path, entry: Entry, *others: Path) -> Path:
    """Return the folder of `runs` that an entry belongs in: that of its machine.

    For a Supersede, this is the machine of the superseded record, which is looked up in `runs` and `others`. Raises
    BakeoffError if no folder has that record.
    """
    if not isinstance(entry, Supersede):
        return folder_of(runs, entry)
    for folder in (runs, *others):
        if path := _files(folder).get(entry.supersedes):
            return runs / path.parent.relative_to(folder)
    raise BakeoffError(f"{entry.supersedes} is not in {runs}; give its folder by --runs", code="no-record")


def publish(published: Path, runs: Path, ids: Collection[str]) -> None:
    """Copy the records with these ids from `runs` to `published` unchanged, in a summary with the others in it, and the
    entries that supersede published ones.

    Raises BakeoffError if a file cannot be written.
    """
    held = {path.stem for path in record_files(published)}
    for path, entry in sorted(_entries([runs], []), key=lambda pair: pair[0].stem not in ids):
        if path.stem in held:
            continue
        try:
            folder = _folder_of(published, entry)
        except BakeoffError:  # it supersedes what is not published
            continue
        if not {path.stem, *getattr(entry, "entries", ())}.isdisjoint(ids) or isinstance(entry, Supersede):
            write_atomically(folder / path.name, read_record(path))


def condense(published: Path, keep: Collection[str]) -> None:
    """Replace the files of rows, finals and runs whose ids are not in `keep` by one summary for each sweep or run.

    Raises BakeoffError if a file cannot be read or written.
    """
    found: dict[tuple[Path, str], dict[Path, dict[str, Any]]] = {}
    for path in record_files(published):
        entry = _read(path)
        sweep = getattr(entry, "sweep", getattr(entry, "run", ""))
        if sweep and path.stem not in keep:
            held = entry.entries if isinstance(entry, SummaryRecord) else {path.stem: entry}
            found.setdefault((path.parent, sweep), {})[path] = held
    for (_, sweep), files in found.items():
        if len(files) == 1 and "Z_summary_" in next(iter(files)).name:
            continue  # a record that is on disk stays as it is, whatever fields this version adds
        entries = {id: record for held in files.values() for id, record in held.items()}
        newest = max(entries.values(), key=lambda record: record.created)
        written = save(published, SummaryRecord(SCHEMA, newest.created, newest.machine, sweep, entries))
        for path in files:
            if path.stem != written:
                path.unlink()


def merge(runs: Path, *sources: Path) -> tuple[int, int]:
    """Copy the entries that `runs` lacks from other folders of runs, unchanged; return how many, and how many it had.

    All are checked before the first is copied. Raises BakeoffError if a file of `sources` is not a whole record with
    the content of its name, if another of that name has other content, or if one cannot be written.
    """
    known = {path.stem: path for path in record_files(runs)}
    lacking: list[tuple[Path, Path, Entry]] = []
    had = 0
    for source in sources:
        for path in record_files(source):
            same = known.setdefault(path.stem, path)
            if same is path:
                lacking.append((source, path, _read(path)))
            elif read_record(same) == read_record(path):
                had += 1
            else:
                text = f"{path.name} has one content in {same.parent} and another in {path.parent}"
                raise BakeoffError(f"{text}; restore the edited one", code="bad-record")
    for source, path, entry in sorted(lacking, key=lambda found: isinstance(found[2], Supersede)):
        try:
            folder = _folder_of(runs, entry)
        except BakeoffError:  # it supersedes a record that is elsewhere
            folder = runs / path.parent.relative_to(source)
        write_atomically(folder / path.name, read_record(path))
    return len(lacking), had


def load_all(runs: Path, *others: Path) -> Records:
    """Read all records of `runs`, and those of `others` that `runs` lacks; a missing folder counts as empty.

    Raises BakeoffError if a folder cannot be read.
    """
    whole: dict[str, StoredEntry[Measured]] = {}
    condensed: dict[str, StoredEntry[Measured]] = {}
    reasons: dict[str, str] = {}
    problems: list[str] = []
    for path, entry in _entries([runs, *others], problems):
        folder = Path(os.path.relpath(path.parent, runs)).as_posix()
        if isinstance(entry, Supersede):
            reasons[entry.supersedes] = entry.reason
        elif isinstance(entry, SummaryRecord):
            condensed |= {id: StoredEntry(id, record, folder, path.stem) for id, record in entry.entries.items()}
        else:
            whole[path.stem] = StoredEntry(path.stem, entry, folder)
    found = [*(condensed | whole).values()]
    found.sort(key=lambda stored: (stored.record.created, stored.id))

    def kept(kind: type[Measured], superseded: bool = False) -> Any:
        return tuple(each for each in found if isinstance(each.record, kind) and (each.id in reasons) == superseded)

    ran = kept(PipelineRecord)
    return Records(
        current=kept(Record),
        superseded=tuple((stored, reasons[stored.id]) for stored in kept(Record, superseded=True)),
        problems=tuple(problems),
        comparisons=kept(Comparison),
        ceilings=kept(CeilingsRecord),
        pipelines=tuple(each for each in ran if each.record.how != "rollout" and each.record.sustained is None),
        rollouts=tuple(each for each in ran if each.record.how == "rollout"),
        sustained=tuple(each for each in ran if each.record.sustained is not None),
    )


def _entries(folders: Iterable[Path], problems: list[str]) -> Iterator[tuple[Path, Entry]]:
    """Yield the path and entry of each readable file, once if several folders have it; for each unreadable file, append
    a message to `problems`."""
    read: set[str] = set()
    for path in (path for folder in folders for path in record_files(folder)):
        if path.stem in read:
            continue
        try:
            entry = _read(path)
        except BakeoffError as error:
            problems.append(str(error))
            continue
        read.add(path.stem)
        yield path, entry


_READ: dict[str, Entry] = {}
"""Decoded entries by file name; each file's content had the hash in its name when it was read."""


def _read(path: Path) -> Entry:
    """Read one file, and decode it unless that was done before.

    Raises BakeoffError if it cannot be read, or if its content does not have the hash in its name.
    """
    data = read_record(path)
    hashed = _hash(data)
    if hashed == _ending(path) and path.name in _READ:
        return _READ[path.name]
    entry = decode(data, path.name)
    if hashed != _ending(path):
        raise BakeoffError(
            f"record {path.name} was edited or renamed: its content has the hash {hashed}; restore it",
            code="bad-record",
        )
    return _READ.setdefault(path.name, entry)


def read_record(path: Path) -> bytes:
    """Return the content of a record's file. Raises BakeoffError if it cannot be read, or is not a regular file."""
    try:
        return read_plain(path)
    except OSError as error:
        raise BakeoffError(f"record {path.name} cannot be read: {error.strerror}", code="bad-record") from error


def _ending(path: Path) -> str:
    """Return the content hash in a record's name."""
    return path.stem.rpartition("_")[2]


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


def find(runs: Path, asked: str, *others: Path) -> StoredEntry[Any]:
    """Return the record with this id, unique beginning of an id, unique content hash, or path of a file.

    `others` are searched if `runs` has no match. Raises BakeoffError if none or several match, or if the match is no
    record of its own.
    """
    name, path = _find_file(runs, asked, *others)
    entry: Any = _read(path)
    if isinstance(entry, SummaryRecord):
        entry = entry.entries.get(name, entry)
    if isinstance(entry, Supersede):
        text = f"{name} is not a record: it supersedes {entry.supersedes} ({entry.reason})"
        raise BakeoffError(text, code="no-record")
    if isinstance(entry, SummaryRecord):
        text = f"{name} has {counted(len(entry.entries), 'record')}; give one: {', '.join(entry.entries)}"
        raise BakeoffError(text, code="no-record")
    return StoredEntry(name, entry)


def _find_file(runs: Path, asked: str, *others: Path) -> tuple[str, Path]:
    """Return the id of the only record that matches, and its file."""
    if asked.endswith(".json") and os.path.isfile(asked):
        return Path(asked).stem, Path(asked)
    name = asked.removesuffix(".json")
    for folder in (runs, *others):
        files = _files(folder)
        hits = [id for id in files if name and (id.startswith(name) or id.rpartition("_")[2].startswith(name))]
        if hits:
            break
    else:
        check_exists(runs)
        folder, files = runs, _files(runs)
    if not files:
        raise no_records(runs)
    if len(hits) != 1:
        found = (
            f"{len(hits)} of {counted(len(files), 'record')} match"
            if hits
            else f"none of {counted(len(files), 'record')} matches"
        )
        advice = "give more of the name" if hits else "run bakeoff table --json for all names"
        raise BakeoffError(f"'{asked}': {found} in {folder}; {advice}", code="no-record")
    return hits[0], files[hits[0]]


def _files(folder: Path) -> dict[str, Path]:
    """Return the file that has each record, its own or a summary, by the record's id."""
    found = {path.stem: path for path in record_files(folder)}
    for path in [path for name, path in found.items() if "Z_summary_" in name]:
        with suppress(BakeoffError):  # another record may be meant
            found = dict.fromkeys(getattr(_read(path), "entries", ()), path) | found
    return found


def supersede(runs: Path, asked: str, reason: str, *others: Path) -> str:
    """Exclude a record of `runs` or `others` from tables by an entry in `runs`, and return the entry's id.

    Raises BakeoffError without a reason, if not exactly one record matches, or if it is superseded already.
    """
    if not reason.strip():
        raise BakeoffError("a record is superseded only with a reason; give one after its name", code="bad-option")
    name = find(runs, asked, *others).id
    entries = (entry for _, entry in _entries([runs, *others], []))  # an unreadable file supersedes nothing
    earlier = [entry.reason for entry in entries if isinstance(entry, Supersede) and entry.supersedes == name]
    if earlier:
        text = f"{name} is superseded already ({earlier[0]}); nothing was written"
        raise BakeoffError(text, code="no-record")
    return save(runs, Supersede(SCHEMA, now(), name, reason.strip()), *others)


RECORDS = "records"


def folder_of(runs: Path, entry: Measured | SummaryRecord) -> Path:
    """Return the folder for an entry's file: of an existing folder that ends in its machine's tag, else of a new one
    with the machine's readable name, which may change."""
    ending = f"-{entry.machine.tag}"
    known = (folder for folder in _record_folders(runs) if folder.parent.name.endswith(ending))
    return next(known, runs / entry.machine.folder / RECORDS)


def _record_folders(runs: Path) -> list[Path]:
    """Return the folders of records of all machines, by name. A missing `runs` has none.

    Raises BakeoffError if it cannot be read.
    """
    try:
        names = sorted(os.listdir(runs))
    except FileNotFoundError:
        return []
    except OSError as error:
        text = f"the folder of records {runs} cannot be used: {error.strerror}; choose another folder"
        raise BakeoffError(text, code="not-readable") from error
    return [runs / name / RECORDS for name in names if name[0] != "." and (runs / name / RECORDS).exists()]


def check_exists(runs: Path) -> None:
    """Raise BakeoffError if `runs` does not exist: a command that only reads finds nothing there."""
    if not os.path.lexists(runs):
        text = f"the folder of records {runs} does not exist"
        raise BakeoffError(f"{text}; give another with --runs, or make records with bakeoff sweep", code="no-record")


def no_records(runs: Path) -> BakeoffError:
    """Return the error for an existing folder that has no record."""
    text = f"the folder {runs} holds no records"
    return BakeoffError(f"{text}; give another with --runs, or make records with bakeoff sweep", code="no-record")


def record_files(runs: Path) -> Iterator[Path]:
    """Yield every record file under `runs`, by folder and name. Raises BakeoffError if a folder cannot be read."""
    for folder in _record_folders(runs):
        try:
            names = sorted(os.listdir(folder))
        except OSError as error:
            text = f"the folder of records {folder} cannot be used: {error.strerror}; choose another folder"
            raise BakeoffError(text, code="not-readable") from error
        yield from (folder / name for name in names if name.endswith(".json") and name[0] != ".")
