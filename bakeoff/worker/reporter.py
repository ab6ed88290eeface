"""A worker's line to its parent: reports of progress, one JSON object each, which the parent reads as
`supervisor.Event`; and the parent's commands, between which the worker waits in read(2), with all its threads asleep.
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

from bakeoff.process.phases import Block

_POLL_S = 0.011
"""Longer than a tick of the kernel's clock (10 ms): CPU time since the last tick is not accounted yet."""
_LONGEST_SPIN_S = 0.1
"""With OMP_WAIT_POLICY=active threads spin for ever; then this is how long to wait for them."""
Turn = Callable[[], None]
"""Returns once nothing else is built or measured on this machine."""


class Report(Protocol):
    """Announces the phase that begins, or with the same phase again, how far it is."""

    def __call__(self, phase: str, detail: str = "", /) -> None: ...


class Reporter:
    """A Report that writes to the descriptor of the parent; a parent that is gone is ignored."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __call__(self, phase: str, detail: str = "", /) -> None:
        self._send(phase, detail=detail)

    def ready(self, call_ns: int) -> None:
        """The variant is warm and a call takes `call_ns`: the parent may now request blocks."""
        self._send("ready", call_ns=call_ns)

    def block(self, block: Block) -> None:
        self._send("block", block=asdict(block))

    def unit(self, block: Block) -> None:
        """Units of a pipeline ran, one after the other; each is a sample of the block."""
        self._send("unit", block=asdict(block))

    def seal(self, result: bytes) -> None:
        """Tell the parent what the result file must contain."""
        self._send("", seal=hashlib.sha256(result).hexdigest())

    def _send(self, phase: str, **values: Any) -> None:
        line = json.dumps({"phase": phase, "t_ns": _now_ns(), **values}).encode() + b"\n"
        with contextlib.suppress(OSError):
            os.write(self._descriptor, line)


def _now_ns() -> int:
    """The clock that times calls, so that the parent can compare it with its own; before torch is imported, another."""
    clock = sys.modules.get("bakeoff.worker.clocks.clock")
    now: Callable[[], int] = getattr(clock, "now_ns", time.perf_counter_ns)
    return now()


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
