"""Manages the cache folder: compiler caches of each variant or build, precompiled headers, its size, clearing it.

Everything in it can be made again; records are stored elsewhere.
"""

import fcntl
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from bakeoff.machine import host, paths
from bakeoff.machine.files import digest, sha256_of
from bakeoff.machine.identity import this_machine
from bakeoff.models.errors import BakeoffError
from bakeoff.models.plain_file import read_plain

HOME = "home"
"""Within a cache folder: the home folder of the workers that build there."""
_FINISHED = "finished"
"""Name of the file that marks a folder in which a build has succeeded."""


def usual_folder(key: object) -> Path:
    """Return the cache folder of a variant; `key` is everything that its content depends on."""
    return paths.cache_folder() / "compiled" / digest(key)


def open_folder(folder: Path, anew: bool = False) -> None:
    """Create `folder` after deleting what a failed build left there; with `anew`, delete what any build left there.

    Raises BakeoffError if that cannot be deleted. Other errors are ignored: a compiler that needs the cache reports its
    own.
    """
    if anew or not is_warm(folder):
        delete_earlier_build(folder)
    with suppress(OSError):
        (folder / HOME / ".cache").mkdir(parents=True, exist_ok=True)


def mark_finished(folder: Path, beside: bool = False) -> None:
    """Note that a build has succeeded, so that the next one counts as warm; `beside`: while other builds ran.

    What was noted of the build that filled the caches stays.
    """
    with suppress(OSError), (folder / _FINISHED).open("x") as file:
        file.write("beside" if beside else "")


def was_built_beside(folder: Path) -> bool:
    """Return whether other builds ran while one filled the caches in this folder."""
    with suppress(OSError):
        return bool(read_plain(folder / _FINISHED))
    return False


def is_warm(folder: Path) -> bool:
    """Return whether a build has succeeded in this folder; a killed build leaves only some of the files."""
    return (folder / _FINISHED).exists()


def delete_earlier_build(folder: Path) -> None:
    """Delete a build's folder, or what a killed build left of it. Raises BakeoffError if it cannot be deleted."""
    try:
        shutil.rmtree(folder)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        text = f"{error.filename} of an earlier build cannot be deleted: {error.strerror}"
        raise BakeoffError(f"{text}; delete {folder} by hand", code="not-writable") from error


_CLEARED = {
    "builds": ("compiled", "headers"),
    "references": ("references", "changed"),
    "models": ("brought", "live", "counted"),
    "logs": ("logs", "traces", "work"),
}
"""Large folders of the cache, by kind."""
_KEPT = "kept"
"""Kind of everything else: locks, without which a second sweep could start, small files that take long to make, and
files that are not bakeoff's."""


def measure(cache: Path) -> dict[str, int]:
    """Return the bytes of the cache folder by kind, without those that links lead to.

    Raises BakeoffError if it is absent or cannot be read.
    """
    try:
        names = os.listdir(cache)
    except FileNotFoundError as error:
        text = f"there is no cache folder {cache}; the first sweep creates it"
        raise BakeoffError(text, code="not-readable") from error
    except OSError as error:
        text = f"the cache folder {cache} cannot be read: {error.strerror}; choose another with BAKEOFF_CACHE"
        raise BakeoffError(text, code="not-readable") from error
    kinds = {kind: sum(_bytes(cache / name) for name in folders) for kind, folders in _CLEARED.items()}
    large = {name for folders in _CLEARED.values() for name in folders}
    kinds[_KEPT] = sum(_bytes(cache / name) for name in names if name not in large)
    return kinds


def clear(cache: Path) -> Sequence[Path]:
    """Delete the large folders of the cache and return those that could not be deleted.

    The caller must hold the `clearing_lock`. Links are not followed: `rmtree` refuses a folder that is a link, even if
    it becomes one meanwhile.
    """
    large = [cache / name for folders in _CLEARED.values() for name in folders]
    for folder in large:
        shutil.rmtree(folder, ignore_errors=True)
    return [folder for folder in large if os.path.lexists(folder)]


def _bytes(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder; files that were deleted meanwhile count as 0."""
    found = 0
    with suppress(OSError):
        found = path.lstat().st_size if path.is_symlink() or not path.is_dir() else 0
    for parent, _, files in os.walk(path) if not path.is_symlink() else ():  # os.walk does not follow links
        for name in files:
            with suppress(OSError):
                found += os.lstat(os.path.join(parent, name)).st_size
    return found


def header_folder(cache: Path) -> Path:
    """Return the folder of precompiled headers for this process's torch and Python, C++ compiler and class of CPU.

    Inductor itself finds a header by the hash of all that it depends on. The folder's name need not include all of
    that: headers that do not fit are not used.
    """
    versions, compiler = host.read_versions(), shutil.which(os.environ.get("CXX") or "g++") or ""
    machine = this_machine("cpu").machine_class
    key = [versions.get("torch", ""), versions.get("c++", ""), compiler, sys.prefix, sys.version, machine]
    return cache / "headers" / digest(key)


def make_shared(folder: Path, file: Path, make: Callable[[], None]) -> None:
    """Make `file` as a link to its copy in `folder`, or by `make`, and then keep a copy there.

    One process makes it, others wait. A copy's name begins with its hash, and one that is damaged is made again: g++
    reads a precompiled header without checking it, and with a damaged one every build fails. If the folder cannot be
    used, as on a full disk, each process makes its own.
    """
    with ExitStack() as stack:
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context((folder / f"{file.name}.lock").open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX)
            for copy in folder.glob(f"*-{file.name}"):
                if copy.name.partition("-")[0] == sha256_of(copy):
                    os.link(copy, file)
                    return
                copy.unlink()
        make()
        part = folder / f".{os.getpid()}.part"
        try:
            shutil.copyfile(file, part)
            part.chmod(0o444)
            part.rename(folder / f"{sha256_of(part)}-{file.name}")
        except OSError:
            with suppress(OSError):
                part.unlink()
