"""CPU time that this process and all others used within a block of code."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil


@dataclass(frozen=True, slots=True)
class CpuUsage:
    """CPU usage over an interval."""

    other_share: float = 0.0
    """Share of all logical CPUs that other processes and the hypervisor used, 0 to 1."""
    own_cores: float = 0.0
    """Cores that this process kept busy."""


@contextmanager
def measure_cpu_usage() -> Iterator[Callable[[], CpuUsage]]:
    """Yields a function that returns the usage within the block, once the block has ended."""
    usage = CpuUsage()
    system, own, started = psutil.cpu_times(), time.process_time(), time.monotonic()
    yield lambda: usage
    wall = time.monotonic() - started
    later = psutil.cpu_times()
    busy = sum(
        getattr(later, name) - getattr(system, name)
        for name in ("user", "nice", "system", "irq", "softirq", "steal")
        if hasattr(later, name)
    )
    mine = time.process_time() - own
    usage = CpuUsage(max(0.0, busy - mine) / (wall * (psutil.cpu_count() or 1)), mine / wall)
