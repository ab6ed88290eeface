"""Folders for compiler caches: one for each variant, or one for each build if a variant is built several times."""

import contextlib
import shutil
from pathlib import Path

from bakeoff.machine import paths
from bakeoff.machine.files import digest
from bakeoff.models.errors import BakeoffError

HOME = "home"
"""Within a cache folder: the home folder of the workers that build there."""
_FINISHED = "finished"
"""A file that is in the folder once a build has succeeded there."""
_BUILD = "-build"


def usual_folder(key: object) -> Path:
    """The cache folder of a variant; `key` is everything that its content depends on."""
    return paths.cache_folder() / "compiled" / digest(key)


def build_folder(usual: Path, number: int) -> Path:
    """The folder of one of several builds, beside the variant's usual folder."""
    return usual.with_name(f"{usual.name}{_BUILD}{number}")


def usual_of(folder: Path) -> Path:
    """The variant's usual folder, of which `folder` is one of several builds."""
    return folder.with_name(folder.name.partition(_BUILD)[0])


def open_folder(folder: Path) -> None:
    """Create `folder`. Errors are ignored: a compiler that needs the cache reports its own."""
    with contextlib.suppress(OSError):
        (folder / HOME / ".cache").mkdir(parents=True, exist_ok=True)


def mark_finished(folder: Path) -> None:
    """Note that a build has succeeded, so that the next one counts as warm."""
    with contextlib.suppress(OSError):
        (folder / _FINISHED).touch()


def is_warm(folder: Path) -> bool:
    """Whether a build has succeeded in this folder. A build that was killed leaves files too, but not all."""
    return (folder / _FINISHED).exists()


def delete_earlier_build(folder: Path) -> None:
    """Delete a build's folder, or what a killed build left of it. Raises BakeoffError if it cannot be deleted."""
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        pass
    except OSError as error:
        text = f"{error.filename} of an earlier build cannot be deleted: {error.strerror}"
        raise BakeoffError(f"{text}; delete {folder} by hand", code="not-writable") from error


def replace_usual_folder(folder: Path) -> None:
    """Make one build's folder the variant's usual one, so that later measurements start with a warm cache.

    A rename cannot replace a folder that is not empty, so two renames are needed; the caller must hold the device's
    lock. If the process is killed between them, the variant's next build is cold. Inductor finds its cache entries by
    content; a compiler that finds them by path compiles once more. Raises BakeoffError if the folder cannot be renamed.
    """
    usual = usual_of(folder)
    replaced = usual.with_name(f"{usual.name}-replaced")
    if not folder.is_dir():
        return
    try:
        shutil.rmtree(replaced, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            usual.rename(replaced)
        folder.rename(usual)
        shutil.rmtree(replaced, ignore_errors=True)
    except OSError as error:
        raise BakeoffError(
            f"{folder} cannot be renamed to {usual.name}: {error.strerror}; rename it by hand", code="not-writable"
        ) from error
