"""Where records lie: `runs/<machine>/records/`, one folder for each machine that measured; and files of former layouts.

A former layout had all records in `runs/records/`. They are read there, and moved to their machines' folders before
anything new is written.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from bakeoff.machine.identity import Machine, former_machine
from bakeoff.models.errors import BakeoffError
from bakeoff.record.pipeline import PipelineRecord
from bakeoff.record.schema import CeilingsRecord, Comparison, Record

RECORDS = "records"
Measured = Record | Comparison | CeilingsRecord | PipelineRecord
"""Entries that a machine measured."""


def machine_of(entry: Measured) -> Machine:
    """The machine that an entry was measured on; for schema 1, which stored no id, one by the parts of the host."""
    record = entry.a if isinstance(entry, Comparison) else entry
    if isinstance(record, CeilingsRecord | PipelineRecord):
        return record.machine
    return record.machine or former_machine(record.host, record.variant.device)


def folder_of(runs: Path, entry: Measured) -> Path:
    """The folder for an entry's file. A machine's folder keeps its name when the machine's readable name changes."""
    return machine_folder(runs, machine_of(entry)) / RECORDS


def machine_folder(runs: Path, machine: Machine) -> Path:
    """`runs/<machine>`: an existing folder that ends in the machine's id, else a new one with its readable name."""
    ending = f"-{machine.id[:6]}"
    known = [path for path in record_folders(runs) if path.parent.name.endswith(ending)]
    return known[0].parent if known else runs / machine.folder


def record_folders(runs: Path) -> list[Path]:
    """All folders that may hold records: those of machines by name, then the former common one.

    Raises BakeoffError if `runs` cannot be read; a missing folder has none.
    """
    try:
        names = sorted(os.listdir(runs))
    except FileNotFoundError:
        return []
    except OSError as error:
        text = f"records cannot be read from {runs}: {error.strerror}; choose another folder"
        raise BakeoffError(text, code="not-readable") from error
    found = [runs / name / RECORDS for name in names if not name.startswith(".") and name != RECORDS]
    return [path for path in (*found, runs / RECORDS) if path.exists()]


def check_exists(runs: Path) -> None:
    """Raise BakeoffError where `runs` does not exist: a command that only reads finds nothing there."""
    if not os.path.lexists(runs):
        text = f"the folder of records {runs} does not exist"
        raise BakeoffError(f"{text}; give another with --runs, or make records with bakeoff sweep", code="no-record")


def no_records(runs: Path) -> BakeoffError:
    """What is said of an existing folder that has no record, whatever was looked for in it."""
    text = f"the folder {runs} holds no records"
    return BakeoffError(f"{text}; give another with --runs, or make records with bakeoff sweep", code="no-record")


def record_files(runs: Path) -> Iterator[Path]:
    """Every record file under `runs`, by folder and name. Raises BakeoffError if a folder cannot be read."""
    for folder in record_folders(runs):
        try:
            names = sorted(os.listdir(folder))
        except OSError as error:
            text = f"records cannot be read from {folder}: {error.strerror}; choose another folder"
            raise BakeoffError(text, code="not-readable") from error
        yield from (folder / name for name in names if name.endswith(".json") and name[0] != ".")


def move_files(moves: dict[Path, Path]) -> None:
    """Move files to folders, each by one rename within the file system, and delete folders that are empty then.

    A file that is in its new folder already (a move that was interrupted, or the same records merged twice) is only
    removed from the old one. Raises BakeoffError where that fails; what was moved stays, and the next call goes on.
    """
    try:
        for path, folder in moves.items():
            folder.mkdir(parents=True, exist_ok=True)
            target = folder / path.name
            if target.exists() and target.read_bytes() == path.read_bytes():
                path.unlink()
            else:
                path.rename(target)
        for folder in {path.parent for path in moves}:
            if not os.listdir(folder):
                folder.rmdir()
    except OSError as error:
        text = f"{error.filename} cannot be moved to the folder of its machine: {error.strerror}; check the permissions"
        raise BakeoffError(text, code="not-writable") from error
