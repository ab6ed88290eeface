"""What is particular to the device that is measured on: its context, its caches, and what it said of itself."""

from collections.abc import Callable

import torch

from bakeoff.host import nvml
from bakeoff.record import Scalar
from bakeoff.worker import memory
from bakeoff.worker.bench import synchronise

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


def device_state(device: str) -> tuple[dict[str, Scalar], list[str], bool]:
    """What the device says now, the throttle reasons that make a row unstable, and whether it is at its power cap."""
    if device == "cpu":
        return {}, [], False
    with nvml() as library:
        if library is None:
            return {}, [], False
        handle = library.nvmlDeviceGetHandleByUUID(memory.device_uuid())
        reasons = int(library.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
        state: dict[str, Scalar] = {
            "sm_mhz": library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_SM),
            "memory_mhz": library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_MEM),
            "power_w": library.nvmlDeviceGetPowerUsage(handle) / 1000,
            "temperature_c": library.nvmlDeviceGetTemperature(handle, library.NVML_TEMPERATURE_GPU),
            "throttle_reasons": reasons,
        }
    return state, [name for bit, name in _THERMAL.items() if reasons & bit], bool(reasons & _POWER_CAP)
