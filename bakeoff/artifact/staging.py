"""A folder that is written completely or not at all: filled under a temporary name, then renamed."""

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
"""A process that waits for its parent to end, in whatever way, and then removes an unfinished folder."""


@contextlib.contextmanager
def staged(target: Path, force: bool, replaceable: Callable[[Path], bool]) -> Iterator[Path]:
    """Yield a new folder beside `target`; it replaces `target` when the block succeeds, else it is removed.

    Raises BakeoffError before anything is written where `target` exists without `force`, where `replaceable` says
    that it must not be replaced, or where nothing can be written.
    """
    target = target.absolute()
    _refuse(target, force, replaceable)
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
        _publish(part, target, force, replaceable)
    except OSError as error:
        text = f"{target} cannot be written: {error.strerror}; make room or choose another folder"
        raise BakeoffError(text, "not-writable") from error
    finally:
        assert janitor.stdin is not None
        janitor.stdin.close()
        janitor.wait()


def _refuse(target: Path, force: bool, replaceable: Callable[[Path], bool]) -> None:
    if not os.path.lexists(target):
        return
    if not force:
        raise BakeoffError(f"{target} exists; choose another folder, or --force to replace it", "target-exists")
    if target.is_symlink() or not target.is_dir() or (any(target.iterdir()) and not replaceable(target)):
        text = f"{target} is not an artifact alone, and --force replaces nothing else; remove it by hand"
        raise BakeoffError(text, "target-exists")


def _publish(part: Path, target: Path, force: bool, replaceable: Callable[[Path], bool]) -> None:
    """Sync all files, then rename. A replaced folder gets the temporary name and is removed with it."""
    for path in part.iterdir():
        os.chmod(path, 0o644)
        _sync(path)
    os.chmod(part, 0o755)
    _sync(part)
    _refuse(target, force, replaceable)  # another process may have created it meanwhile
    if not target.exists():
        part.rename(target)
    elif not _exchange(part, target):
        aside = part.with_suffix(".before")
        target.rename(aside)
        part.rename(target)
        shutil.rmtree(aside)
    _sync(target.parent)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two folders atomically (renameat2(2)); False where the file system cannot."""
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
