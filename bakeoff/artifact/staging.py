"""A folder that appears whole or not at all: filled under another name, then renamed."""

import contextlib
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from bakeoff.models.errors import BakeoffError

_HERE, _RENAME_EXCHANGE = -100, 2
"""AT_FDCWD and RENAME_EXCHANGE of renameat2(2)."""
_JANITOR = "import shutil, sys; sys.stdin.read(); shutil.rmtree(sys.argv[1], ignore_errors=True)"
"""Outlives whoever started it: when that process ends, however it does, what it had not finished is removed."""


@contextlib.contextmanager
def staged(target: Path, force: bool, ours: Callable[[Path], bool]) -> Iterator[Path]:
    """A new folder beside `target`, which takes its place when the block ends well, and is removed when it does not.

    Raises BakeoffError before anything is done where `target` is there and `force` is not given, is no folder that
    `ours` says may be replaced, or where nothing can be written.
    """
    target = target.absolute()
    _refuse(target, force, ours)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent))
    except OSError as error:
        text = f"{target} cannot be written: {error.strerror}; choose another folder"
        raise BakeoffError(text, "not-writable") from error
    janitor = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _JANITOR, str(part)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield part
        _publish(part, target, force, ours)
    except OSError as error:
        text = f"{target} cannot be written: {error.strerror}; make room or choose another folder"
        raise BakeoffError(text, "not-writable") from error
    finally:
        assert janitor.stdin is not None
        janitor.stdin.close()
        janitor.wait()


def _refuse(target: Path, force: bool, ours: Callable[[Path], bool]) -> None:
    if not os.path.lexists(target):
        return
    if not force:
        raise BakeoffError(f"{target} exists; choose another folder, or --force to replace it", "target-exists")
    if target.is_symlink() or not target.is_dir() or (any(target.iterdir()) and not ours(target)):
        text = f"{target} is not an artifact alone, and --force replaces nothing else; remove it by hand"
        raise BakeoffError(text, "target-exists")


def _publish(part: Path, target: Path, force: bool, ours: Callable[[Path], bool]) -> None:
    """Everything on disk first, then the name. What was there before takes the part's, and goes with it."""
    for path in part.iterdir():
        os.chmod(path, 0o644)
        _sync(path)
    os.chmod(part, 0o755)
    _sync(part)
    _refuse(target, force, ours)  # somebody may have been quicker
    if not target.exists():
        part.rename(target)
    elif not _exchange(part, target):
        aside = part.with_suffix(".before")
        target.rename(aside)
        part.rename(target)
        shutil.rmtree(aside)
    _sync(target.parent)


def _exchange(one: Path, other: Path) -> bool:
    """Let two folders change places in one step (renameat2(2)); False where the file system cannot."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):  # glibc 2.28
        return False
    return bool(libc.renameat2(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _RENAME_EXCHANGE) == 0)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
