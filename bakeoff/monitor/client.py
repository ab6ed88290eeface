"""A monitor, as the process that is watched uses it."""

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
    """A process that watches this machine. Whatever goes wrong with it is a sentence in its report's `missing`.

    Usable from several threads, and of no effect in a process that was forked from the one that started it.
    """

    def __init__(self, problem: str = "") -> None:
        """One that watches nothing, for the reason given; `start` makes the others."""
        self.start_ns = time.monotonic_ns()
        """When `start` returned, by the monotonic clock."""
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes]
        self._socket: socket.socket
        self._output: IO[bytes]
        """Standard output and error of the process: the report as a line of JSON, or why there is none."""
        self._report: Monitored | None = Monitored(missing=(problem,)) if problem else None

    @classmethod
    def start(cls, request: MonitorRequest, ready_s: float = READY_S) -> "Monitor":
        """Start watching. Returns when the first samples were taken, after `ready_s` at the latest; raises nothing."""
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
        """Id of the process that watches."""
        return self._process.pid

    def latest(self) -> Mapping[str, float]:
        """Last values by series, of the first device; those of others by `name@uuid`. Empty where there are none."""
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
        """Stop watching. The same report at each call; raises nothing.

        Times are from `start_ns` by the monotonic clock, by default from when `start` returned; a sample that was taken
        before is at 0.
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
        """One that has ended is found out by who waits for its answer. No signal is raised, as by writing to a pipe."""
        self._socket.settimeout(_LATEST_S)
        try:
            self._socket.send(command, socket.MSG_NOSIGNAL)
        except OSError:
            return

    def _receive(self, patience_s: float) -> dict[str, float]:
        """Last values, as it tells them; empty where none came in time or it has ended."""
        self._socket.settimeout(patience_s)
        try:
            data = self._socket.recv(_LONGEST)
        except OSError:
            return {}
        return msgspec.json.decode(data or b"{}", type=dict[str, float])


def _moved(series: SeriesRecord, start_ns: int) -> SeriesRecord:
    """The same with times from `start_ns`."""
    points = (Point(max(0, one.t_ns - start_ns), one.least, one.mean, one.greatest, one.count) for one in series.points)
    return replace(series, points=tuple(points))
