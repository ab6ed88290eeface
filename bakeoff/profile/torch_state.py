"""State of the torch that a pipeline has imported: whether it profiles, how much it has compiled, and device times.

Times of ranges on a CUDA device are taken by an event at each end, which is read after the unit without waiting for the
device. Only making a DeviceClock imports torch; every function reads the loaded modules, in well below a microsecond.
"""

import sys
from collections import deque
from contextlib import ExitStack
from importlib import import_module
from threading import RLock
from typing import Any

from bakeoff.profile.plain import error_text
from bakeoff.profile.stages import Stage

_MODULES = sys.modules
MOST_PENDING = 20_000
"""Largest number of ranges whose events the device has not reached yet; further ones are not timed."""
_READ_FROM = 1_000
"""Number of waiting ranges from which on events are also read within a unit."""


def compiled() -> int:
    """Return a count that grows whenever torch.compile compiles in this process; 0 if it was never used.

    It adds up frames that torch tried and graphs that it made, because with `fullgraph=True` it counts no frames.
    """
    utils = _MODULES.get("torch._dynamo.utils")
    counters: Any = getattr(utils, "counters", None)
    if not counters:
        return 0
    frames, stats = counters.get("frames"), counters.get("stats")
    return (frames.get("total", 0) if frames else 0) + (stats.get("unique_graphs", 0) if stats else 0)


def is_profiling() -> bool:
    """Return whether a torch profiler records.

    Only then is a `record_function` entered, because in compiled code one costs as much as a small program
    (https://github.com/pytorch/pytorch/issues/163747).
    """
    profiler = _MODULES.get("torch.autograd.profiler")
    return profiler is not None and getattr(profiler, "_is_profiler_enabled", False) is True


def annotate(name: str) -> ExitStack:
    """Open a range in the torch profiler that records; closing the result ends it. Raises whatever torch raises."""
    opened = ExitStack()
    opened.enter_context(_MODULES["torch.autograd.profiler"].record_function(name))
    return opened


class DeviceClock:
    """Times ranges by events on the current stream of one CUDA device.

    Methods never raise: an error stops the clock.
    """

    def __init__(self, device: str) -> None:
        """`device` is `cuda` or `cuda:N`. Imports torch. Raises what torch raises if there is no such device."""
        self._torch: Any = import_module("torch")
        self._device = self._torch.device(device)
        self._torch.cuda.current_stream(self._device)
        self._pool: deque[Any] = deque()
        self._pending: deque[tuple[Stage, Any, Any]] = deque()
        self._reading = RLock()  # a signal handler of the thread that reads may end a session
        self.unread = 0
        """Number of ranges without a device time."""
        self.error = ""
        """Error of CUDA that stopped the clock; "" if there is none."""

    def uuid(self) -> str:
        """Return the device's UUID as NVML writes it; "" if torch does not know it."""
        try:
            return f"GPU-{self._torch.cuda.get_device_properties(self._device).uuid}"
        except Exception:  # noqa: BLE001  # torch before 2.4 has none; CUDA's errors come as several types
            return ""

    def mark(self) -> Any:
        """Record an event now and return it; None while a CUDA graph is captured, and after an error."""
        if self.error:
            return None
        try:
            cuda = self._torch.cuda
            if cuda.is_current_stream_capturing():
                return None
            try:
                event = self._pool.pop()
            except IndexError:
                event = cuda.Event(enable_timing=True)
            event.record(cuda.current_stream(self._device))
        except Exception as error:  # noqa: BLE001  # errors of CUDA come as several types
            self.error = error_text(error)
            return None
        return event

    def took(self, stage: Stage, begin: Any, end: Any) -> None:
        """Add the time between two events to `stage` once the device has passed them.

        Without both, the range has no time.
        """
        if begin is None or end is None or len(self._pending) >= MOST_PENDING:
            self.unread += 1
            return
        self._pending.append((stage, begin, end))
        if len(self._pending) >= _READ_FROM:
            self.read()

    def read(self, wait: bool = False) -> None:
        """Add up the times of ranges that the device has passed; with `wait`, wait for all of them.

        Without `wait`, nothing is read while another thread reads, nor while this one captures a CUDA graph, in which a
        query of an event that was recorded before ends the capture (pytorch#104487).
        """
        if not self._reading.acquire(blocking=wait):
            return
        try:
            if wait or not self._captures():
                self._read(wait)
        finally:
            self._reading.release()

    def _captures(self) -> bool:
        try:
            return bool(self._torch.cuda.is_current_stream_capturing())
        except Exception as error:  # noqa: BLE001  # errors of CUDA come as several types
            self.error = error_text(error)
            return True

    def _read(self, wait: bool) -> None:
        while not self.error:
            try:
                stage, begin, end = self._pending.popleft()
            except IndexError:
                return
            try:
                if wait:
                    end.synchronize()
                elif not end.query():
                    self._pending.appendleft((stage, begin, end))
                    return
                stage.device_ns = (stage.device_ns or 0) + round(begin.elapsed_time(end) * 1e6)
            except Exception as error:  # noqa: BLE001  # errors of CUDA come as several types
                self.error = error_text(error)
                self.unread += 1
            else:
                self._pool += (begin, end)
        self.unread += len(self._pending)
        self._pending.clear()
