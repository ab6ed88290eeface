"""Peak device memory of a worker, polled by its parent: the worker cannot look while a call or a build runs.

What a library takes and gives back within a call (workspaces of TensorRT and cuDNN, ONNX Runtime's arenas) is in no
figure that torch knows, and not in one that is read after the call.
"""

import contextlib
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import inf
from types import TracebackType
from typing import Any

from bakeoff.machine.gpus import ask, find_gpu, nvml
from bakeoff.process import guard

POLLED_S: Mapping[str, float] = {"build": 0.1, "memory": 0.01, "loop check": 0.01}
"""Seconds between polls in the phases whose peaks are wanted. No call is timed in them, but a compiler times kernels
while it builds, and each poll takes locks of the driver."""
OF_PROCESS, OF_DEVICE = "of the row's processes", "of the whole GPU, less what was used before"
_PIDS_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class GpuPeaks:
    """Peak bytes by phase, and whose memory they count."""

    bytes_of: Mapping[str, int]
    meter: str
    """`OF_PROCESS`, or `OF_DEVICE` where a container hides the ids of processes from NVML; then other users of the GPU
    count too."""


@dataclass(slots=True)
class GpuMeter:
    """Polls one GPU for the memory of a process's descendants. A context manager; without NVML it reads nothing."""

    uuid: str
    """Of the GPU; empty: nothing is metered."""
    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _library: Any = None
    _gpu: Any = None
    _before: int | None = None
    _of_process: dict[str, int] = field(default_factory=dict)
    _of_device: dict[str, int] = field(default_factory=dict)
    _pids: frozenset[int] = frozenset()
    _listed: float = 0.0
    _polled: float = 0.0

    def __enter__(self) -> "GpuMeter":
        library = self._stack.enter_context(nvml()) if self.uuid else None
        self._gpu = None if library is None else find_gpu(library, self.uuid)
        self._library = None if self._gpu is None else library
        self._before = self._used()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def pause_s(self, phase: str) -> float:
        """Seconds until `poll` is due in this phase; infinite where nothing is metered."""
        if self._library is None or phase not in POLLED_S:
            return inf
        return max(0.0, self._polled + POLLED_S[phase] - time.monotonic())

    def poll(self, phase: str, ancestor: int) -> None:
        """Read the memory of `ancestor`'s descendants once."""
        now = self._polled = time.monotonic()
        if now - self._listed > _PIDS_EVERY_S or not self._pids:
            self._pids, self._listed = frozenset(guard.descendants(ancestor)), now
        of_process = self._of(self._pids)
        if of_process is not None:
            self._of_process[phase] = max(of_process, self._of_process.get(phase, 0))
        used = self._used()
        if used is not None and self._before is not None:
            self._of_device[phase] = max(used - self._before, self._of_device.get(phase, 0))

    def peaks(self) -> GpuPeaks | None:
        """The peaks so far; None where NVML told nothing."""
        if self._of_process:
            return GpuPeaks(dict(self._of_process), OF_PROCESS)
        return GpuPeaks(dict(self._of_device), OF_DEVICE) if self._of_device else None

    def _used(self) -> int | None:
        memory = None if self._library is None else ask(self._library, "nvmlDeviceGetMemoryInfo", self._gpu)
        return None if memory is None else int(memory.used)

    def _of(self, pids: Collection[int]) -> int | None:
        """Bytes that these processes use; None where NVML lists none of them, or not their memory."""
        found = ask(self._library, "nvmlDeviceGetComputeRunningProcesses", self._gpu) or ()
        used = [process.usedGpuMemory for process in found if process.pid in pids]
        known = [int(value) for value in used if value is not None]
        return sum(known) if known else None
