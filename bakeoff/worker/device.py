"""The measured device: memory of its runtime, flushing of its caches, clocks, power and other users."""

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import psutil
import torch

from bakeoff.machine.gpus import nvml
from bakeoff.models.types import Scalar
from bakeoff.process import guard
from bakeoff.record.schema import Finding, new_finding
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
    """Start the device's runtime and return the device memory that its context takes; 0 on a CPU."""
    if device == "cpu":
        return 0
    torch.cuda.init()
    torch.ones(1, device="cuda")
    synchronise(device)
    return memory.device_meter().used_bytes() - torch.cuda.memory_reserved()


def held_bytes(device: str) -> int:
    """Bytes in use now: by this process on the host, and on CUDA also by any process on the device."""
    if device == "cpu":
        return memory.used_bytes()
    free, total = torch.cuda.mem_get_info()
    return memory.used_bytes() + total - free


def cache_flush(device: str, weights_bytes: int) -> Callable[[], None] | None:
    """A function that empties the L2 cache of a GPU; None on a CPU, or where the weights are larger than the L2."""
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
    """What NVML reports of the device and of the processes on it."""

    facts: Mapping[str, Scalar] = field(default_factory=dict)
    throttled: tuple[str, ...] = ()
    """Throttle reasons that make a row unstable."""
    capped: bool = False
    """It is at its power cap."""
    other_processes: tuple[int, ...] = ()
    """Ids of processes on it that another parent started."""

    def alarms(self) -> list[Finding]:
        """Findings that make the numbers measured in this state unfit to be ranked."""
        found = []
        if self.throttled:
            found.append(new_finding("throttled", f"the GPU was throttled: {', '.join(self.throttled)}"))
        if self.other_processes:
            others = ", ".join(str(pid) for pid in self.other_processes)
            found.append(new_finding("gpu-shared", f"other processes used the GPU: {others}"))
        return found


def device_state(device: str) -> DeviceState:
    """The present state of the GPU that torch uses; empty on a CPU, or where NVML is missing."""
    if device == "cpu":
        return DeviceState()
    with nvml() as library:
        if library is None:
            return DeviceState()
        handle = library.nvmlDeviceGetHandleByUUID(memory.device_uuid())
        reasons = int(library.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
        found = [process.pid for process in library.nvmlDeviceGetComputeRunningProcesses(handle)]
        helpers = set(guard.descendants(os.getpid()))
        others = foreign_processes([pid for pid in found if pid not in helpers], os.getpid(), _parent_of_worker)
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


def foreign_processes(found: Sequence[int], own: int, parent_of: Callable[[int], int]) -> tuple[int, ...]:
    """Those processes on a GPU that another parent started than the one that started process `own`.

    Both workers of a comparison have one parent. A container may list ids of another namespace: where `own` is not
    among `found`, nothing is known and the result is empty.
    """
    if own not in found:
        return ()
    parent = parent_of(own)
    return tuple(pid for pid in found if pid != own and parent_of(pid) != parent)


def _parent_of_worker(pid: int) -> int:
    """The process that started a worker's guard; 0 for a process that has ended or has no grandparent."""
    with contextlib.suppress(psutil.Error):
        parents = psutil.Process(pid).parents()
        return parents[1].pid if len(parents) > 1 else 0
    return 0
