"""torch's C++ headers, precompiled once for all builds with one compiler; the cache folder keeps them.

g++ reads a precompiled header without checking it: with one that is cut off or changed, every build fails. So the size
and the hash of each file are stored in a stamp, which is written last.
"""

import hashlib
import os
import shutil
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bakeoff.machine import host
from bakeoff.machine.files import digest, write_atomically
from bakeoff.machine.identity import this_machine

_STAMP = "stamp.json"


@dataclass(frozen=True, slots=True)
class HeaderFile:
    """A precompiled header or its source."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Stamp:
    """Contents of a folder of headers."""

    sets: tuple[str, ...]
    """Names of the sets that are complete, as backends name them (`Footprint.headers`)."""
    files: tuple[HeaderFile, ...]
    """Empty where the compiler, or this version of torch, precompiles none that can be shared."""


def header_folder(cache: Path) -> Path:
    """The folder for this process's torch and Python, the C++ compiler that inductor takes, and this class of CPU.

    Inductor itself finds a header by the hash of all that it depends on. The folder's name need not hold all of that:
    headers that do not fit are not used.
    """
    versions, compiler = host.read_versions(), shutil.which(os.environ.get("CXX") or "g++") or ""
    machine = this_machine("cpu").machine_class
    key = [versions.get("torch", ""), versions.get("c++", ""), compiler, sys.prefix, sys.version, machine]
    return cache / "headers" / digest(key)


def read_stamp(folder: Path) -> Stamp:
    """Return the folder's stamp; an empty one where it has none that can be read."""
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode((folder / _STAMP).read_bytes(), type=Stamp)
    return Stamp((), ())


def write_stamp(folder: Path, stamp: Stamp) -> None:
    """Store what the folder holds; its files must be complete. Raises BakeoffError if the stamp cannot be written."""
    write_atomically(folder / _STAMP, msgspec.json.encode(stamp))


def is_undamaged(folder: Path, stamp: Stamp) -> bool:
    """Return whether each file is what was stored. Reads them all: about 0.5 s for those of inductor and AOTInductor.
    The first build then also finds them in the page cache, as the others do."""
    try:
        return all(describe_header(folder / file.name) == file for file in stamp.files)
    except OSError:
        return False


def describe_header(path: Path) -> HeaderFile:
    """The size and hash of a file. Raises OSError if it cannot be read."""
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        return HeaderFile(path.name, file.tell(), sha256)


def usable_headers(folder: Path) -> tuple[Path, ...]:
    """The files of a folder for a build; none if one has another size than was stored."""
    files = read_stamp(folder).files
    found = tuple(folder / file.name for file in files)
    with suppress(OSError):
        if all(path.stat().st_size == file.bytes for path, file in zip(found, files, strict=True)):
            return found
    return ()
