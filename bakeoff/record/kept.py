"""Stores small results in the cache folder: the newest selftest result, and the counted work of calls."""

import contextlib
from pathlib import Path
from typing import Any

import msgspec

from bakeoff.machine import host, paths
from bakeoff.machine.files import digest, write_atomically
from bakeoff.models.component import Work
from bakeoff.models.plain_file import read_plain
from bakeoff.record.codec import encode_json
from bakeoff.record.schema import SelftestStamp
from bakeoff.record.source import component_hash

_VERSION = 1
"""Version of the work counter; results of other versions are counted anew."""


def _stamp_file() -> Path:
    return paths.cache_folder() / "selftest.json"


def read_stamp() -> SelftestStamp | None:
    """Return the newest selftest result on this machine; None if there is none or it cannot be read."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(read_plain(_stamp_file()), type=SelftestStamp)
    return None


def write_stamp(stamp: SelftestStamp) -> None:
    """Store a selftest result. Raises BakeoffError if it cannot be written."""
    write_atomically(_stamp_file(), encode_json(stamp))


def read_work(component: str, config: Any, workload: str, batch: int) -> Work | None:
    """Return the stored work of a component's call; None if it was not counted yet or cannot be read.

    `component` is a name or package.module:SPEC.
    """
    try:
        return msgspec.json.decode(read_plain(_file(component, config, workload, batch)), type=Work)
    except (OSError, msgspec.MsgspecError):
        return None


def keep_work(component: str, config: Any, workload: str, batch: int, work: Work) -> None:
    """Store the work of a component's call. Raises BakeoffError if the cache folder cannot be written."""
    write_atomically(_file(component, config, workload, batch), msgspec.json.encode(work))


def _file(component: str, config: Any, workload: str, batch: int) -> Path:
    decides = [component_hash(component), config, workload, batch, host.read_versions().get("torch", ""), _VERSION]
    return paths.cache_folder() / "counted" / f"{digest(decides)}.json"
