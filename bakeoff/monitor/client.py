"""`Monitor`: starts a monitor process, asks it for values and stops it, from the process that is watched."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import IO

import msgspec

from bakeoff.monitor.request import LATEST, STOP, MonitorRequest
from bakeoff.record.monitor import Monitored, Point, SeriesRecord

COMMAND = ("-P", "-m", "bakeoff.monitor")
READY_S = 2.0
_LATEST_S, _STOP_S = 0.5, 10.0
_LONGEST = 1 << 16


class Monitor:
    """Handle of a process that samples this machine. Every failure becomes a sentence in its report's `missing`.

    Thread-safe. In a process that was forked from the one that started the monitor, it has no effect.
    """

    def __init__(self, problem: str = "") -> None:
        """Make a monitor that samples nothing, with `problem` as the reason; use `start` to make one that samples."""
        self.start_ns = time.monotonic_ns()
        """Time at which `start` returned, by the monotonic clock."""
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes]
        self._socket: socket.socket
        self._output: IO[bytes]
        """Standard output and error of the process: the report as a line of JSON, or why there is none."""
        self._report: Monitored | None = Monitored(missing=(problem,)) if problem else None

    @classmethod
    def start(cls, request: MonitorRequest, ready_s: float = READY_S) -> "Monitor":
        """Start a monitor process and wait for its first samples, but no longer than `ready_s` seconds.

        Never raises.
        """
        monitor = cls()
        try:
            with ExitStack() as stack:
                ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
                monitor._socket = stack.enter_context(ours)
                monitor._output = stack.enter_context(os.fdopen(os.memfd_create("monitor"), "rb"))
                with theirs:
                    monitor._process = subprocess.Popen(
                        [sys.executable or "python3", *COMMAND, msgspec.json.encode(request), str(os.getpid())],
                        stdin=theirs.fileno(),
                        stdout=monitor._output,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,  # Ctrl-C at the terminal is not for it
                    )
                stack.pop_all()
        except (OSError, ValueError, RuntimeError, subprocess.SubprocessError) as error:
            return cls(f"nothing was watched: the monitor's process did not start ({error})")
        monitor._receive(ready_s)
        monitor.start_ns = time.monotonic_ns()
        return monitor

    @property
    def pid(self) -> int:
        """Id of the monitor process."""
        return self._process.pid

    def latest(self) -> Mapping[str, float]:
        """Return the last value of each series; empty if there is none.

        Series of the first device have their plain names, those of further devices `name@uuid`.
        """
        if os.getpid() != self._owner:
            return {}
        with self._lock:
            if self._report is not None:
                return {}
            while self._receive(0):
                pass  # what came too late for the call before
            self._send(LATEST)
            return self._receive(_LATEST_S)

    def stop(self, start_ns: int | None = None) -> Monitored:
        """Stop sampling and return the report; further calls return the same report. Never raises.

        Times count from `start_ns` of the monotonic clock, by default from the return of `start`. Samples taken before
        have the time 0.
        """
        if os.getpid() != self._owner:
            return Monitored(missing=("nothing was watched: this process was forked after the monitor had started",))
        with self._lock:
            if self._report is None:
                self._report = self._end()
            start_ns = self.start_ns if start_ns is None else start_ns
            return replace(self._report, series=tuple(_moved(series, start_ns) for series in self._report.series))

    def _end(self) -> Monitored:
        self._send(STOP)
        try:
            why = f"its process ended with code {self._process.wait(_STOP_S)}"
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            why = f"its process did not answer for {_STOP_S:.0f} s and was killed"
        self._socket.close()
        with self._output:
            self._output.seek(0)
            last = (self._output.read().splitlines() or [b""])[-1]
        try:
            return msgspec.json.decode(last, type=Monitored)
        except msgspec.MsgspecError:
            said = f": {last.decode(errors='replace')}" if last else ""
            return Monitored(missing=(f"what the monitor saw is lost: {why}{said}",))

    def _send(self, command: bytes) -> None:
        """Send a command. Errors are ignored: whoever waits for the answer notices that the process has ended.

        Unlike a write to a pipe, this causes no SIGPIPE.
        """
        self._socket.settimeout(_LATEST_S)
        try:
            self._socket.send(command, socket.MSG_NOSIGNAL)
        except OSError:
            return

    def _receive(self, patience_s: float) -> dict[str, float]:
        """Return the last values that the process sends; empty if none arrive in time or the process has ended."""
        self._socket.settimeout(patience_s)
        try:
            data = self._socket.recv(_LONGEST)
        except OSError:
            return {}
        return msgspec.json.decode(data or b"{}", type=dict[str, float])


def _moved(series: SeriesRecord, start_ns: int) -> SeriesRecord:
    """Return the series with times relative to `start_ns`, earlier times as 0."""
    points = (Point(max(0, one.t_ns - start_ns), one.least, one.mean, one.greatest, one.count) for one in series.points)
    return replace(series, points=tuple(points))
