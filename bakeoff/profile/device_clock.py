"""Times of ranges on a CUDA device: an event at each border, read after the unit without waiting for the device."""

from collections import deque
from importlib import import_module
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
        """Add up the times of ranges that the device has passed; with `wait`, of all, once it has reached them."""
        try:
            while self._pending and not self.error:
                stage, begin, end = self._pending[0]
                if wait:
                    end.synchronize()
                elif not end.query():
                    return
                self._pending.popleft()
                stage.device_ns = (stage.device_ns or 0) + round(begin.elapsed_time(end) * 1e6)
                self._pool += (begin, end)
        except IndexError:  # another thread took the last one
            return
        except Exception as error:  # noqa: BLE001  # as above
            self.error = error_text(error)
        if self.error:
            self.unread += len(self._pending)
            self._pending.clear()
