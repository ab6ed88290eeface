"""Writes files atomically, and makes the short hashes and slugs that name files."""

import contextlib
import hashlib
import os
import re
import tempfile
from pathlib import Path

import msgspec

from bakeoff.models.errors import BakeoffError
from bakeoff.models.plain_file import open_plain


def write_atomically(path: Path, data: bytes) -> None:
    """Write `path` completely or not at all: temporary file, fsync, rename, fsync of the folder.

    Raises BakeoffError on a full disk or a folder that cannot be written; the temporary file is then deleted.
    """
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
        temporary = ""
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        reason = f"{path.name} cannot be written to {path.parent}: {error.strerror}"
        raise BakeoffError(f"{reason}; make room or choose another folder", code="not-writable") from error
    finally:  # also after Ctrl-C
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def digest(value: object) -> str:
    """Return a hash of any value that msgspec encodes, 16 hexadecimal digits; equal values give equal hashes."""
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()[:16]


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a regular file's content. Raises OSError if it cannot be read."""
    with open_plain(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def slug(text: str) -> str:
    """Make a part of a file name: lower-case letters, digits and dashes, at most 100 characters; "" if none is left."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:100]
