"""The measured device: memory of its runtime, and flushing of its caches."""

from collections.abc import Callable

import torch

from bakeoff.machine import host
from bakeoff.machine.gpus import read_memory
from bakeoff.models.component import Workload
from bakeoff.worker.checks import memory
from bakeoff.worker.subject import synchronise

_MANY = 16
_LEAST_WEIGHT_BYTES = 1
"""Of a weight in int8 or fp8: the smallest that rows of a sweep usually store."""


def context_bytes(device: str) -> int:
    """Start the device's runtime and return the device memory that its context takes; 0 on a CPU.

    Where NVML does not list this process, it is what the whole GPU has in use more than before.
    """
    if device == "cpu":
        return 0
    uuid = next((str(gpu["uuid"]) for gpu in host.read_host().gpus), "")
    before = read_memory(uuid)
    torch.cuda.init()
    torch.ones(1, device="cuda")
    synchronise(device)
    meter, after = memory.device_meter(), read_memory(uuid)
    if meter.of_process or before is None or after is None:
        return meter.used_bytes() - torch.cuda.memory_reserved()
    return after.used - before.used - torch.cuda.memory_reserved()


def held_bytes(device: str) -> int:
    """Bytes in use now: by this process on the host, and on CUDA also by any process on the device."""
    if device == "cpu":
        return memory.used_bytes()
    free, total = torch.cuda.mem_get_info()
    return memory.used_bytes() + total - free


def cache_flush(device: str, workload: Workload) -> Callable[[], None] | None:
    """A function that empties the L2 cache of a GPU; None on a CPU, or where the weights are many times the L2's size.

    Of weights somewhat larger than the L2 a part is still there from the call before, so that a call may take less than
    its floor by traffic. Of sixteen times its size that is 6 % at most; copies reach about 90 % of the bandwidth. It is
    decided by the weights that a call reads, in the fewest bytes, so that all rows of a workload are timed alike.
    """
    if device == "cpu":
        return None
    cache_bytes = torch.cuda.get_device_properties(0).L2_cache_size
    if workload.work.weight_elements * _LEAST_WEIGHT_BYTES > _MANY * cache_bytes:
        return None
    buffer = torch.empty(4 * cache_bytes, dtype=torch.int8, device=device)

    def flush() -> None:
        buffer.zero_()

    return flush
