"""Hashes of the files of a reference folder, kept outside of it, so that a change by anybody but the sweep is noticed.

Workers run code of compilers and of users, and read references and limits from this folder.
"""

import hashlib
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bakeoff.machine.files import write_atomically


@dataclass(frozen=True, slots=True)
class SealedFile:
    """One file as it was when the folder was sealed."""

    sha256: str
    stat: tuple[int, ...]
    """Size, inode, and times of the last change of content and of attributes in ns: a file whose values are the same
    is not read again."""


Seal = Mapping[str, SealedFile]
"""Hashes of files by name."""


def hashes(seal: Seal) -> dict[str, str]:
    """Return the hashes by which workers check the files."""
    return {name: file.sha256 for name, file in seal.items()}


def seal_folder(folder: Path) -> Seal:
    """Hash all files of the folder, and keep the hashes beside it."""
    seal = {name: SealedFile(_sha256(folder / name), _stat(folder / name)) for name in _names(folder)}
    write_atomically(_seal_file(folder), msgspec.json.encode(seal))
    return seal


def read_seal(folder: Path) -> Seal | None:
    """The hashes kept beside the folder; None where there are none, or they cannot be read."""
    with suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
        seal: Seal = msgspec.json.decode(_seal_file(folder).read_bytes(), type=dict[str, SealedFile])
        return seal
    return None


def changed_files(folder: Path, seal: Seal, trust_stat: bool) -> tuple[str, ...]:
    """Names of files that were changed, added or removed since; `trust_stat` reads only files whose stat(2) differs."""
    names = set(_names(folder))
    changed = names.symmetric_difference(seal)
    for name in names & set(seal):
        with suppress(OSError):
            same = trust_stat and _stat(folder / name) == seal[name].stat
            if same or _sha256(folder / name) == seal[name].sha256:
                continue
        changed.add(name)
    return tuple(sorted(changed))


def discard(folder: Path) -> None:
    """Remove the folder and its seal."""
    _seal_file(folder).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def _seal_file(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.sha256.json")


def _names(folder: Path) -> list[str]:
    with suppress(FileNotFoundError):
        return sorted(os.listdir(folder))
    return []


def _stat(path: Path) -> tuple[int, ...]:
    found = path.lstat()
    return found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
