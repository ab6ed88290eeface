"""A file with every sample of a monitor, as JSON lines."""

import json
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from bakeoff.monitor.probe import Reading


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
