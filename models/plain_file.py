"""Opens files that others may have put in place of records, manifests and weights: a pipe would never end a read."""

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path


def open_plain(path: Path, flags: int = 0) -> BufferedReader:
    """Open a file to read. `flags` are added to those of `os.open`. Raises OSError if it is not a regular file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def read_plain(path: Path, most: int = -1) -> bytes:
    """Return a file's content. Raises OSError if it is not a regular file, or has more than `most` bytes (-1: any)."""
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        if 0 <= most < size:
            raise OSError(errno.EFBIG, f"it has {size:,} bytes, and at most {most:,} are read", str(path))
        return file.read(most)
