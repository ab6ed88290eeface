"""A worker's reports of its progress: one JSON object a line, which the parent reads as `supervisor.Event`."""

import contextlib
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Literal, Protocol

from bakeoff.process.phases import Block, Phase


class Report(Protocol):
    """Announces the phase that begins, or with the same phase again, how far it is."""

    def __call__(self, phase: Phase, detail: str = "", /) -> None: ...


class Reporter:
    """A Report that writes to the descriptor of the parent; a parent that is gone is ignored."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __call__(self, phase: Phase, detail: str = "", /) -> None:
        self._send(phase, detail=detail)

    def ready(self, call_ns: int) -> None:
        """The variant is warm and a call takes `call_ns`: the parent may now request blocks."""
        self._send("ready", call_ns=call_ns)

    def block(self, block: Block) -> None:
        self._send("block", block=asdict(block))

    def unit(self, block: Block) -> None:
        """A unit of a pipeline ran; the block holds its time as the only sample."""
        self._send("unit", block=asdict(block))

    def seal(self, result: bytes) -> None:
        """Tell the parent what the result file must contain."""
        self._send("", seal=hashlib.sha256(result).hexdigest())

    def _send(self, phase: Phase | Literal[""], **values: Any) -> None:
        line = json.dumps({"phase": phase, "t_ns": _now_ns(), **values}).encode() + b"\n"
        with contextlib.suppress(OSError):
            os.write(self._descriptor, line)


def _now_ns() -> int:
    """The clock that times calls, so that the parent can compare it with its own; before torch is imported, another."""
    clock = sys.modules.get("bakeoff.worker.clocks.clock")
    now: Callable[[], int] = getattr(clock, "now_ns", time.perf_counter_ns)
    return now()
