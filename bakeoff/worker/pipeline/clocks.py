"""Clocks that time a pipeline's unit by contiguous marks, so that each nanosecond belongs to exactly one segment.

On a CPU a mark reads the host's clock. On CUDA it records an event, and segments are computed after the unit, because a
call returns before its work is done; the part of the unit's wall time that the device's segments do not cover is
unattributed. Units that are not timed have other clocks: these write marks into torch's profile or as NVTX ranges, or
wait for the device at each mark.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch.autograd.profiler import record_function

from bakeoff.trace.chrome import BEGIN, END, mark_name
from bakeoff.worker.clocks.clock import now_ns

UNATTRIBUTED = 0
"""Number of the segment for all time without a name."""
UNNAMED = "unattributed"


class UnitClock(Protocol):
    """Times one unit after the other. The segments of a unit add up to its wall time exactly."""

    def begin(self) -> int:
        """Begin a unit; return the host's clock in ns."""
        ...

    def mark(self, segment: int) -> None:
        """Attribute the time since the last mark to `segment`."""
        ...

    def end(self) -> tuple[int, list[int]]:
        """Wait for the device; return the unit's wall time and the time of each segment, in ns."""
        ...


class HostClock:
    """Unit clock whose marks read the host's clock."""

    def __init__(self, segments: int) -> None:
        self._count = segments
        self._ns = [0] * segments
        self._started = self._last = 0

    def begin(self) -> int:
        self._ns = [0] * self._count
        self._started = self._last = now_ns()
        return self._started

    def mark(self, segment: int) -> None:
        now = now_ns()
        self._ns[segment] += now - self._last
        self._last = now

    def end(self) -> tuple[int, list[int]]:
        self.mark(UNATTRIBUTED)
        return self._last - self._started, self._ns


class DeviceClock:
    """Unit clock whose marks are CUDA events. Their times have a resolution of about 0.5 us (cudaEventElapsedTime)."""

    def __init__(self, segments: int) -> None:
        self._count = segments
        self._pool: list[torch.cuda.Event] = []
        self._marks: list[int] = []
        self._started = 0

    def begin(self) -> int:
        torch.cuda.synchronize()
        self._marks = []
        self._event(0).record()
        self._started = now_ns()
        return self._started

    def mark(self, segment: int) -> None:
        self._marks.append(segment)
        self._event(len(self._marks)).record()

    def _event(self, index: int) -> torch.cuda.Event:
        if index == len(self._pool):
            self._pool.append(torch.cuda.Event(enable_timing=True))
        return self._pool[index]

    def end(self) -> tuple[int, list[int]]:
        torch.cuda.synchronize()
        wall_ns = now_ns() - self._started
        ns = [0] * self._count
        for index, segment in enumerate(self._marks):
            if segment != UNATTRIBUTED:
                ns[segment] += round(self._pool[index].elapsed_time(self._pool[index + 1]) * 1e6)
        ns[UNATTRIBUTED] = wall_ns - sum(ns)
        return wall_ns, ns


def make_clock(device: str, segments: int) -> UnitClock:
    """Return the device's clock for units with this many segments, number 0 (unattributed) included."""
    return DeviceClock(segments) if device == "cuda" else HostClock(segments)


class SynchronisedClock(HostClock):
    """Host clock that waits for the device at each mark, so that nothing overlaps and units take longer."""

    def mark(self, segment: int) -> None:
        torch.cuda.synchronize()
        super().mark(segment)


class ToldClock:
    """Clock that passes everything on to another one, and calls a function at each begin, mark and end of a unit."""

    def __init__(
        self,
        clock: UnitClock,
        begun: Callable[[], object],
        marked: Callable[[int], object],
        ended: Callable[[], object],
    ) -> None:
        self._clock, self._begun, self._marked, self._ended = clock, begun, marked, ended

    def begin(self) -> int:
        started = self._clock.begin()
        self._begun()
        return started

    def mark(self, segment: int) -> None:
        self._clock.mark(segment)
        self._marked(segment)

    def end(self) -> tuple[int, list[int]]:
        found = self._clock.end()
        self._ended()
        return found


def marking(clock: UnitClock, segments: int) -> ToldClock:
    """Wrap the clock so that its marks are also written into torch's profile, as empty ranges."""
    names = [mark_name(segment) for segment in range(segments)]
    return ToldClock(clock, lambda: _stamp(BEGIN), lambda segment: _stamp(names[segment]), lambda: _stamp(END))


def nvtx(clock: UnitClock, names: Sequence[str]) -> ToldClock:
    """Wrap the clock so that the time between marks is shown as NVTX ranges, named in the order of a unit's marks."""
    left = iter(names)

    def begun() -> None:
        nonlocal left
        left = iter(names)
        torch.cuda.nvtx.range_push("unit")
        torch.cuda.nvtx.range_push(next(left, UNNAMED))

    def marked(_segment: int) -> None:
        torch.cuda.nvtx.range_pop()
        torch.cuda.nvtx.range_push(next(left, UNNAMED))

    def ended() -> None:
        torch.cuda.nvtx.range_pop()
        torch.cuda.nvtx.range_pop()

    return ToldClock(clock, begun, marked, ended)


def _stamp(name: str) -> None:
    with record_function(name):
        pass
