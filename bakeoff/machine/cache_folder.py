"""How large the cache folder is, and emptying it. All of it can be made again; records are stored elsewhere."""

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bakeoff.models.errors import BakeoffError

_CLEARED = {
    "builds": ("compiled", "headers"),
    "references": ("references",),
    "models": ("brought", "live"),
    "logs": ("logs", "traces", "work"),
}
"""Kinds to folders of the cache that take room."""
_KEPT = "kept"
"""All else: locks, without which a second sweep could start, small files that take long to make, and what is not
bakeoff's."""


@dataclass(frozen=True, slots=True)
class CacheSize:
    """Bytes of the files of a cache folder."""

    folder: str
    bytes: int
    kinds: dict[str, int]


def measure(cache: Path) -> CacheSize:
    """Measure the cache folder without following links. Raises BakeoffError where it is absent or cannot be read."""
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
    return CacheSize(str(cache), sum(kinds.values()), kinds)


def clear(cache: Path) -> Sequence[Path]:
    """Delete what takes room, and return the folders that could not be deleted; the caller holds the `clearing_lock`.

    Links are not followed: `rmtree` refuses a folder that is one, also if it becomes one meanwhile.
    """
    large = [cache / name for folders in _CLEARED.values() for name in folders]
    for folder in large:
        shutil.rmtree(folder, ignore_errors=True)
    return [folder for folder in large if os.path.lexists(folder)]


def _bytes(path: Path) -> int:
    """Bytes of a file, or of all files in a folder; 0 for what has been deleted meanwhile."""
    found = 0
    with suppress(OSError):
        found = path.lstat().st_size if path.is_symlink() or not path.is_dir() else 0
    for parent, _, files in os.walk(path) if not path.is_symlink() else ():  # os.walk does not follow links
        for name in files:
            with suppress(OSError):
                found += os.lstat(os.path.join(parent, name)).st_size
    return found
