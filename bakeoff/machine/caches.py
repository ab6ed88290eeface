"""What lies in the lab's cache folder, and how it is cleared. All of it can be made again; records lie elsewhere."""

import os
import shutil
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bakeoff.machine.build_cache import About, read_about
from bakeoff.models.errors import BakeoffError

DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Kind:
    """One of the folders in the cache, or a file that is one by itself."""

    name: str
    holds: str
    place: str = ""
    """The file, where it is no folder."""
    large: bool = False
    """Cleared when no kind is named; the others take no room, and time to make again."""


KINDS = (
    Kind("compiled", "what compilers keep, of each variant", large=True),
    Kind("references", "reference outputs, and eager's own error", large=True),
    Kind("logs", "what workers printed, of each sweep", large=True),
    Kind("ceilings", "the best this machine does"),
    Kind("sweeps", "what --resume needs"),
    Kind("selftest", "what the last selftest said", place="selftest.json"),
)
LOCKS, OTHER = "locks", "other"
"""Kinds that are shown and never cleared: a lock that is removed while it is waited for keeps nobody out, and what the
lab did not put there is not its own."""


@dataclass(frozen=True, slots=True)
class Item:
    """A file or folder of the cache, with all that is in it."""

    kind: str
    place: str
    """Relative to the cache folder."""
    bytes: int
    used_s: float
    """When it was written or used last, in seconds since 1970."""
    about: About | None = None

    @property
    def name(self) -> str:
        """What it is called in lists: a compiled variant by what it says of itself, else the last part of its place."""
        if self.about is None:
            return self.place.rpartition("/")[2]
        build = f", build {self.about.build_number}" if self.about.build_number > 1 else ""
        return f"{self.about.variant}{build}"


@dataclass(frozen=True, slots=True)
class Choice:
    """What is to be cleared."""

    kinds: tuple[str, ...] = ()
    """Empty: those that are large."""
    variant: str = ""
    """Only compiled variants whose name holds this."""
    older_than_days: float = 0.0
    """Only what was last used before that."""


def read(folder: Path) -> tuple[Item, ...]:
    """All that lies in the cache folder, links not followed.

    Raises BakeoffError when it is absent or cannot be read.
    """
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError as error:
        raise BakeoffError(f"there is no cache folder {folder}: nothing was measured with it yet") from error
    except OSError as error:
        raise BakeoffError(f"the cache folder {folder} cannot be read: {error.strerror}") from error
    files = {kind.place: kind.name for kind in KINDS if kind.place}
    folders = {LOCKS, *(kind.name for kind in KINDS if not kind.place)}
    items = []
    for name in names:
        if name in folders and (folder / name).is_dir() and not (folder / name).is_symlink():
            items += [_item(name, folder, f"{name}/{inner}") for inner in _inside(folder / name)]
        else:
            items.append(_item(files.get(name, OTHER), folder, name))
    return tuple(item for item in items if item is not None)


def _inside(folder: Path) -> list[str]:
    with suppress(OSError):  # gone meanwhile
        return sorted(os.listdir(folder))
    return []


def _item(kind: str, cache: Path, place: str) -> Item | None:
    """None for what has vanished meanwhile. A name that cannot be printed is not one that the lab gave."""
    path = cache / place
    found = list(_stats(path))
    if not found:
        return None
    if not place.isprintable():
        kind, place = OTHER, ascii(place)
    size = sum(each.st_size for each in found if not stat.S_ISDIR(each.st_mode))
    about = read_about(path) if kind == "compiled" else None
    return Item(kind, place, size, max(each.st_mtime for each in found), about)


def _stats(path: Path) -> Iterator[os.stat_result]:
    with suppress(OSError):
        found = path.lstat()
        yield found
        if stat.S_ISDIR(found.st_mode):
            for parent, folders, files in os.walk(path):  # which follows no links
                for name in (*folders, *files):
                    with suppress(OSError):
                        yield os.lstat(os.path.join(parent, name))


def choose(items: Collection[Item], choice: Choice, now_s: float) -> tuple[Item, ...]:
    """The items that a choice means. Raises BakeoffError for a choice that means nothing."""
    kinds = _kinds(choice)
    if not 0 <= choice.older_than_days <= 36_500:
        raise BakeoffError(f"--older-than {choice.older_than_days:g}: give days, 0 to 36500")
    newest_s = now_s - choice.older_than_days * DAY_S if choice.older_than_days else float("inf")
    return tuple(
        item for item in items if item.kind in kinds and item.used_s <= newest_s and choice.variant in item.name
    )


def _kinds(choice: Choice) -> tuple[str, ...]:
    known = [kind.name for kind in KINDS]
    for name in choice.kinds:
        if name == LOCKS:
            raise BakeoffError("locks are never cleared: one that is removed keeps no second sweep out")
        if name not in known:
            raise BakeoffError(f"no kind '{name}' is cleared; known: {', '.join(known)}")
        if choice.variant and name != "compiled":
            raise BakeoffError(f"--variant tells compiled variants apart, {name} are not told apart by it")
    if choice.variant:
        return ("compiled",)
    return choice.kinds or tuple(kind.name for kind in KINDS if kind.large)


@dataclass(frozen=True, slots=True)
class Cleared:
    removed: tuple[Item, ...]
    kept: tuple[Item, ...]
    """What could not be removed."""

    @property
    def bytes(self) -> int:
        return sum(item.bytes for item in self.removed)


def remove(folder: Path, items: Sequence[Item]) -> Cleared:
    """Remove items of the cache folder. The caller holds the devices' locks."""
    gone = [_remove(folder, item.place) for item in items]
    return Cleared(
        tuple(item for item, done in zip(items, gone, strict=True) if done),
        tuple(item for item, done in zip(items, gone, strict=True) if not done),
    )


def _remove(cache: Path, place: str) -> bool:
    """Whether it is gone. Whatever becomes a link meanwhile, nothing is removed that is not below the cache folder:
    each step is taken from an open folder, and `rmtree` does the same."""
    parent, _, name = place.rpartition("/")
    opened = []
    try:
        opened.append(os.open(cache, os.O_RDONLY | os.O_DIRECTORY))
        if parent:
            opened.append(os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=opened[0]))
        if stat.S_ISDIR(os.lstat(name, dir_fd=opened[-1]).st_mode):
            shutil.rmtree(name, ignore_errors=True, dir_fd=opened[-1])
        else:
            os.unlink(name, dir_fd=opened[-1])
        os.lstat(name, dir_fd=opened[-1])
    except FileNotFoundError:
        return True
    except OSError:
        return False
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return False
