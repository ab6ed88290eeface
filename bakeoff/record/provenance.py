"""The hash of the code that measures, and the result of its newest selftest on this machine."""

import contextlib
import hashlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import msgspec

from bakeoff.machine import paths
from bakeoff.machine.files import write_atomically
from bakeoff.record.codec import encode_json
from bakeoff.record.schema import SelftestStamp

_NOT_HASHED = {"report", "cli", "progress.py"}
"""Parts of the package that only show results."""


@cache
def code_hash() -> str:
    """Hash of the code that determines numbers and statuses: backends, and `bakeoff` without reports and commands."""
    files: list[Path] = []
    for name in ("bakeoff", "bakeoff.backends"):
        spec = find_spec(name)
        for folder in (spec.submodule_search_locations or []) if spec else []:
            files += Path(folder).rglob("*.py")
    kept = sorted({file.resolve() for file in files if not _NOT_HASHED & set(file.parts[-3:])})
    return hashlib.sha256(b"".join(file.read_bytes() for file in kept)).hexdigest()[:12]


def _stamp_file() -> Path:
    return paths.cache_folder() / "selftest.json"


def read_stamp() -> SelftestStamp | None:
    """The newest selftest result on this machine; None if there is none or it cannot be read."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(_stamp_file().read_bytes(), type=SelftestStamp)
    return None


def write_stamp(stamp: SelftestStamp) -> None:
    """Store a selftest result. Raises BakeoffError if it cannot be written."""
    write_atomically(_stamp_file(), encode_json(stamp))
