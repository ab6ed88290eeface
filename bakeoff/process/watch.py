"""Watches a worker from the parent: its peak GPU memory, and a monitor if one is requested.

Memory that a library takes and gives back within a call (workspaces of TensorRT and cuDNN, ONNX Runtime's arenas) is in
no figure that torch knows, and not in one that is read after the call.
"""

import contextlib
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from bakeoff.machine.gpus import Gpu, open_gpu
from bakeoff.machine.processes import descendants
from bakeoff.monitor.client import Monitor
from bakeoff.monitor.request import MonitorRequest
from bakeoff.process.environment import without_folders
from bakeoff.record.finding import Finding, new_finding
from bakeoff.record.monitor import Monitored

GPU_INTERVAL_S, CPU_INTERVAL_S = 0.5, 1.0
POINTS = 240
"""Largest number of points of a series: records stay below 200 KB, and two minutes keep every sample."""


@dataclass(frozen=True, slots=True)
class Watched:
    """Part of a monitor's report that a record keeps."""

    monitored: Monitored | None = None
    window_ns: tuple[int, int] | None = None
    """Start and end of the timed phases, on the time axis of the series; None if no timed phase was entered."""
    findings: tuple[Finding, ...] = ()


NOT_WATCHED = Watched()
POLLED_S: Mapping[str, float] = {"build": 0.1, "memory": 0.01, "loop check": 0.01}
"""Seconds between polls in the phases whose peaks are wanted. No call is timed in these phases, but a compiler times
kernels while it builds, and each poll takes locks of the driver."""
OF_PROCESS, OF_DEVICE = "of the row's processes", "of the whole GPU, less what was used before"
_PIDS_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class GpuPeaks:
    """Peak bytes by phase, and whose memory they count."""

    bytes_of: Mapping[str, int]
    meter: str
    """`OF_PROCESS`, or `OF_DEVICE` if a container hides the ids of processes from NVML; other users of the GPU then
    count too."""


class GpuMeter:
    """Polls one GPU for the memory of a process's descendants."""

    def __init__(self, gpu: Gpu | None) -> None:
        """Meter `gpu`; None meters nothing."""
        self._gpu = gpu
        self._before = None if gpu is None else gpu.memory()
        self._of_process: dict[str, int] = {}
        self._of_device: dict[str, int] = {}
        self._pids: frozenset[int] = frozenset()
        self._listed_s = self._polled_s = 0.0

    def pause_s(self, phase: str) -> float:
        """Return the seconds until `poll` is due in this phase; infinite if nothing is metered."""
        if self._gpu is None or phase not in POLLED_S:
            return inf
        return max(0.0, self._polled_s + POLLED_S[phase] - time.monotonic())

    def poll(self, phase: str, ancestor: int) -> None:
        """Read the GPU memory of `ancestor`'s descendants once."""
        assert self._gpu is not None
        now = self._polled_s = time.monotonic()
        if now - self._listed_s > _PIDS_EVERY_S or not self._pids:
            self._pids, self._listed_s = frozenset(process.pid for process in descendants(ancestor)), now
        found, memory = self._gpu.processes() or {}, self._gpu.memory()
        used = [size for pid, size in found.items() if size is not None and pid in self._pids]
        if used:
            self._of_process[phase] = max(sum(used), self._of_process.get(phase, 0))
        if memory is not None and self._before is not None:
            self._of_device[phase] = max(memory.used - self._before.used, self._of_device.get(phase, 0))

    def peaks(self) -> GpuPeaks | None:
        """Return the peaks so far; None if NVML reported none."""
        if self._of_process:
            return GpuPeaks(dict(self._of_process), OF_PROCESS)
        return GpuPeaks(dict(self._of_device), OF_DEVICE) if self._of_device else None


def start_monitor(guard: int, gpu: str) -> Monitor:
    """Start a monitor of the processes below a guard, and of the GPU with this UUID; "" for no GPU.

    This does not wait for the monitor: phases that the worker announces meanwhile would be noted late.
    """
    return Monitor.start(
        MonitorRequest(
            pid=guard,
            devices=(gpu,) if gpu else (),
            gpu=("memory", "busy", "temperature", "power", "clocks", "throttle") if gpu else (),
            cpu=("process", "memory", "load"),
            gpu_interval_s=GPU_INTERVAL_S,
            cpu_interval_s=CPU_INTERVAL_S,
            points=POINTS,
        ),
        ready_s=0.0,
    )


def stop_monitor(monitor: Monitor, timeline: Sequence[tuple[str, float]], timed: Collection[str]) -> Watched:
    """Stop the monitor of a worker that has ended, and return its recording.

    `timeline` has each phase and when it began, `timed` names the phases in which samples were taken. Times of the
    recording count from the start of the first phase.
    """
    began_s = timeline[0][1]
    seen = monitor.stop(round(began_s * 1e9))
    seen = replace(seen, missing=tuple(map(without_folders, seen.missing)))
    at_s = [index for index, (phase, _) in enumerate(timeline) if phase in timed]
    window = (timeline[at_s[0]][1], timeline[at_s[-1] + 1][1]) if at_s else None
    why = "" if seen.series else "; ".join(seen.missing) or "the monitor took no sample"
    return Watched(
        seen,
        (round((window[0] - began_s) * 1e9), round((window[1] - began_s) * 1e9)) if window else None,
        (new_finding("not-monitored", f"a monitor was asked for and saw nothing: {why}"),) if why else (),
    )


@contextlib.contextmanager
def metering(uuid: str) -> Iterator[GpuMeter]:
    """Yield a meter of the GPU with this UUID; it meters nothing for "", or if NVML does not know the GPU."""
    with open_gpu(uuid) if uuid else contextlib.nullcontext() as gpu:
        yield GpuMeter(gpu)
