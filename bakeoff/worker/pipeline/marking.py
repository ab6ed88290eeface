"""Clocks of units that are not timed: one leaves its stamps in torch's profile, one waits for the device at each."""

from collections.abc import Sequence

import torch
from torch.autograd.profiler import record_function

from bakeoff.trace.marks import BEGIN, END, mark_name
from bakeoff.worker.pipeline.clocks import HostClock, UnitClock

UNNAMED = "unattributed"


class MarkingClock:
    """Another clock, whose stamps are also written into torch's profile as empty ranges."""

    def __init__(self, clock: UnitClock, segments: int) -> None:
        self._clock = clock
        self._names = [mark_name(segment) for segment in range(segments)]

    def begin(self) -> int:
        started = self._clock.begin()
        _stamp(BEGIN)
        return started

    def mark(self, segment: int) -> None:
        self._clock.mark(segment)
        _stamp(self._names[segment])

    def end(self) -> tuple[int, list[int]]:
        found = self._clock.end()
        _stamp(END)
        return found


class SynchronisedClock(HostClock):
    """Waits for the device at each stamp, so that nothing overlaps: more than a unit takes by itself."""

    def mark(self, segment: int) -> None:
        torch.cuda.synchronize()
        super().mark(segment)


def _stamp(name: str) -> None:
    with record_function(name):
        pass


class RecordingClock:
    """Another clock, whose stamps are kept in their order: it is the same in every steady unit."""

    def __init__(self, clock: UnitClock, _segments: int) -> None:
        self._clock = clock
        self.order: list[int] = []

    def begin(self) -> int:
        self.order = []
        return self._clock.begin()

    def mark(self, segment: int) -> None:
        self._clock.mark(segment)
        self.order.append(segment)

    def end(self) -> tuple[int, list[int]]:
        return self._clock.end()


class NvtxClock:
    """Another clock, whose pieces are NVTX ranges: the order of a unit's stamps tells what each range is called."""

    def __init__(self, clock: UnitClock, names: Sequence[str]) -> None:
        self._clock, self._names = clock, names
        self._place = 0

    def begin(self) -> int:
        started = self._clock.begin()
        torch.cuda.nvtx.range_push("unit")
        self._place = 0
        torch.cuda.nvtx.range_push(self._names[0] if self._names else UNNAMED)
        return started

    def mark(self, segment: int) -> None:
        self._clock.mark(segment)
        torch.cuda.nvtx.range_pop()
        self._place += 1
        torch.cuda.nvtx.range_push(self._names[self._place] if self._place < len(self._names) else UNNAMED)

    def end(self) -> tuple[int, list[int]]:
        found = self._clock.end()
        torch.cuda.nvtx.range_pop()
        torch.cuda.nvtx.range_pop()
        return found
