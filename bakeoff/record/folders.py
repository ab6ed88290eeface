"""Where records lie: `runs/<machine>/records/`, one folder for each machine that measured."""

import os
from collections.abc import Iterator
from pathlib import Path

from bakeoff.machine.identity import Machine
from bakeoff.models.errors import BakeoffError
from bakeoff.record.pipeline import PipelineRecord
from bakeoff.record.schema import CeilingsRecord, Comparison, Record

RECORDS = "records"
Measured = Record | Comparison | CeilingsRecord | PipelineRecord
"""Entries that a machine measured."""


def folder_of(runs: Path, entry: Measured) -> Path:
    """The folder for an entry's file. A machine's folder keeps its name when the machine's readable name changes."""
    return machine_folder(runs, entry.machine) / RECORDS


def machine_folder(runs: Path, machine: Machine) -> Path:
    """`runs/<machine>`: an existing folder that ends in the machine's id, else a new one with its readable name."""
    ending = f"-{machine.id[:6]}"
    known = [path for path in record_folders(runs) if path.parent.name.endswith(ending)]
    return known[0].parent if known else runs / machine.folder


def record_folders(runs: Path) -> list[Path]:
    """The folders of records of all machines, by name. A missing `runs` has none.

    Raises BakeoffError if it cannot be read.
    """
    try:
        names = sorted(os.listdir(runs))
    except FileNotFoundError:
        return []
    except OSError as error:
        text = f"records cannot be read from {runs}: {error.strerror}; choose another folder"
        raise BakeoffError(text, code="not-readable") from error
    return [runs / name / RECORDS for name in names if name[0] != "." and (runs / name / RECORDS).exists()]


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
