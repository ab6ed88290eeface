"""Measures this process's memory on the host and the device, in bytes: in use, kept by calls, and at its peak."""

import ctypes
import gc
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

import torch
from torch import Tensor, nn

from bakeoff.machine.gpus import open_gpu
from bakeoff.machine.processes import (
    children_peak_bytes,
    helper_peak_bytes,
    memory_file_bytes,
    peak_bytes,
    reset_peaks,
    resident_bytes,
)
from bakeoff.record.schema import Memory

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_MMAP_BYTES = 65536
_METERED_ROUNDS = 2
_METERED_S = 0.5
"""Least time of the metered calls on a GPU, whose memory the parent polls a hundred times a second."""


class _Mallinfo2(ctypes.Structure):
    """Structure that mallinfo2(3) returns."""

    _fields_ = (("before", ctypes.c_size_t * 8), ("fordblks", ctypes.c_size_t), ("keepcost", ctypes.c_size_t))


def used_bytes() -> int:
    """Return the resident size minus malloc's free blocks; before glibc 2.33 the resident size alone.

    A leak fills free blocks first, while the resident size stays the same. Free blocks that are not resident are
    subtracted too, so only differences between two readings are meaningful.
    """
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):  # glibc 2.33
        return resident_bytes()
    libc.mallinfo2.restype = _Mallinfo2
    return resident_bytes() - int(libc.mallinfo2().fordblks)


def trim_heap() -> None:
    """Return malloc's free memory to the kernel once (malloc_trim(3)), without changing malloc's policy."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)


def return_freed_memory() -> None:
    """Make glibc return freed memory to the kernel at once from now on. This slows calls: use it only after timing."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_TRIM_THRESHOLD, 0)
        libc.mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)
        trim_heap()


def kept_bytes(round_of_calls: Callable[[], object], rounds: int, device: str) -> int:
    """Return the bytes that `rounds` rounds of calls leave allocated on the host and the device.

    From here on freed memory is returned to the kernel, which makes calls slower, so use this only after timing. The
    allocators' caches are emptied before each reading, because caches grow with calls too but are not a leak.
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


def device_bytes() -> tuple[int, bool]:
    """Return the device memory in use, and whether it is that of this process alone, according to NVML.

    If NVML does not list the process, as in many containers, the memory in use is that of the whole GPU (mem_get_info).
    """
    with open_gpu(device_uuid()) as gpu:
        own = None if gpu is None else (gpu.processes() or {}).get(os.getpid())
    if own:
        return own, True
    free, total = torch.cuda.mem_get_info()
    return total - free, False


def device_uuid() -> str:
    """Return the identifier of the GPU that torch uses, without NVML's prefix; independent of CUDA_VISIBLE_DEVICES."""
    return str(torch.cuda.get_device_properties(0).uuid)


def stored_bytes(module: nn.Module) -> int:
    """Return the bytes of a module's parameters and buffers as stored; quantised weights count integers and scales."""
    return sum(_stored(tensor) for tensor in (*module.parameters(), *module.buffers()))


def _stored(tensor: Tensor) -> int:
    parts = getattr(tensor, "__tensor_flatten__", None)  # of a subclass that wraps other tensors
    if parts is None:
        return tensor.nbytes
    return sum(_stored(getattr(tensor, name)) for name in parts()[0])


def tensors_bytes(tensors: Iterable[Tensor]) -> int:
    """Return the sum of the tensors' sizes in bytes."""
    return sum(tensor.nbytes for tensor in tensors)


def start_metering(device: str) -> None:
    """Reset the peaks of host and device memory after returning what malloc and torch kept from the build."""
    trim_heap()
    if device != "cpu":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    reset_peaks()


def meter(
    round_of_calls: Callable[[], object], device: str, weights_bytes: int, io_bytes: int, context_bytes: int
) -> Memory:
    """Measure peak memory over two or more rounds of calls, in a separate pass in which nothing is timed.

    malloc keeps freed memory, as in the timed window. `context_bytes` is what `device_bytes` returned when only the
    runtime's context existed.
    """
    start_metering(device)
    before, helpers, rounds, started = resident_bytes(), helper_peak_bytes(), 0, time.monotonic()
    ended, files = children_peak_bytes(), 0
    while rounds < _METERED_ROUNDS or (device != "cpu" and time.monotonic() - started < _METERED_S):
        round_of_calls()
        rounds += 1
        helpers = max(helpers, helper_peak_bytes())
        files = max(files, memory_file_bytes())
    peak, largest = peak_bytes(), children_peak_bytes()
    host = Memory(
        weights_bytes,
        io_bytes,
        host_peak_bytes=peak + helpers,
        allocator="kept",
        helpers_peak_bytes=helpers,
        unseen_bytes=files + (largest if largest > ended else 0),
    )
    if device == "cpu":
        return replace(host, host_call_bytes=peak - before)
    torch.cuda.synchronize()
    (device_peak, of_process), reserved = device_bytes(), torch.cuda.max_memory_reserved()
    return replace(
        host,
        allocated_peak_bytes=torch.cuda.max_memory_allocated(),
        reserved_peak_bytes=reserved,
        device_peak_bytes=device_peak,
        device_meter=f"level after the calls, of {'this process' if of_process else 'the whole GPU'}",
        unexplained_bytes=device_peak - reserved - context_bytes,
        context_bytes=context_bytes,
    )
