"""The result of the newest selftest on this machine, as records contain it."""

import contextlib
from pathlib import Path

import msgspec

from bakeoff.machine import paths
from bakeoff.machine.files import write_atomically
from bakeoff.record.codec import encode_json
from bakeoff.record.schema import SelftestStamp


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
