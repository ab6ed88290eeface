"""The measured device: its runtime's memory, its caches, and what NVML tells of a GPU while calls are timed.

Counters are read at both ends of the timed window, everything else between its segments, when no call is timed. After
the window the GPU is idle and its clocks, power and throttle reasons are others.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import mean, median
from typing import Any

import psutil
import torch

from bakeoff.machine import host
from bakeoff.machine.gpus import POWER_CAP, SLOWDOWNS, ask, find_gpu, nvml, physical_gpu, read_memory
from bakeoff.models.types import Scalar
from bakeoff.process import guard
from bakeoff.record.schema import Finding, new_finding
from bakeoff.worker.checks import memory
from bakeoff.worker.subject import LoadedSubject, synchronise

_MANY = 16
_LEAST_WEIGHT_BYTES = 1
"""Of a weight in int8 or fp8: the smallest that rows of a sweep usually store."""
_LEAST_SHARE = 0.01
"""Share of the window that a limit must have held the clocks down for, by the driver's counters, to be reported."""


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


def cache_flush(device: str, loaded: LoadedSubject) -> Callable[[], None] | None:
    """A function that empties the L2 cache of a GPU; None on a CPU, or where the weights are many times the L2's size.

    Of weights somewhat larger than the L2 a part is still there from the call before, so that a call may take less than
    its floor by traffic. Of sixteen times its size that is 6 % at most; copies reach about 90 % of the bandwidth. It is
    decided by the weights that a call reads, in the fewest bytes, so that all rows of a workload are timed alike.
    """
    if device == "cpu":
        return None
    cache_bytes = torch.cuda.get_device_properties(0).L2_cache_size
    if loaded.work.weight_elements * _LEAST_WEIGHT_BYTES > _MANY * cache_bytes:
        return None
    buffer = torch.empty(4 * cache_bytes, dtype=torch.int8, device=device)

    def flush() -> None:
        buffer.zero_()

    return flush


@dataclass(frozen=True, slots=True)
class GpuState:
    """What NVML told of a GPU over the timed window; facts that it does not tell are absent."""

    facts: Mapping[str, Scalar] = field(default_factory=dict)
    throttled: tuple[str, ...] = ()
    """Limits that lowered the clocks and make a row unstable."""
    capped: bool = False
    """It was at its power cap."""
    other_processes: tuple[int, ...] = ()
    """Ids of processes on it that another parent started."""

    def alarms(self) -> list[Finding]:
        """Findings that make the numbers measured in this state unfit to be ranked."""
        found = []
        if self.throttled:
            text = f"the GPU was throttled in the timed window: {', '.join(self.throttled)}"
            found.append(new_finding("throttled", text))
        if self.other_processes:
            others = ", ".join(str(pid) for pid in self.other_processes)
            found.append(new_finding("gpu-shared", f"other processes used the GPU in the timed window: {others}"))
        return found


@dataclass(frozen=True, slots=True)
class _Counters:
    """Totals of the driver since it was loaded; None where NVML does not tell."""

    energy_mj: int | None
    power_cap_ns: int | None
    thermal_ns: int | None


@dataclass(slots=True)
class GpuWatch:
    """Collects what NVML tells of one GPU; without `library`, on a CPU or without a driver, nothing."""

    library: Any = None
    gpu: Any = None
    """NVML's handle of the GPU or MIG instance that runs the calls."""
    whole: Any = None
    """The GPU itself, where that is a MIG instance."""
    _before: _Counters = field(default=_Counters(None, None, None))
    _started: float = 0.0
    _sm_mhz: list[int] = field(default_factory=list)
    _memory_mhz: list[int] = field(default_factory=list)
    _power_w: list[float] = field(default_factory=list)
    _temperature_c: list[int] = field(default_factory=list)
    _reasons: list[int] = field(default_factory=list)
    _processes: list[int] = field(default_factory=list)
    _others: set[int] = field(default_factory=set)

    def begin(self) -> None:
        """Start a window: forget what was read before, and read the counters."""
        for readings in (self._sm_mhz, self._memory_mhz, self._power_w, self._temperature_c, self._reasons):
            readings.clear()
        self._processes.clear()
        self._others.clear()
        self._before, self._started = self._counters(), time.monotonic()

    def read(self) -> None:
        """Read clocks, power, temperature and processes once; call it while no call is timed."""
        if self.library is None:
            return
        self._keep(self._sm_mhz, "nvmlDeviceGetClockInfo", self.library.NVML_CLOCK_SM)
        self._keep(self._memory_mhz, "nvmlDeviceGetClockInfo", self.library.NVML_CLOCK_MEM)
        self._keep(self._power_w, "nvmlDeviceGetPowerUsage", scale=1e-3)
        self._keep(self._temperature_c, "nvmlDeviceGetTemperature", self.library.NVML_TEMPERATURE_GPU)
        self._keep(self._reasons, "nvmlDeviceGetCurrentClocksEventReasons")
        found = ask(self.library, "nvmlDeviceGetComputeRunningProcesses", self.gpu)
        if found is not None:
            pids = [process.pid for process in found]
            helpers = set(guard.descendants(os.getpid()))
            self._processes.append(len(pids))
            self._others.update(
                foreign_processes([pid for pid in pids if pid not in helpers], os.getpid(), _parent_of_worker)
            )

    def end(self) -> GpuState:
        """What was read since `begin`."""
        if self.library is None:
            return GpuState()
        seconds, after = time.monotonic() - self._started, self._counters()
        spent = {
            name: now - before
            for name in ("energy_mj", "power_cap_ns", "thermal_ns")
            if (now := getattr(after, name)) is not None and (before := getattr(self._before, name)) is not None
        }
        reasons = 0
        for reading in self._reasons:
            reasons |= reading
        facts: dict[str, Scalar] = {"gpu_watched_s": round(seconds, 3), "gpu_readings": len(self._sm_mhz)}
        if self._sm_mhz:
            facts |= {"sm_mhz": round(median(self._sm_mhz))}
            facts |= {"sm_mhz_low": min(self._sm_mhz), "sm_mhz_high": max(self._sm_mhz)}
        if self._memory_mhz:
            facts["memory_mhz"] = round(median(self._memory_mhz))
        if self._power_w:
            facts |= {"power_w": round(mean(self._power_w), 1), "power_w_high": round(max(self._power_w), 1)}
        if self._temperature_c:
            facts["temperature_c"] = max(self._temperature_c)
        if self._reasons:
            facts["throttle_reasons"] = reasons
        if self._processes:
            facts["processes"] = max(self._processes)
        if "energy_mj" in spent:
            facts["energy_j"] = spent["energy_mj"] / 1000
        facts |= {name: spent[name] for name in ("power_cap_ns", "thermal_ns") if name in spent}
        throttled = [name for bit, name in SLOWDOWNS.items() if reasons & bit]
        least_ns = _LEAST_SHARE * seconds * 1e9
        if spent.get("thermal_ns", 0) > least_ns:
            throttled.append(f"thermal limits held its clocks down for {spent['thermal_ns'] / seconds / 1e9:.0%} of it")
        capped = bool(reasons & POWER_CAP) or spent.get("power_cap_ns", 0) > least_ns
        return GpuState(facts, tuple(throttled), capped, tuple(sorted(self._others)))

    def _keep(self, readings: list[Any], function: str, *arguments: Any, scale: float = 1) -> None:
        value = ask(self.library, function, self.whole, *arguments)
        if value is not None:
            readings.append(value * scale)

    def _counters(self) -> _Counters:
        if self.library is None:
            return _Counters(None, None, None)
        return _Counters(
            ask(self.library, "nvmlDeviceGetTotalEnergyConsumption", self.whole),
            self._violation_ns(self.library.NVML_PERF_POLICY_POWER),
            self._violation_ns(self.library.NVML_PERF_POLICY_THERMAL),
        )

    def _violation_ns(self, policy: int) -> int | None:
        found = ask(self.library, "nvmlDeviceGetViolationStatus", self.whole, policy)
        return None if found is None else int(found.violationTime)


@contextmanager
def watching(device: str) -> Iterator[GpuWatch]:
    """A watch of the GPU that torch uses; one that tells nothing on a CPU, or where NVML does not know the GPU."""
    if device == "cpu":
        yield GpuWatch()
        return
    with nvml() as library:
        gpu = None if library is None else find_gpu(library, memory.device_uuid())
        yield GpuWatch() if gpu is None else GpuWatch(library, gpu, physical_gpu(library, gpu))


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
