"""Has imported modules, such as torch, and forks workers that need not do that: `python -P fork_server.py SOCKET ...`.

It imports the named modules, and takes requests from the socket with that descriptor. For each it forks a guard, which
becomes a child of the process that asked (a subreaper), and that guard forks its worker where it would otherwise start
Python. Both then run the product's own code; the worker ends as Python ends, but for the modules' destruction.
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from typing import Any

_MOST_DESCRIPTORS = 16
_added: list[str] = []
"""Of a guard and its worker: places where Python searches modules that the fork server did not search."""
FIRST_FREE = 200
"""Descriptors from here on hold those of a request until they have the lower numbers that the request names."""


class _IsWorker(BaseException):
    """Raised in the process that shall be a worker, so that nothing of the guard's code is left on its stack."""

    def __init__(self, command: list[str]) -> None:
        self.command = command


class _ForkedWorker:
    """What a guard asks of its `subprocess.Popen`."""

    def __init__(self, command: list[str], pass_fds: list[int], preexec_fn: Any, **_usual: Any) -> None:
        read, write = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.setsid()
            os.dup2(write, 1)
            os.dup2(write, 2)
            _close_all_but({0, 1, 2, *pass_fds})
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.default_int_handler)
            signal.set_wakeup_fd(-1)
            preexec_fn()
            raise _IsWorker(command)
        os.close(write)
        self.stdout = os.fdopen(read, "rb")
        self._code: int | None = None

    def poll(self) -> int | None:
        return self._code if self._code is not None else self._waited(os.WNOHANG)

    def wait(self) -> int:
        code = self.poll()
        return code if code is not None else self._waited(0)  # type: ignore[return-value]

    def _waited(self, options: int) -> int | None:
        pid, status = os.waitpid(self.pid, options)
        if pid:
            self._code = os.waitstatus_to_exitcode(status)
        return self._code


def _close_all_but(kept: set[int]) -> None:
    for entry in os.listdir("/proc/self/fd"):
        if int(entry) not in kept:
            with suppress(OSError):  # that of the listing itself
                os.close(int(entry))


def _become_guard(request: dict[str, Any], given: list[int]) -> None:
    """This forked process runs the guard, with the environment, folder and descriptors of the request."""
    from bakeoff.process import guard

    for index, descriptor in enumerate(given):
        os.dup2(descriptor, FIRST_FREE + index)
    _close_all_but({0, 1, 2, *range(FIRST_FREE, FIRST_FREE + len(given))})
    for index, wanted in enumerate(request["descriptors"]):
        os.dup2(FIRST_FREE + index, wanted)
        os.close(FIRST_FREE + index)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    os.close(nothing)
    os.setsid()
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None  # that of the fork server, if it was asked for
    searched = request["environment"].get("PYTHONPATH", "").split(os.pathsep)
    _added[:] = [place for place in searched if place and place not in sys.path]
    sys.path[:0] = _added
    guard.subprocess = _Subprocess  # type: ignore[assignment, attr-defined]
    guard.main(request["arguments"])
    os._exit(0)


class _Subprocess:
    """Of the module subprocess what a guard uses."""

    Popen = _ForkedWorker
    DEVNULL, PIPE, STDOUT = subprocess.DEVNULL, subprocess.PIPE, subprocess.STDOUT


def _serve(asked: socket.socket) -> None:
    """Answer requests with the process id of a guard each, until whoever asks is gone."""
    while True:
        data, given, _, _ = socket.recv_fds(asked, 1 << 20, _MOST_DESCRIPTORS)
        if not data:
            return
        read, write = os.pipe()
        between = os.fork()  # ends at once, so that the guard gets another parent
        if not between:
            child = os.fork()
            if child:
                os.write(write, str(child).encode())
                os._exit(0)
            _become_guard(json.loads(data), given)
        os.waitpid(between, 0)
        os.close(write)
        pid = os.read(read, 32)
        os.close(read)
        for descriptor in given:
            os.close(descriptor)
        asked.send(pid)


def main() -> None:
    for name in sys.argv[2:]:
        importlib.import_module(name)
    tasks = len(os.listdir("/proc/self/task"))
    assert tasks == 1, f"{tasks} threads: only one of them would be left after a fork"
    gc.freeze()
    asked = socket.socket(fileno=int(sys.argv[1]))
    asked.send(b"ready")
    try:
        _serve(asked)
    except _IsWorker as worker:
        command = worker.command
    else:
        os._exit(0)
    for place in _added:  # as Python's own start (module site): the first one that is found
        if os.path.exists(first := os.path.join(place, "sitecustomize.py")):
            runpy.run_path(first)
            break
    if command[-3].endswith(".py"):
        sys.argv = command[-3:]
        vars(sys.modules[os.path.basename(command[-3]).removesuffix(".py")])["main"]()
    else:
        sys.argv = ["bakeoff.worker", *command[-2:]]
        runpy.run_module("bakeoff.worker", run_name="__main__", alter_sys=True)
    _end()


def _end() -> None:
    """End as Python does where nothing failed, without what takes the longest: the destruction of each module."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
