"""The folder that a worker runs in: beside the cache, since builds write gigabytes and $TMPDIR may be memory."""

import fcntl
import os
import shutil
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bakeoff.machine import paths

_OWNER = "owner.lock"
_LEAST_AGE_S = 60.0
"""A folder without a lock may be one that another process is just making."""


@dataclass(frozen=True, slots=True)
class WorkFolder:
    """`<cache>/work/bakeoff-XXXX`, which exists as long as this process holds the lock in it."""

    path: Path
    _lock: int
    """Descriptor of the locked file; the kernel releases it when this process ends, however that happens."""

    @property
    def temporary(self) -> Path:
        """For TMPDIR: what a compiler leaves there, as torch and ccache do, must not outlive the worker."""
        return self.path / "tmp"

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        with suppress(OSError):  # it was removed before
            os.close(self._lock)


def make_work_folder() -> WorkFolder:
    """Make a folder for one worker, and remove those of processes that were killed. Raises OSError."""
    parent = paths.cache_folder() / "work"
    parent.mkdir(parents=True, exist_ok=True)
    _remove_stale(parent)
    path = Path(tempfile.mkdtemp(prefix="bakeoff-", dir=parent))
    try:
        (path / "tmp").mkdir()
        lock = os.open(path / _OWNER, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError:
        shutil.rmtree(path, ignore_errors=True)
        raise
    return WorkFolder(path, lock)


def _remove_stale(parent: Path) -> None:
    for path in parent.glob("bakeoff-*"):
        try:
            lock = os.open(path / _OWNER, os.O_RDWR | os.O_NOFOLLOW)
        except FileNotFoundError:
            with suppress(OSError):
                if time.time() - path.stat().st_mtime > _LEAST_AGE_S:
                    shutil.rmtree(path, ignore_errors=True)
            continue
        except OSError:
            continue  # another user's
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        os.close(lock)
