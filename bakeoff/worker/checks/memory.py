"""Memory of this process on the host and the device, in bytes."""

import ctypes
import gc
import os
import resource
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bakeoff.machine.gpus import ask, find_gpu, nvml
from bakeoff.record.schema import Memory
from bakeoff.worker.helpers import helper_peak_bytes, reset_helper_peaks

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_MMAP_BYTES = 65536
_METERED_ROUNDS = 2
_METERED_S = 0.5
"""Least time of the metered calls on a GPU, whose memory the parent polls a hundred times a second."""


def _status_bytes(key: str) -> int:
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith(key):
                return int(line.split()[1]) * 1024
    raise KeyError(key)


def resident_bytes() -> int:
    """The resident size of this process (proc(5), VmRSS)."""
    return _status_bytes("VmRSS:")


class _Mallinfo2(ctypes.Structure):
    """mallinfo2(3)."""

    _fields_ = (("before", ctypes.c_size_t * 8), ("fordblks", ctypes.c_size_t), ("keepcost", ctypes.c_size_t))


def used_bytes() -> int:
    """The resident size less what malloc holds free: a leak fills free blocks first, and the resident size stays.

    Free blocks that are not resident are subtracted too, so only differences of two readings are meaningful.
    """
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):  # glibc 2.33
        return resident_bytes()
    libc.mallinfo2.restype = _Mallinfo2
    return resident_bytes() - int(libc.mallinfo2().fordblks)


def reset_host_peak() -> None:
    """Start a new high-water mark of the resident size (proc(5), clear_refs)."""
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


def host_peak_bytes() -> int:
    """The largest resident size since `reset_host_peak` (proc(5), VmHWM)."""
    return _status_bytes("VmHWM:")


def children_peak_bytes() -> int:
    """Upper bound of the peak resident size of a compiler process that has ended (getrusage(2), RUSAGE_CHILDREN).

    An upper bound, because a child's figure also counts this process's resident size at the time of the fork.
    """
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


def trim_heap() -> None:
    """Return what malloc holds free to the kernel, once (malloc_trim(3)); its policy stays."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)


def return_freed_memory() -> None:
    """Make glibc return freed memory to the kernel at once from now on; it slows calls, so call it after timing."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_TRIM_THRESHOLD, 0)
        libc.mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)
        trim_heap()


def kept_bytes(round_of_calls: Callable[[], object], rounds: int, device: str) -> int:
    """Bytes that `rounds` rounds of calls leave allocated on the host and the device.

    Freed memory is returned to the kernel from here on, which makes calls slower: call it after timing. The allocators
    return their caches before each reading: these grow with calls too, but are not a leak.
    """

    def held() -> int:
        gc.collect()
        trim_heap()
        if device == "cpu":
            return resident_bytes()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info()
        return resident_bytes() + total - free

    return_freed_memory()
    round_of_calls()
    before = held()
    for _ in range(rounds):
        round_of_calls()
    return held() - before


@dataclass(frozen=True, slots=True)
class DeviceMeter:
    """Reads device memory in use: of this process by NVML, or of the whole GPU by mem_get_info."""

    of_process: bool
    used_bytes: Callable[[], int]


def device_meter() -> DeviceMeter:
    """NVML's figure for this process; mem_get_info where NVML does not list it, as in many containers."""
    if _nvml_process_bytes() is not None:
        return DeviceMeter(True, lambda: _nvml_process_bytes() or 0)

    def used() -> int:
        free, total = torch.cuda.mem_get_info()
        return total - free

    return DeviceMeter(False, used)


def _nvml_process_bytes() -> int | None:
    with nvml() as library:
        if library is None:
            return None
        handle = find_gpu(library, device_uuid())
        for process in ask(library, "nvmlDeviceGetComputeRunningProcesses", handle) or ():
            if process.pid == os.getpid() and process.usedGpuMemory:
                return int(process.usedGpuMemory)
    return None


def device_uuid() -> str:
    """The identifier of the GPU that torch uses, without NVML's prefix; independent of CUDA_VISIBLE_DEVICES."""
    return str(torch.cuda.get_device_properties(0).uuid)


def stored_bytes(module: nn.Module) -> int:
    """Bytes of a module's parameters and buffers as stored; for a quantised weight, of its integers and scales."""
    return sum(_stored(tensor) for tensor in (*module.parameters(), *module.buffers()))


def _stored(tensor: Tensor) -> int:
    parts = getattr(tensor, "__tensor_flatten__", None)  # of a subclass that wraps other tensors
    if parts is None:
        return tensor.numel() * tensor.element_size()
    return sum(_stored(getattr(tensor, name)) for name in parts()[0])


def tensors_bytes(tensors: Iterable[Tensor]) -> int:
    """Sum of the tensors' sizes."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def meter(
    round_of_calls: Callable[[], object], device: str, weights_bytes: int, io_bytes: int, context_bytes: int
) -> Memory:
    """Peak memory over two rounds of calls, in a pass of its own; nothing in it is timed.

    malloc keeps freed memory, as in the timed window, but what it kept from the build is returned to the kernel first.
    `context_bytes` is the device meter's figure when only the runtime's context existed.
    """
    trim_heap()
    if device == "cpu":
        return _meter_host(round_of_calls, weights_bytes, io_bytes)
    return _meter_cuda(round_of_calls, weights_bytes, io_bytes, context_bytes)


def _meter_host(round_of_calls: Callable[[], object], weights_bytes: int, io_bytes: int) -> Memory:
    before = resident_bytes()
    peak, helpers = _host_peaks(round_of_calls, 0.0)
    return Memory(
        weights_bytes,
        io_bytes,
        host_peak_bytes=peak + helpers,
        host_call_bytes=peak - before,
        allocator="kept",
        helpers_peak_bytes=helpers,
    )


def _host_peaks(round_of_calls: Callable[[], object], least_s: float) -> tuple[int, int]:
    """Peak resident size of this process over two rounds of calls, and more until `least_s` have passed, and that of
    the processes that it started."""
    reset_host_peak()
    reset_helper_peaks()
    helpers, rounds, started = helper_peak_bytes(), 0, time.monotonic()
    while rounds < _METERED_ROUNDS or time.monotonic() - started < least_s:
        round_of_calls()
        rounds += 1
        helpers = max(helpers, helper_peak_bytes())
    return host_peak_bytes(), helpers


def _meter_cuda(round_of_calls: Callable[[], object], weights_bytes: int, io_bytes: int, context_bytes: int) -> Memory:
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    used = device_meter()
    peak, helpers = _host_peaks(round_of_calls, _METERED_S)
    torch.cuda.synchronize()
    device_peak, reserved = used.used_bytes(), torch.cuda.max_memory_reserved()
    return Memory(
        weights_bytes,
        io_bytes,
        host_peak_bytes=peak + helpers,
        allocated_peak_bytes=torch.cuda.max_memory_allocated(),
        reserved_peak_bytes=reserved,
        device_peak_bytes=device_peak,
        device_meter=f"level after the calls, of {'this process' if used.of_process else 'the whole GPU'}",
        unexplained_bytes=device_peak - reserved - context_bytes,
        context_bytes=context_bytes,
        allocator="kept",
        helpers_peak_bytes=helpers,
    )
