"""A monitor, as the process that is watched uses it."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from bakeoff.monitor.protocol import LATEST, STOP, Lines, Order, Reply, read_line, to_line
from bakeoff.monitor.request import MonitorRequest
from bakeoff.record.monitor import Monitored, Point, SeriesRecord

COMMAND = ("-P", "-m", "bakeoff.monitor")
READY_S = 2.0
_LATEST_S, _STOP_S, _END_S = 0.5, 10.0, 2.0
_CHUNK = 1 << 20


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
        self._lines = Lines()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._gone = False
        """Its process has closed the socket."""
        self._report: Monitored | None = Monitored(missing=(problem,)) if problem else None

    @classmethod
    def start(cls, request: MonitorRequest, ready_s: float = READY_S) -> "Monitor":
        """Start watching. Returns when the first samples were taken, after `ready_s` at the latest; raises nothing."""
        ours = theirs = None
        try:
            ours, theirs = socket.socketpair()  # no pipes: writing to one whose reader is gone may raise a signal
            process = subprocess.Popen(
                [sys.executable or "python3", *COMMAND],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,  # Ctrl-C at the terminal is not for it
            )
        except (OSError, ValueError, RuntimeError, subprocess.SubprocessError) as error:
            if ours is not None:
                ours.close()
            return cls(f"nothing was watched: the monitor's process did not start ({error})")
        finally:
            if theirs is not None:
                theirs.close()
        monitor = cls()
        monitor._process, monitor._socket = process, ours
        monitor._send(to_line(Order(request, os.getpid())))
        monitor._receive(lambda reply: reply.ready, ready_s)
        monitor.start_ns = time.monotonic_ns()
        return monitor

    @property
    def pid(self) -> int | None:
        """Id of the process that watches; None where it did not start."""
        return None if self._process is None else self._process.pid

    def latest(self) -> Mapping[str, float]:
        """Last values by series, of the first device; those of others by `name@uuid`. Empty where there are none."""
        if os.getpid() != self._owner:
            return {}
        with self._lock:
            if self._report is not None:
                return {}
            self._receive(lambda _: False, 0)  # answers that came too late for the call before
            self._send(LATEST + b"\n")
            reply = self._receive(lambda reply: reply.latest is not None, _LATEST_S)
            return {} if reply is None or reply.latest is None else reply.latest

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
            return _from(self._report, self.start_ns if start_ns is None else start_ns)

    def _end(self) -> Monitored:
        assert self._process is not None
        assert self._socket is not None
        self._send(STOP + b"\n")
        reply = self._receive(lambda reply: reply.report is not None, _STOP_S)
        self._socket.close()  # the end of its input ends it
        try:
            code = self._process.wait(_END_S if reply is not None or self._gone else 0)
            why = f"its process ended with code {code}{_last_line(self._process)}"
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            why = f"its process did not answer for {_STOP_S:.0f} s and was killed"
        if self._process.stderr is not None:
            self._process.stderr.close()
        if reply is not None and reply.report is not None:
            return reply.report
        return Monitored(missing=(f"what the monitor saw is lost: {why}",))

    def _send(self, data: bytes) -> None:
        assert self._socket is not None
        try:
            self._socket.settimeout(_LATEST_S)
            self._socket.sendall(data, socket.MSG_NOSIGNAL)
        except OSError:
            return  # it has ended, which `_receive` finds out

    def _receive(self, wanted: Callable[[Reply], bool], patience_s: float) -> Reply | None:
        """Replies up to the first one that is wanted; None where none came in time or the process has ended."""
        assert self._socket is not None
        deadline = time.monotonic() + patience_s
        while True:
            try:
                self._socket.settimeout(max(0.0, deadline - time.monotonic()))
                data = self._socket.recv(_CHUNK)
            except (TimeoutError, BlockingIOError):
                return None
            except OSError:
                data = b""
            self._gone = not data
            replies = [read_line(line, Reply) for line in self._lines.take(data)]
            found = next((reply for reply in replies if reply is not None and wanted(reply)), None)
            if found is not None or self._gone:
                return found


def _last_line(process: "subprocess.Popen[bytes]") -> str:
    """What an ended process said last, to be added to a sentence."""
    if process.stderr is None:
        return ""
    os.set_blocking(process.stderr.fileno(), False)
    lines = (process.stderr.read() or b"").decode(errors="replace").strip().splitlines()
    return f": {lines[-1]}" if lines else ""


def _from(report: Monitored, start_ns: int) -> Monitored:
    """The same with times from `start_ns`."""
    return replace(report, series=tuple(_moved(series, start_ns) for series in report.series))


def _moved(series: SeriesRecord, start_ns: int) -> SeriesRecord:
    points = (Point(max(0, one.t_ns - start_ns), one.least, one.mean, one.greatest, one.count) for one in series.points)
    return replace(series, points=tuple(points))
