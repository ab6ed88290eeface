"""Loads compiled files from a variant's cache folder, and builds files that are missing or damaged."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def load_or_build(
    path: Path,
    load: Callable[[Path], T],
    build: Callable[[Path], object],
    scratch: Path,
    damage: tuple[type[Exception], ...],
) -> tuple[T, bool]:
    """Load the file or folder at `path`; if it is missing or damaged, build and store it first.

    Return what was loaded, and whether it was stored before. `build` writes to `scratch`, which is then moved to `path`
    in one step, so a killed build leaves nothing at `path`. `damage` lists the exceptions that `load` raises for an
    unusable file. A cached file for which `load` raises one is deleted and built again; for a file that was just built,
    the exception is not caught.
    """
    if path.exists():
        try:
            return load(path), True
        except damage:
            _remove(path)
    _remove(scratch)
    build(scratch)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    _remove(part)
    shutil.move(scratch, part)  # the cache may be on another disk
    part.rename(path)
    return load(path), False


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
