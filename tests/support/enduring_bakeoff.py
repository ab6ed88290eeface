"""The command line for endurance tests, with short clocks: `python enduring_bakeoff.py sweep toy`.

BAKEOFF_TEST_TORCHLESS=1 takes workers that need no torch; BAKEOFF_TEST_FSYNC=N lets the Nth fsync of this process fail
as it does on a broken disk. BAKEOFF_TEST_KILLED_AT=N kills this process at its Nth step: before it changes a file or
a folder, and when a worker has told it something. BAKEOFF_TEST_WORKER_KILLED=PHASE kills the first worker that
announces this phase.
"""

import errno
import functools
import itertools
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import psutil
from lab import FAST, SHORT_LOOK_S, TORCHLESS

from bakeoff import cli
from bakeoff.machine import host, paths
from bakeoff.plan import request
from bakeoff.process import supervisor


def _break_fsync(failing: int) -> None:
    real, calls = os.fsync, itertools.count(1)

    def fsync(descriptor: int) -> None:
        if next(calls) == failing:
            print("fsync fails", file=sys.stderr)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(descriptor)

    os.fsync = fsync  # type: ignore[assignment]


def _kill_at(step: int) -> None:
    steps = itertools.count(1)

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*given: Any, **named: Any) -> Any:
            if next(steps) == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*given, **named)

        return call

    for name in ("fsync", "replace", "rename", "link", "unlink", "mkdir", "rmdir"):
        setattr(os, name, counted(getattr(os, name)))
    supervisor.LiveWorker._take = counted(supervisor.LiveWorker._take)  # type: ignore[method-assign]


def _kill_worker(phase: str) -> None:
    real, killed = supervisor.LiveWorker._take, list[int]()

    def take(self: supervisor.LiveWorker, data: bytes, until: str) -> supervisor.Event | None:
        def kill() -> None:
            if self.phase == phase and not killed:
                killed.extend(process.pid for process in psutil.Process(self._process.pid).children())
                for pid in killed:
                    os.kill(pid, signal.SIGKILL)
                print("worker killed", file=sys.stderr)

        kill()  # "start" ends with the first thing that a worker tells
        found = real(self, data, until)
        kill()
        return found

    supervisor.LiveWorker._take = take  # type: ignore[method-assign]


def _no_commit() -> tuple[str, bool]:
    """A constant commit, so that a sweep can be resumed although files of the checkout change meanwhile."""
    return "", False


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # SIGINT is ignored in a process started in the background
    torchless = bool(os.environ.get("BAKEOFF_TEST_TORCHLESS"))
    host.busy_cpus.__defaults__ = (SHORT_LOOK_S,)
    request.FINAL_S = 0.1 if torchless else 0.0
    request.Request = functools.partial(request.Request, policy=FAST, ceilings=torchless)  # type: ignore[misc, assignment]
    paths.commit = _no_commit
    if torchless:
        supervisor.WORKER = TORCHLESS  # type: ignore[assignment]
    if os.environ.get("BAKEOFF_TEST_FSYNC"):
        _break_fsync(int(os.environ["BAKEOFF_TEST_FSYNC"]))
    if os.environ.get("BAKEOFF_TEST_KILLED_AT"):
        _kill_at(int(os.environ["BAKEOFF_TEST_KILLED_AT"]))
    if os.environ.get("BAKEOFF_TEST_WORKER_KILLED"):
        _kill_worker(os.environ["BAKEOFF_TEST_WORKER_KILLED"])
    cli.main()
