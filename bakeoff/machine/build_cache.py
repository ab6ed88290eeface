"""What compilers keep: a folder for each variant, and one for each of its builds where it is built several times."""

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
    """What a folder says of itself, since its name is a hash."""

    variant: str
    build_number: int
    batch: int
    threads: int
    checkpoint: str
    """Name and size of the weights' file; empty for random weights."""
    versions: dict[str, str]
    created: str


def usual_folder(decides: object) -> Path:
    """Where a variant's compilers keep what they made, by all that decides what they make."""
    return paths.cache_folder() / "compiled" / digest(decides)


def build_folder(usual: Path, number: int) -> Path:
    """Where one of several builds is, beside the variant's usual folder."""
    return usual.with_name(f"{usual.name}{_BUILD}{number}")


def open_folder(folder: Path, about: About) -> None:
    """Make `folder` and leave `about` in it; one that says so already is marked as used now.

    A disk that takes neither is no reason to measure nothing: a compiler that needs the folder says so itself.
    """
    path = folder / ABOUT
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_bytes(msgspec.json.encode(about))
    paths.mark_used(path)


def read_about(folder: Path) -> About | None:
    """None for a folder that says nothing: made by an earlier version, or a link."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        descriptor = os.open(folder / ABOUT, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            return msgspec.json.decode(file.read(1 << 16), type=About)
    return None


def is_warm(folder: Path) -> bool:
    """Whether a build left anything there."""
    return folder.is_dir() and any(name != ABOUT for name in os.listdir(folder))


def begin_anew(folder: Path) -> None:
    """Leave nothing that an earlier build made. Raises BakeoffError where it cannot be removed."""
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        pass
    except OSError as error:
        text = f"{error.filename} of an earlier build cannot be removed: {error.strerror}"
        raise BakeoffError(f"{text}; remove {folder} by hand", code="not-writable") from error


def take_usual_place(folder: Path) -> None:
    """Make one build's folder the variant's usual one, so that what is measured later finds it warm.

    Two renames under the device's lock, since no folder can be renamed onto one that is not empty: killed between them,
    the variant's next build is cold, and nothing else is lost. Inductor finds what it compiled by content and not by
    place; a compiler that does otherwise compiles once more.
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
