"""Folders for compiler caches: one per variant, and one per build where a variant is built several times."""

import contextlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bakeoff.machine import paths
from bakeoff.machine.files import digest
from bakeoff.models.errors import BakeoffError

ABOUT = "about.json"
_BUILD = "-build"


@dataclass(frozen=True, slots=True)
class About:
    """Description stored in a cache folder, since the folder's name is a hash."""

    variant: str
    build_number: int
    batch: int
    threads: int
    checkpoint: str
    """Name and size of the weights file; empty for random weights."""
    versions: dict[str, str]
    created: str


def usual_folder(decides: object) -> Path:
    """The cache folder of a variant; `decides` is everything that its content depends on."""
    return paths.cache_folder() / "compiled" / digest(decides)


def build_folder(usual: Path, number: int) -> Path:
    """The folder of one of several builds, beside the variant's usual folder."""
    return usual.with_name(f"{usual.name}{_BUILD}{number}")


def open_folder(folder: Path, about: About) -> None:
    """Create `folder` with its description; where there is one already, set its time of last use.

    Write errors are ignored here: a compiler that needs the cache fails with its own error.
    """
    path = folder / ABOUT
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_bytes(msgspec.json.encode(about))
    paths.mark_used(path)


def read_about(folder: Path) -> About | None:
    """The description of a folder; None where there is none (an earlier version made it) or it is a link."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        descriptor = os.open(folder / ABOUT, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            return msgspec.json.decode(file.read(1 << 16), type=About)
    return None


def is_warm(folder: Path) -> bool:
    """Whether an earlier build left anything in the folder."""
    return folder.is_dir() and any(name != ABOUT for name in os.listdir(folder))


def begin_anew(folder: Path) -> None:
    """Delete the folder of an earlier build. Raises BakeoffError where it cannot be removed."""
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        pass
    except OSError as error:
        text = f"{error.filename} of an earlier build cannot be removed: {error.strerror}"
        raise BakeoffError(f"{text}; remove {folder} by hand", code="not-writable") from error


def take_usual_place(folder: Path) -> None:
    """Make one build's folder the variant's usual one, so that later measurements start with a warm cache.

    Takes two renames under the device's lock, since a folder cannot replace one that is not empty. If the process is
    killed between them, the variant's next build is cold. Inductor finds its cache entries by content and not by path;
    a compiler that uses paths compiles once more.
    """
    usual = folder.with_name(folder.name.partition(_BUILD)[0])
    before = usual.with_name(f"{usual.name}-replaced")
    if not folder.is_dir():
        return
    try:
        shutil.rmtree(before, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            usual.rename(before)
        folder.rename(usual)
        shutil.rmtree(before, ignore_errors=True)
    except OSError as error:
        raise BakeoffError(
            f"{folder} cannot become the usual {usual.name}: {error.strerror}", code="not-writable"
        ) from error
