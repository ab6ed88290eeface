"""Peak memory of a mix over its units, with all components in place."""

import torch

from bakeoff.record.pipeline import PipelineMemory
from bakeoff.worker.checks import memory
from bakeoff.worker.helpers import helper_peak_bytes, reset_helper_peaks


class MemoryMeter:
    """Meters from when it is made. What malloc kept from the builds is returned to the kernel first."""

    def __init__(self, device: str) -> None:
        self._device = device
        memory.trim_heap()
        if device == "cuda":
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        memory.reset_host_peak()
        reset_helper_peaks()

    def read(self, weights_bytes: int, state_bytes: int) -> PipelineMemory:
        """The peaks so far; on the host with those of processes that backends started. What the device reports is its
        level now, as in a sweep's row."""
        host_peak = memory.host_peak_bytes() + helper_peak_bytes()
        if self._device == "cpu":
            return PipelineMemory(host_peak, None, None, weights_bytes, state_bytes)
        torch.cuda.synchronize()
        device_peak, allocated = memory.device_meter().used_bytes(), torch.cuda.max_memory_allocated()
        return PipelineMemory(host_peak, device_peak, allocated, weights_bytes, state_bytes)
