"""Times of ranges on a CUDA device: an event at each border, read after the unit without waiting for the device."""

from collections import deque
from importlib import import_module
from threading import RLock
from typing import Any

from bakeoff.profile.plain import error_text
from bakeoff.profile.stages import Stage

MOST_PENDING = 20_000
"""Ranges whose events the device has not reached yet; further ones are not timed."""
_READ_FROM = 1_000
"""Ranges waiting from which events are read within a unit too."""


class DeviceClock:
    """Events on the current stream of one device. Its methods never raise: an error of CUDA stops it."""

    def __init__(self, device: str) -> None:
        """`device` as in `cuda` or `cuda:1`. Imports torch. Raises what torch raises where there is no such device."""
        self._torch: Any = import_module("torch")
        self._device = self._torch.device(device)
        self._torch.cuda.current_stream(self._device)
        self._pool: deque[Any] = deque()
        self._pending: deque[tuple[Stage, Any, Any]] = deque()
        self._reading = RLock()  # a signal handler of the thread that reads may end a session
        self.unread = 0
        """Ranges without a device time."""
        self.error = ""
        """What stopped it."""

    def uuid(self) -> str:
        """The device's UUID as NVML writes it; "" where torch does not tell."""
        try:
            return f"GPU-{self._torch.cuda.get_device_properties(self._device).uuid}"
        except Exception:  # noqa: BLE001  # torch before 2.4 has none; CUDA's errors come as several types
            return ""

    def mark(self) -> Any:
        """An event recorded now; None while a CUDA graph is captured, and after an error."""
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
        """A range that lies between two events."""
        if begin is None or end is None or len(self._pending) >= MOST_PENDING:
            self.unread += 1
            return
        self._pending.append((stage, begin, end))
        if len(self._pending) >= _READ_FROM:
            self.read()

    def read(self, wait: bool = False) -> None:
        """Add up the times of ranges that the device has passed; with `wait`, of all, once it has reached them.

        Without `wait` nothing is read while another thread reads, nor while this one captures a CUDA graph, in which
        the query of an event that was recorded before ends the capture (pytorch#104487).
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
