"""Identity of a weights file: the hash of its content, so that files of one name and size are told apart."""

import hashlib
import os
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil

from bakeoff.machine import paths
from bakeoff.machine.files import digest, write_atomically
from bakeoff.models.checkpoint_names import check_names
from bakeoff.models.component import Component
from bakeoff.models.errors import BakeoffError

FILE = "checkpoints.json"
"""In the cache folder: hashes of files that were read before."""
_KEPT = 1000


def checkpoint_hash(path: str) -> str:
    """SHA-256 of a weights file, 12 hexadecimal digits.

    A file of known path, size, time of change and inode is not read again. Raises BakeoffError where it cannot be read,
    or is larger than this machine's memory, so that it cannot be loaded either.
    """
    try:
        found = os.stat(path)
        total = psutil.virtual_memory().total
        if found.st_size > total:
            text = f"{found.st_size >> 20} MiB, this machine has {total >> 20} MiB of memory; take smaller weights"
            raise BakeoffError(f"--checkpoint {path}: {text}", "bad-checkpoint")
        key = digest([os.path.abspath(path), found.st_size, found.st_mtime_ns, found.st_ino])
        known = _known()
        if key not in known:
            with open(path, "rb") as file:
                value = hashlib.file_digest(file, "sha256").hexdigest()[:12]
            known = {**dict(list(known.items())[1 - _KEPT :]), key: value}
            write_atomically(_cache_file(), msgspec.json.encode(known))
    except OSError as error:
        raise BakeoffError(f"--checkpoint {path}: {error.strerror}", "bad-checkpoint") from error
    return known[key]


def check_checkpoint(path: str, component: Component) -> None:
    """Raise BakeoffError where the names in a weights file show that it is none of the component's."""
    try:
        check_names(Path(path), component)
    except BakeoffError as error:
        raise BakeoffError(f"--checkpoint {path}: {error}", error.code) from error


def _known() -> dict[str, str]:
    with suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
        known: dict[str, str] = msgspec.json.decode(_cache_file().read_bytes(), type=dict[str, str])
        return known
    return {}


def _cache_file() -> Path:
    return paths.cache_folder() / FILE
