"""Measures the CPU time that this process, its descendants and all other processes use within a block of code."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from bakeoff.machine import cgroups
from bakeoff.machine.processes import driver_cpu_s, helper_cpu_s, used_cpu_s
from bakeoff.models.types import Scalar


@dataclass(frozen=True, slots=True)
class CpuUsage:
    """CPU usage over an interval."""

    other_share: float = 0.0
    """Share of the CPUs of this process's affinity mask that other processes and the hypervisor used, 0 to 1."""
    own_cores: float = 0.0
    """Mean number of cores that this process and the processes that it started kept busy."""
    helper_cores: float = 0.0
    """Mean number of cores that the started processes alone kept busy."""
    waited_share: float | None = None
    """Share of the time in which a task of this process's control group waited for a CPU; None if unknown."""
    contention: float = 0.0
    """`other_share`, or `waited_share` if the control group's CPU quota is smaller than its affinity mask, as in
    containers on shared nodes. There other processes use these CPUs by design, and take something only when this
    process waits."""
    driver_s: float | None = None
    """CPU seconds of the process that drives a sweep on several machines, part of `other_share`; None if it runs on
    another one."""

    def facts(self) -> dict[str, Scalar]:
        """Return the figures as a record stores them with the state of the device."""
        found: dict[str, Scalar] = {
            "other_cpu_share": round(self.other_share, 4),
            "cores_busy": round(self.own_cores, 3),
            "helper_cores": round(self.helper_cores, 3),
        }
        if self.waited_share is not None:
            found["cpu_pressure"] = round(self.waited_share, 4)
        if self.driver_s is not None:
            found["driver_cpu_s"] = round(self.driver_s, 3)
        return found


@contextmanager
def measure_cpu_usage() -> Iterator[Callable[[], CpuUsage]]:
    """Yield a function that returns the CPU usage within the block, once the block has ended."""
    meter = CpuMeter()
    with meter.interval():
        yield meter.usage


class _CpuTimes(NamedTuple):
    """Readings of several clocks, in seconds; None for a clock that the system does not have."""

    wall_s: float
    all_s: float
    """CPU time of all processes on the CPUs of the affinity mask."""
    own_s: float
    helpers_s: float
    waited_s: float | None
    driver_s: float | None


class CpuMeter:
    """Adds up the CPU usage of several intervals, such as the units of a loop that takes turns with another one."""

    def __init__(self) -> None:
        self._cpus = os.sched_getaffinity(0)
        self._spent = _CpuTimes(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)

    @contextmanager
    def interval(self) -> Iterator[None]:
        before = _read(self._cpus)
        yield
        entries: Any = zip(self._spent, before, _read(self._cpus), strict=True)
        added: Any = (None if None in entry else entry[0] + max(0.0, entry[2] - entry[1]) for entry in entries)
        self._spent = _CpuTimes(*added)

    def usage(self) -> CpuUsage:
        """Return the usage over all intervals so far; zeros if there was none."""
        spent, cpus = self._spent, len(self._cpus)
        if not spent.wall_s:
            return CpuUsage()
        own_s = spent.own_s + spent.helpers_s
        other_share = max(0.0, spent.all_s - own_s) / (spent.wall_s * cpus)
        waited_share = None if spent.waited_s is None else min(1.0, spent.waited_s / spent.wall_s)
        quota = cgroups.cpu_quota()
        shares_cpus = quota is not None and quota < cpus
        contention = waited_share if shares_cpus and waited_share is not None else other_share
        helper_cores = spent.helpers_s / spent.wall_s
        return CpuUsage(other_share, own_s / spent.wall_s, helper_cores, waited_share, contention, spent.driver_s)


def _read(cpus: set[int]) -> _CpuTimes:
    waited_us = cgroups.cpu_wait_us()
    waited_s = None if waited_us is None else waited_us / 1e6
    times = used_cpu_s(cpus), time.process_time(), helper_cpu_s()
    return _CpuTimes(time.monotonic(), *times, waited_s, driver_cpu_s())
