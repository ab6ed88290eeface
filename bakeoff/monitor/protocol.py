"""What a monitor's process and the one that started it say to each other: lines of JSON on one socket.

The first line is an Order. Each further line to the process is a command, `latest` or `stop`; each line from it is a
Reply. It ends after `stop`, at the end of its input, and when the process that started it ends.
"""

from dataclasses import dataclass
from typing import TypeVar

import msgspec

from bakeoff.monitor.request import MonitorRequest
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
