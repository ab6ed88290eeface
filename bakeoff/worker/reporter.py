"""Connects a worker to its parent: sends reports of progress, reads commands, and waits for the worker's turn.

A report is a line with one JSON object, which the parent reads as `supervisor.Event`. Between two commands the worker
waits in read(2), with all its threads asleep.
"""

import contextlib
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any, Protocol

from bakeoff.process.phases import Block, UnitStamp

_POLL_S = 0.011
"""Interval between readings of CPU time, which the kernel accounts at ticks of its clock (10 ms) only."""
_LONGEST_SPIN_S = 0.1
"""Longest wait for spinning threads, which spin for ever with OMP_WAIT_POLICY=active."""
Turn = Callable[[], None]
"""Function that returns once nothing else is built or measured on this machine."""


class Report(Protocol):
    """Function that announces a phase as it begins; called again for the same phase, `detail` is the progress in it."""

    def __call__(self, phase: str, detail: str = "", /) -> None: ...


def unheard(_phase: str, _detail: str = "", /) -> None:
    """Report to nobody."""


class Reporter:
    """Report that writes to the parent's descriptor; errors of writing, as after the parent's end, are ignored."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __call__(self, phase: str, detail: str = "", /) -> None:
        self._send(phase, detail=detail)

    def ready(self, call_ns: int = 0) -> None:
        """Announce that the parent may now request blocks, of calls that take `call_ns` if that is known."""
        self._send("ready", call_ns=call_ns)

    def block(self, block: Block) -> None:
        self._send("block", block=asdict(block))

    def unit(self, block: Block) -> None:
        """Report units of a pipeline that ran one after the other; each is a sample of the block."""
        self._send("unit", block=asdict(block))

    def stamp(self, stamp: UnitStamp) -> None:
        """Report one unit of a sustained run."""
        self._send("unit", stamp=asdict(stamp))

    def seal(self, result: bytes) -> None:
        """Send the parent the hash of the result, so that it can tell whether the result file was changed."""
        self._send("", seal=hashlib.sha256(result).hexdigest())

    def _send(self, phase: str, **values: Any) -> None:
        line = json.dumps({"phase": phase, "t_ns": _now_ns(), **values}).encode() + b"\n"
        with contextlib.suppress(OSError):
            os.write(self._descriptor, line)


def _now_ns() -> int:
    """Return nanoseconds by the clock that times calls, or before that clock is imported, by time.perf_counter_ns."""
    clock = sys.modules.get("bakeoff.worker.clocks.clock")
    now: Callable[[], int] = getattr(clock, "now_ns", time.perf_counter_ns)
    return now()


def at_once() -> None:
    """Return at once: the turn of a worker that has the machine to itself from the beginning."""


def turn_of(commands: int, report: Report) -> Turn:
    """Return a turn that waits for a line from the parent on the descriptor `commands`, and leaves that open.

    The turn raises EOFError if the parent closes the descriptor instead.
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
    """Yield the parent's commands, one a line, until the parent closes its end of the descriptor."""
    with os.fdopen(descriptor, "rb", buffering=0) as stream:
        while line := stream.readline():
            yield line.strip()
