"""List and clear the cache folder by kind of entry. All of it can be rebuilt; records are stored elsewhere."""

import os
import shutil
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bakeoff.machine.build_cache import About, read_about
from bakeoff.models.errors import BakeoffError, meant

DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of cache entries: those of one folder, or a single file."""

    name: str
    holds: str
    """Description for lists."""
    file: str = ""
    """Name of the file, for a kind that is a single file."""
    large: bool = False
    """Cleared when no kind is named. The other kinds are small, and rebuilding them takes time."""
    former_name: str = ""
    """Earlier name of the kind and its folder; a folder of that name is listed and cleared with the kind."""


KINDS = (
    Kind("compiled", "compiler caches of each variant", large=True),
    Kind("headers", "torch's C++ headers, precompiled for all builds", large=True),
    Kind("references", "reference outputs, and eager's error", large=True, former_name="judges"),
    Kind("brought", "descriptions of models that users brought", large=True),
    Kind("live", "modules that were swept from Python, with weights", large=True),
    Kind("logs", "output of the workers of each sweep", large=True),
    Kind("traces", "traces of profiles, memory snapshots and compilers' logs", large=True),
    Kind("work", "folders of workers; of a killed sweep until the next one starts", large=True),
    Kind("ceilings", "peak rates that an earlier version kept here; now they are records"),
    Kind("instrument", "compiled readers of this machine's state"),
    Kind("sweeps", "plans of sweeps, for --resume"),
    Kind("checkpoints", "content hashes of weights files", file="checkpoints.json"),
    Kind("selftest", "result of the newest selftest", file="selftest.json"),
)
LOCKS, OTHER = "locks", "other"
"""Kinds that are listed and never cleared: without its lock file a second sweep could start, and other files are not
bakeoff's."""
_CURRENT_NAME = {kind.former_name: kind.name for kind in KINDS if kind.former_name}


@dataclass(frozen=True, slots=True)
class Item:
    """One file or folder of the cache; size and time are those of everything in it."""

    kind: str
    place: str
    """Path relative to the cache folder."""
    bytes: int
    used_s: float
    """Time of last write or use, seconds since 1970."""
    about: About | None = None

    @property
    def name(self) -> str:
        """Name in lists: the variant if the entry has a description, else the last part of the path."""
        if self.about is None:
            return self.place.rpartition("/")[2]
        build = f", build {self.about.build_number}" if self.about.build_number > 1 else ""
        return f"{self.about.variant}{build}"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which entries to clear."""

    kinds: tuple[str, ...] = ()
    """Names of kinds; if empty, the large kinds."""
    variant: str = ""
    """Only compiled variants whose name contains this text."""
    older_than_days: float = 0.0
    """Only entries that have not been used for this many days."""


def read(folder: Path) -> tuple[Item, ...]:
    """List the cache folder without following links. Raises BakeoffError when it is absent or cannot be read."""
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError as error:
        text = f"there is no cache folder {folder}; the first sweep creates it"
        raise BakeoffError(text, code="not-readable") from error
    except OSError as error:
        text = f"the cache folder {folder} cannot be read: {error.strerror}; choose another with BAKEOFF_CACHE"
        raise BakeoffError(text, code="not-readable") from error
    files = {kind.file: kind.name for kind in KINDS if kind.file}
    folders = {LOCKS, *_CURRENT_NAME, *(kind.name for kind in KINDS if not kind.file)}
    items = []
    for name in names:
        if name in folders and (folder / name).is_dir() and not (folder / name).is_symlink():
            kind = _CURRENT_NAME.get(name, name)
            items += [_item(kind, folder, f"{name}/{inner}") for inner in _inside(folder / name)]
        else:
            items.append(_item(files.get(name, OTHER), folder, name))
    return tuple(item for item in items if item is not None)


def _inside(folder: Path) -> list[str]:
    with suppress(OSError):  # it may have been deleted meanwhile
        return sorted(os.listdir(folder))
    return []


def _item(kind: str, cache: Path, place: str) -> Item | None:
    """The entry, or None if it has been deleted meanwhile. An entry with an unprintable name is of kind `other`."""
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
            for parent, folders, files in os.walk(path):  # os.walk does not follow links
                for name in (*folders, *files):
                    with suppress(OSError):
                        yield os.lstat(os.path.join(parent, name))


def select(items: Collection[Item], choice: Selection, now_s: float) -> tuple[Item, ...]:
    """The items to clear; `now_s` is in seconds since 1970.

    Raises BakeoffError for an unknown kind, a number of days out of range, or a variant with another kind than
    compiled.
    """
    kinds = _kinds(choice)
    if not 0 <= choice.older_than_days <= 36_500:
        raise BakeoffError(f"--older-than is {choice.older_than_days:g}; give days from 0 to 36500", code="bad-option")
    newest_s = now_s - choice.older_than_days * DAY_S if choice.older_than_days else float("inf")
    return tuple(
        item for item in items if item.kind in kinds and item.used_s <= newest_s and choice.variant in item.name
    )


def _kinds(choice: Selection) -> tuple[str, ...]:
    known = [kind.name for kind in KINDS]
    kinds = tuple(_CURRENT_NAME.get(name, name) for name in choice.kinds)
    for name in kinds:
        if name == LOCKS:
            text = "locks are never cleared, because they keep two sweeps apart; choose another kind"
            raise BakeoffError(text, code="bad-option")
        if name not in known:
            raise BakeoffError(
                f"no kind '{name}' can be cleared{meant(name, known)}; known: {', '.join(known)}", "unknown-name"
            )
        if choice.variant and name != "compiled":
            text = f"--variant applies to the kind compiled, not to {name}; leave one of them out"
            raise BakeoffError(text, code="bad-option")
    if choice.variant:
        return ("compiled",)
    return kinds or tuple(kind.name for kind in KINDS if kind.large)


@dataclass(frozen=True, slots=True)
class Cleared:
    """The result of clearing."""

    removed: tuple[Item, ...]
    kept: tuple[Item, ...]
    """Items that could not be removed."""

    @property
    def bytes(self) -> int:
        return sum(item.bytes for item in self.removed)


def remove(folder: Path, items: Sequence[Item]) -> Cleared:
    """Remove items of the cache folder. The caller must hold the `clearing_lock`."""
    removed = [_remove(folder, item.place) for item in items]
    return Cleared(
        tuple(item for item, done in zip(items, removed, strict=True) if done),
        tuple(item for item, done in zip(items, removed, strict=True) if not done),
    )


def _remove(cache: Path, place: str) -> bool:
    """Delete one entry; return whether it does not exist any more.

    Each step starts from an open folder descriptor, as in `rmtree`. So nothing outside the cache folder is deleted even
    if a folder is replaced by a link meanwhile.
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
