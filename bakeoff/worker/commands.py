"""What a worker does between its parent's commands: it waits in read(2), with all its threads asleep."""

import os
import time
from collections.abc import Callable, Iterator

from bakeoff.worker.reporter import Report

_POLL_S = 0.011
"""Longer than a tick of the kernel's clock (10 ms): CPU time since the last tick is not accounted yet."""
_LONGEST_SPIN_S = 0.1
"""With OMP_WAIT_POLICY=active threads spin for ever; then this is how long to wait for them."""
Turn = Callable[[], None]
"""Returns once nothing else is built or measured on this machine."""


def at_once() -> None:
    """The turn of a worker that has the machine to itself from the beginning."""


def turn_of(commands: int, report: Report) -> Turn:
    """A turn that a parent gives by a line on the descriptor `commands`, which is left open.

    Raises EOFError where the parent closes it instead.
    """

    def wait() -> None:
        wait_for_idle_threads()
        report("turn")
        while (byte := os.read(commands, 1)) != b"\n":
            if not byte:
                raise EOFError("the parent ended before it was this worker's turn")

    return wait


def wait_for_idle_threads() -> None:
    """Sleep until this process uses no CPU: threads of OpenMP and of compilers spin for a while before they sleep."""
    until = time.monotonic() + _LONGEST_SPIN_S
    while time.monotonic() < until:
        before = time.process_time()
        time.sleep(_POLL_S)
        if time.process_time() - before < _POLL_S / 10:
            return


def read_lines(descriptor: int) -> Iterator[bytes]:
    """Commands of the parent, one a line, until it closes its end."""
    with os.fdopen(descriptor, "rb", buffering=0) as stream:
        while line := stream.readline():
            yield line.strip()
