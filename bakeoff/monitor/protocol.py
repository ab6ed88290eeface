"""What a monitor's process and the one that started it say to each other: lines of JSON on one socket.

The first line is an Order. Each further line to the process is a command, `latest` or `stop`; each line from it is a
Reply. It ends after `stop`, at the end of its input, and when the process that started it ends.
"""

import json
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from bakeoff.monitor.request import MonitorRequest, Reading
from bakeoff.record.monitor import Monitored

LATEST, STOP = b"latest", b"stop"


@dataclass(frozen=True, slots=True)
class Order:
    """What to watch, and the process that must be there."""

    request: MonitorRequest
    parent: int


@dataclass(frozen=True, slots=True)
class Reply:
    """Exactly one field is set."""

    ready: bool = False
    """The first samples were taken; it is said once, unasked."""
    latest: dict[str, float] | None = None
    report: Monitored | None = None


_Message = TypeVar("_Message", Order, Reply)


def to_line(message: Order | Reply) -> bytes:
    return msgspec.json.encode(message) + b"\n"


def read_line(line: bytes, kind: type[_Message]) -> _Message | None:
    """None for a line that is none of ours, as what a library prints."""
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


class Lines:
    """Cuts what is received into lines."""

    def __init__(self) -> None:
        self._pending = b""

    def take(self, data: bytes) -> list[bytes]:
        """Lines that `data` completes, without their ends."""
        *lines, self._pending = (self._pending + data).split(b"\n")
        return lines


class RawFile:
    """The first line is `{"monotonic_ns": ..., "wall_ns": ...}`, the same moment by both clocks; each other one is a
    value: `{"t_ns": ..., "name": "gpu.power", "source": "GPU-...", "value": 312.5}`, its time by the monotonic clock.

    The first error ends it: `problem` then says why, and the file ends with a whole line.
    """

    def __init__(self, path: str) -> None:
        self.problem = ""
        self._path = path
        self._kept_bytes = 0
        self._descriptor = -1
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        except (OSError, ValueError) as error:
            self._end(error)
        self._write(json.dumps({"monotonic_ns": time.monotonic_ns(), "wall_ns": time.time_ns()}) + "\n")

    def write(self, t_ns: int, readings: Iterable[Reading]) -> None:
        """Add samples of one time; their values must be finite."""
        self._write("".join(json.dumps({"t_ns": t_ns, **reading._asdict()}) + "\n" for reading in readings))

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _write(self, text: str) -> None:
        data = text.encode()
        try:
            while data and self._descriptor >= 0:
                data = data[os.write(self._descriptor, data) :]
                self._kept_bytes += 0 if data else len(text)
        except OSError as error:
            self._end(error)

    def _end(self, error: Exception) -> None:
        reason = getattr(error, "strerror", None) or error
        self.problem = f"not every sample is in {self._path}: it cannot be written ({reason})"
        if self._descriptor >= 0:
            with suppress(OSError):
                os.ftruncate(self._descriptor, self._kept_bytes)
            self.close()
