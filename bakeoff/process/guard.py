"""Runs one worker and kills all its descendants when it ends or the sweep does. A script; standard library only.

    python -I -S guard.py CONTROL STATUS LOG LIMIT -- command ...

Starts the command in a session of its own, keeps at most LIMIT bytes of its output in LOG (the first and the newest
half), and ends when the command ends, when the CONTROL descriptor closes (the sweep ended, for whatever reason) or at
SIGTERM. Before it ends it kills every descendant: it is their subreaper, so that a grandchild that left the session
becomes its child. One JSON line on STATUS says how the command ended.

Linux only: prctl(2) PR_SET_CHILD_SUBREAPER and PR_SET_PDEATHSIG, pidfd_open(2).
"""

import contextlib
import ctypes
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Collection

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
_CHUNK = 1 << 16


CALLER = "BAKEOFF_CALLER"
"""Environment variable with the process id of a Python caller. When the caller ends, the command ends too."""


def end_with_caller() -> None:
    """Have the kernel send this process SIGTERM when its caller has ended, if the variable `CALLER` names one."""
    caller = os.environ.pop(CALLER, "")
    if caller:
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != int(caller):  # it ended before
            os.kill(os.getpid(), signal.SIGTERM)


def prctl(option: int, value: int) -> None:
    """Call prctl(2). Raises OSError if the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def descendants(root: int, spared: Collection[int] = ()) -> list[int]:
    """Return the ids of running processes below `root`, from /proc, without the `spared` ones and their descendants."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError), open(f"/proc/{entry}/stat", "rb") as stat:
            state, parent = stat.read().rpartition(b") ")[2].split(maxsplit=2)[:2]
            if state not in (b"Z", b"X"):
                children.setdefault(int(parent), []).append(int(entry))
    found, frontier = [], [root]
    while frontier:
        below = [pid for pid in children.get(frontier.pop(), []) if pid not in spared]
        found += below
        frontier += below
    return found


def kill_descendants(patience_s: float = 10.0, spared: Collection[int] = ()) -> list[int]:
    """Kill all descendants of this process, a subreaper, and return the ids that were found alive.

    It tries until no child is left, for at most `patience_s` seconds: orphans become children of a subreaper, while
    /proc misses those of a process whose threads are just ending. Children in `spared` stay, with all below them; it
    then ends when /proc shows no other descendant.
    """
    killed: list[int] = []
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        found = descendants(os.getpid(), spared=spared)
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            if pid not in killed:
                killed.append(pid)
        if spared:
            for pid in killed:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            if not found:
                break
        else:
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                break
        time.sleep(0.01)
    return killed


class BoundedLog:
    """Log file that keeps the first half of its limit and the newest half, and counts the bytes dropped between."""

    def __init__(self, path: str, limit: int) -> None:
        self._file = open(path, "wb")  # noqa: SIM115 - closed by finish()
        self._half = limit // 2
        self._head = 0
        self._tail: deque[bytes] = deque()
        self._kept = 0
        self._dropped = 0

    def write(self, data: bytes) -> None:
        """Add output to the log. Write errors are ignored: a full disk costs the log, not the measurement."""
        with contextlib.suppress(OSError):
            self._write(data)

    def _write(self, data: bytes) -> None:
        room = self._half - self._head
        if room > 0:
            self._file.write(data[:room])
            self._file.flush()
            self._head += len(data[:room])
            data = data[room:]
        if data:
            self._tail.append(data)
            self._kept += len(data)
            while self._kept - len(self._tail[0]) >= self._half:
                dropped = len(self._tail.popleft())
                self._kept -= dropped
                self._dropped += dropped

    def finish(self) -> int:
        """Write the tail and close the file; return the number of bytes that were dropped."""
        with contextlib.suppress(OSError):
            if self._dropped:
                self._file.write(b"\n... %d bytes left out ...\n" % self._dropped)
            self._file.writelines(self._tail)
            self._file.close()
        return self._dropped


def _prepare_child() -> None:
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main(arguments: list[str]) -> None:
    control, status = int(arguments[0]), int(arguments[1])
    log = BoundedLog(arguments[2], int(arguments[3]))
    command = arguments[arguments.index("--") + 1 :]
    prctl(PR_SET_CHILD_SUBREAPER, 1)

    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    inherited = [int(fd) for fd in os.environ.get("BAKEOFF_WORKER_FDS", "").split(",") if fd]
    worker = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        pass_fds=inherited,
        preexec_fn=_prepare_child,
    )
    for descriptor in inherited:
        os.close(descriptor)
    assert worker.stdout is not None
    output = worker.stdout.fileno()
    os.set_blocking(output, False)
    ended = os.pidfd_open(worker.pid)

    selector = selectors.DefaultSelector()
    for descriptor in (control, wake_read, output, ended):
        selector.register(descriptor, selectors.EVENT_READ)
    running = True
    while running:
        for key, _ in selector.select():
            if key.fd != output:
                running = False
            elif data := os.read(output, _CHUNK):
                log.write(data)
            else:
                selector.unregister(output)

    finished = worker.poll() is not None
    killed = kill_descendants()
    with contextlib.suppress(BlockingIOError):
        for _ in range(1024):
            data = os.read(output, _CHUNK)
            if not data:
                break
            log.write(data)
    code, leftovers = (worker.wait(), len(killed)) if finished else (None, 0)
    report = {"code": code, "leftovers": leftovers, "log_dropped": log.finish()}
    with contextlib.suppress(OSError):
        os.write(status, json.dumps(report).encode() + b"\n")


if __name__ == "__main__":
    main(sys.argv[1:])
