"""The contents of the cache folder by kind, and clearing them. All of it can be rebuilt; records are kept elsewhere."""

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
    """A folder of the cache whose entries are alike, or a single file."""

    name: str
    holds: str
    place: str = ""
    """Name of the file, for a kind that is one file."""
    large: bool = False
    """Cleared when no kind is named. The others are small and cost time to rebuild."""
    former: str = ""
    """What the kind and its folder were called before; such a folder is listed and cleared with the kind."""


KINDS = (
    Kind("compiled", "what compilers keep, of each variant", large=True),
    Kind("references", "reference outputs, and eager's own error", large=True, former="judges"),
    Kind("logs", "what workers printed, of each sweep", large=True),
    Kind("ceilings", "the best this machine does"),
    Kind("sweeps", "what --resume needs"),
    Kind("selftest", "what the last selftest said", place="selftest.json"),
)
LOCKS, OTHER = "locks", "other"
"""Kinds that are listed and never cleared: deleting a lock file in use breaks mutual exclusion, and other files are not
bakeoff's."""
_PRESENT = {kind.former: kind.name for kind in KINDS if kind.former}


@dataclass(frozen=True, slots=True)
class Item:
    """One file or folder of the cache; sizes and times cover all that is in it."""

    kind: str
    place: str
    """Relative to the cache folder."""
    bytes: int
    used_s: float
    """Time of last write or use, seconds since 1970."""
    about: About | None = None

    @property
    def name(self) -> str:
        """Name in lists: the variant for compiled entries with an about file, else the last part of the path."""
        if self.about is None:
            return self.place.rpartition("/")[2]
        build = f", build {self.about.build_number}" if self.about.build_number > 1 else ""
        return f"{self.about.variant}{build}"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which entries to clear."""

    kinds: tuple[str, ...] = ()
    """Empty: the large ones."""
    variant: str = ""
    """Only compiled variants whose name contains this text."""
    older_than_days: float = 0.0
    """Only entries not used for so many days."""


def read(folder: Path) -> tuple[Item, ...]:
    """List the cache folder without following links. Raises BakeoffError when it is absent or cannot be read."""
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError as error:
        text = f"there is no cache folder {folder}: nothing was measured with it yet"
        raise BakeoffError(text, code="not-readable") from error
    except OSError as error:
        text = f"the cache folder {folder} cannot be read: {error.strerror}"
        raise BakeoffError(text, code="not-readable") from error
    files = {kind.place: kind.name for kind in KINDS if kind.place}
    folders = {LOCKS, *_PRESENT, *(kind.name for kind in KINDS if not kind.place)}
    items = []
    for name in names:
        if name in folders and (folder / name).is_dir() and not (folder / name).is_symlink():
            items += [_item(_PRESENT.get(name, name), folder, f"{name}/{inner}") for inner in _inside(folder / name)]
        else:
            items.append(_item(files.get(name, OTHER), folder, name))
    return tuple(item for item in items if item is not None)


def _inside(folder: Path) -> list[str]:
    with suppress(OSError):  # gone meanwhile
        return sorted(os.listdir(folder))
    return []


def _item(kind: str, cache: Path, place: str) -> Item | None:
    """None when the entry has been deleted meanwhile. A name that is not printable is of kind `other`."""
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


def select(items: Collection[Item], choice: Selection, now_s: float) -> tuple[Item, ...]:
    """The items of a selection. Raises BakeoffError for an unknown kind, or values out of range."""
    kinds = _kinds(choice)
    if not 0 <= choice.older_than_days <= 36_500:
        raise BakeoffError(f"--older-than {choice.older_than_days:g}: give days, 0 to 36500", code="bad-option")
    newest_s = now_s - choice.older_than_days * DAY_S if choice.older_than_days else float("inf")
    return tuple(
        item for item in items if item.kind in kinds and item.used_s <= newest_s and choice.variant in item.name
    )


def _kinds(choice: Selection) -> tuple[str, ...]:
    known = [kind.name for kind in KINDS]
    kinds = tuple(_PRESENT.get(name, name) for name in choice.kinds)
    for name in kinds:
        if name == LOCKS:
            text = "locks are never cleared: without its lock a second sweep could start beside a running one"
            raise BakeoffError(text, code="bad-option")
        if name not in known:
            raise BakeoffError(f"no kind '{name}' is cleared; known: {', '.join(known)}", code="unknown-name")
        if choice.variant and name != "compiled":
            text = f"--variant applies to compiled variants, not to {name}; leave one of them out"
            raise BakeoffError(text, code="bad-option")
    if choice.variant:
        return ("compiled",)
    return kinds or tuple(kind.name for kind in KINDS if kind.large)


@dataclass(frozen=True, slots=True)
class Cleared:
    """The result of clearing."""

    removed: tuple[Item, ...]
    kept: tuple[Item, ...]
    """What could not be removed."""

    @property
    def bytes(self) -> int:
        return sum(item.bytes for item in self.removed)


def remove(folder: Path, items: Sequence[Item]) -> Cleared:
    """Remove items of the cache folder. The caller must hold the devices' locks."""
    gone = [_remove(folder, item.place) for item in items]
    return Cleared(
        tuple(item for item, done in zip(items, gone, strict=True) if done),
        tuple(item for item, done in zip(items, gone, strict=True) if not done),
    )


def _remove(cache: Path, place: str) -> bool:
    """Delete one entry and return whether it is gone.

    Each step starts from an open folder descriptor (as in `rmtree`): replacing a folder by a link meanwhile cannot make
    this delete anything outside the cache folder.
    """
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
