"""Reads and writes traces in Chrome's JSON, as torch's profiler writes them and Perfetto opens them; names of marks.

Format: "Trace Event Format" (Google, 2016); categories and arguments are kineto's (libkineto/src/output_json.cpp). The
account of a unit consists of contiguous time stamps. In a traced unit, each stamp also leaves an empty range, a mark,
so that the same borders divide the trace, whatever else the profiler does.
"""

import gzip
import zlib
from pathlib import Path
from typing import Any

import msgspec

from bakeoff.machine.files import write_atomically
from bakeoff.models.errors import BakeoffError
from bakeoff.models.plain_file import open_plain

MOST_BYTES = 1 << 30
"""Largest size of an unpacked trace; reading a larger one is stopped before it fills memory."""
_GZIP = b"\x1f\x8b"
_PIECE = 1 << 20


class TraceEvent(msgspec.Struct, omit_defaults=True):
    """One event. `ts`, from an arbitrary start, and `dur` are in microseconds with three decimals."""

    ph: str
    """Kind of event: `X` a range, `i` an instant, `C` a counter, `M` a name, `s` and `f` the ends of an arrow."""
    name: str = ""
    cat: str = ""
    ts: float = 0.0
    dur: float = 0.0
    pid: int | str = 0
    tid: int | str = 0
    id: int | str | None = None
    bp: str | None = None
    s: str | None = None
    args: dict[str, Any] | None = None

    @property
    def start_ns(self) -> int:
        return round(self.ts * 1000)

    @property
    def end_ns(self) -> int:
        return round((self.ts + self.dur) * 1000)


class ChromeTrace(msgspec.Struct):
    """A trace file, without the parts that bakeoff does not read."""

    traceEvents: list[TraceEvent]  # noqa: N815  # the format's name
    deviceProperties: list[dict[str, Any]] = []  # noqa: N815
    displayTimeUnit: str = "ms"  # noqa: N815


def read_trace(path: Path) -> ChromeTrace:
    """Return the trace in a .json or .json.gz file.

    Raises BakeoffError if the file cannot be read, is not such a trace, or unpacks to more than `MOST_BYTES`.
    """
    try:
        return msgspec.json.decode(_unpacked(path), type=ChromeTrace)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BakeoffError(f"{path} is not a trace in Chrome's JSON: {error}", code="bad-trace") from error
    except (OSError, EOFError, zlib.error) as error:
        raise BakeoffError(f"the trace {path} cannot be read: {error}", code="bad-trace") from error


def write_trace(path: Path, trace: ChromeTrace) -> None:
    """Write the trace to `path`, a .json.gz file, atomically. Equal traces give equal bytes."""
    write_atomically(path, gzip.compress(msgspec.json.encode(trace), 6, mtime=0))


def _unpacked(path: Path) -> bytes:
    """Return the file's bytes, unpacked if they are gzip's. Raises BakeoffError if there are more than `MOST_BYTES`."""
    with open_plain(path) as file:
        packed = file.read(len(_GZIP)) == _GZIP
        file.seek(0)
        source = gzip.GzipFile(fileobj=file) if packed else file
        pieces, size = [], 0
        while piece := source.read(_PIECE):
            size += len(piece)
            if size > MOST_BYTES:
                text = f"the trace {path} holds more than {MOST_BYTES >> 20} MiB; trace fewer units"
                raise BakeoffError(text, code="bad-trace")
            pieces.append(piece)
    return b"".join(pieces)


BEGIN, END = "bakeoff begin", "bakeoff end"
"""Names of the first and the last stamp of a unit."""
_MARK, _PART = "bakeoff mark ", "bakeoff part "


def mark_name(segment: int) -> str:
    """Return the name of the stamp that ends a piece of this segment of the account."""
    return f"{_MARK}{segment}"


def marked_segment(name: str) -> int | None:
    """Return the segment number in a name that `mark_name` made; None for any other name."""
    return _number(name, _MARK)


def part_name(part: int) -> str:
    """Return the name of the range of a part of a network, given the part's number."""
    return f"{_PART}{part}"


def named_part(name: str) -> int | None:
    """Return the part number in a name that `part_name` made; None for any other name."""
    return _number(name, _PART)


def is_ours(name: str) -> bool:
    """Return whether a range with this name is a stamp or a part of a network, written by bakeoff."""
    return name in (BEGIN, END) or marked_segment(name) is not None or named_part(name) is not None


def _number(name: str, prefix: str) -> int | None:
    digits = name.removeprefix(prefix)
    return int(digits) if name.startswith(prefix) and digits.isdecimal() else None
