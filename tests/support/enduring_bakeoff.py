"""The command line for endurance tests, with short clocks: `python enduring_bakeoff.py sweep toy`.

BAKEOFF_TEST_TORCHLESS=1 takes workers that need no torch; BAKEOFF_TEST_FSYNC=N lets the Nth fsync of this process fail
as it does on a broken disk.
"""

import errno
import functools
import itertools
import os
import signal
import sys

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
    cli.main()
