"""What is particular to the device that is measured on: its context, its caches, and what it said of itself."""

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import psutil
import torch

from bakeoff.machine.gpus import nvml
from bakeoff.models.types import Scalar
from bakeoff.record.schema import Finding
from bakeoff.worker.checks import memory
from bakeoff.worker.subject import synchronise

_THERMAL = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
_POWER_CAP = 0x04


def context_bytes(device: str) -> int:
    """Start the device's runtime and say what it takes by itself."""
    if device == "cpu":
        return 0
    torch.cuda.init()
    torch.ones(1, device="cuda")
    synchronise(device)
    return memory.device_meter().used_bytes() - torch.cuda.memory_reserved()


def held_bytes(device: str) -> int:
    """What this process holds now on the host and, by torch's allocator and the device's own count, on the device."""
    if device == "cpu":
        return memory.used_bytes()
    free, total = torch.cuda.mem_get_info()
    return memory.used_bytes() + total - free


def cache_flush(device: str, weights_bytes: int) -> Callable[[], None] | None:
    """On CUDA, what empties the L2 for components whose weights fit it; None where nothing is flushed."""
    if device == "cpu":
        return None
    cache_bytes = torch.cuda.get_device_properties(0).L2_cache_size
    if weights_bytes > cache_bytes:
        return None
    buffer = torch.empty(4 * cache_bytes, dtype=torch.int8, device=device)

    def flush() -> None:
        buffer.zero_()

    return flush


@dataclass(frozen=True, slots=True)
class DeviceState:
    """What the device says of itself and of who uses it."""

    facts: Mapping[str, Scalar] = field(default_factory=dict)
    throttled: tuple[str, ...] = ()
    """Reasons that make a row unstable."""
    capped: bool = False
    """It is at its power cap."""
    strangers: tuple[int, ...] = ()
    """Processes of others that compute on it."""

    def alarms(self) -> list[Finding]:
        """What makes numbers useless that were taken meanwhile."""
        found = []
        if self.throttled:
            found.append(Finding("throttled", f"the GPU was throttled meanwhile: {', '.join(self.throttled)}"))
        if self.strangers:
            others = ", ".join(str(pid) for pid in self.strangers)
            found.append(Finding("gpu-shared", f"other processes computed on the GPU meanwhile: {others}"))
        return found


def device_state(device: str) -> DeviceState:
    """What NVML knows of the GPU that torch uses; nothing on a CPU."""
    if device == "cpu":
        return DeviceState()
    with nvml() as library:
        if library is None:
            return DeviceState()
        handle = library.nvmlDeviceGetHandleByUUID(memory.device_uuid())
        reasons = int(library.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
        found = [process.pid for process in library.nvmlDeviceGetComputeRunningProcesses(handle)]
        others = strangers(found, os.getpid(), _lab_of)
        facts: dict[str, Scalar] = {
            "sm_mhz": library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_SM),
            "memory_mhz": library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_MEM),
            "power_w": library.nvmlDeviceGetPowerUsage(handle) / 1000,
            "temperature_c": library.nvmlDeviceGetTemperature(handle, library.NVML_TEMPERATURE_GPU),
            "throttle_reasons": reasons,
            "processes": len(found),
        }
    throttled = tuple(name for bit, name in _THERMAL.items() if reasons & bit)
    return DeviceState(facts, throttled, bool(reasons & _POWER_CAP), others)


def strangers(found: Sequence[int], own: int, lab_of: Callable[[int], int]) -> tuple[int, ...]:
    """Of the processes on a GPU those that another one started than this process's lab.

    Workers of one comparison share a lab. A container may hide whose numbers these are: where `own` is not among them
    nobody is accused.
    """
    if own not in found:
        return ()
    lab = lab_of(own)
    return tuple(pid for pid in found if pid != own and lab_of(pid) != lab)


def _lab_of(pid: int) -> int:
    """The process that started a worker's guard; 0 for one that is gone or has none."""
    with contextlib.suppress(psutil.Error):
        parents = psutil.Process(pid).parents()
        return parents[1].pid if len(parents) > 1 else 0
    return 0
