"""The measured device: its runtime's memory, its caches, and what NVML tells of a GPU while calls are timed.

Counters are read at both ends of the timed window, everything else between its segments, when no call is timed. After
the window the GPU is idle and its clocks, power and throttle reasons are others.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from statistics import mean, median

import psutil
import torch

from bakeoff.machine import host
from bakeoff.machine.gpus import POWER_CAP, SLOWDOWNS, Gpu, open_gpu, read_memory
from bakeoff.machine.processes import helpers
from bakeoff.models.types import Scalar
from bakeoff.record.schema import Finding, new_finding
from bakeoff.worker.checks import memory
from bakeoff.worker.subject import LoadedSubject, synchronise

_MANY = 16
_LEAST_WEIGHT_BYTES = 1
"""Size of a weight in int8 or fp8: the smallest that rows of a sweep usually store."""
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
    (used, of_process), after = memory.device_bytes(), read_memory(uuid)
    if not of_process and before is not None and after is not None:
        used = after.used - before.used
    return used - torch.cuda.memory_reserved()


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
    """Readings of a GPU by NVML over the timed window; facts that NVML lacks are absent."""

    facts: Mapping[str, Scalar] = field(default_factory=dict)
    throttled: tuple[str, ...] = ()
    """Limits that lowered the clocks and make a row unstable."""
    capped: bool = False
    """True if it was at its power cap."""
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


@dataclass(slots=True)
class GpuWatch:
    """Collects what NVML tells of one GPU; without one, on a CPU or without a driver, nothing."""

    gpu: Gpu | None = None
    _before: Mapping[str, int] = field(default_factory=dict)
    _started: float = 0.0
    _seen: dict[str, list[int]] = field(default_factory=dict)
    """Each answer by its name."""
    _others: set[int] = field(default_factory=set)

    def begin(self) -> None:
        """Start a window: forget what was read before, and read the counters."""
        self._seen.clear()
        self._others.clear()
        self._before, self._started = self._counters(), time.monotonic()

    def read(self) -> None:
        """Read clocks, power, temperature and processes once; call it while no call is timed."""
        if self.gpu is None:
            return
        gpu, library = self.gpu, self.gpu.library
        told = {
            "sm_mhz": gpu.ask("ClockInfo", library.NVML_CLOCK_SM),
            "memory_mhz": gpu.ask("ClockInfo", library.NVML_CLOCK_MEM),
            "power_mw": gpu.ask("PowerUsage"),
            "temperature_c": gpu.ask("Temperature", library.NVML_TEMPERATURE_GPU),
            "reasons": gpu.ask("CurrentClocksEventReasons"),
        }
        pids = gpu.processes()
        if pids is not None:
            told["processes"] = len(pids)
            others = pids.keys() - {process.pid for process in helpers()}
            self._others.update(foreign_processes([*others], os.getpid(), _parent_of_worker))
        for name, value in told.items():
            if value is not None:
                self._seen.setdefault(name, []).append(value)

    def end(self) -> GpuState:
        """Return the readings since `begin`."""
        if self.gpu is None:
            return GpuState()
        seconds, after, seen = time.monotonic() - self._started, self._counters(), self._seen
        spent = {name: after[name] - before for name, before in self._before.items() if name in after}
        reasons = 0
        for reading in seen.get("reasons", ()):
            reasons |= reading
        facts: dict[str, Scalar] = {"gpu_watched_s": round(seconds, 3), "gpu_readings": len(seen.get("sm_mhz", ()))}
        if sm_mhz := seen.get("sm_mhz"):
            facts |= {"sm_mhz": round(median(sm_mhz)), "sm_mhz_low": min(sm_mhz), "sm_mhz_high": max(sm_mhz)}
        if memory_mhz := seen.get("memory_mhz"):
            facts["memory_mhz"] = round(median(memory_mhz))
        if power_mw := seen.get("power_mw"):
            facts |= {"power_w": round(mean(power_mw) / 1e3, 1), "power_w_high": round(max(power_mw) / 1e3, 1)}
        if temperature_c := seen.get("temperature_c"):
            facts["temperature_c"] = max(temperature_c)
        if "reasons" in seen:
            facts["throttle_reasons"] = reasons
        if processes := seen.get("processes"):
            facts["processes"] = max(processes)
        if "energy_mj" in spent:
            facts["energy_j"] = spent.pop("energy_mj") / 1000
        facts |= spent
        throttled = [name for bit, name in SLOWDOWNS.items() if reasons & bit]
        least_ns = _LEAST_SHARE * seconds * 1e9
        if spent.get("thermal_ns", 0) > least_ns:
            throttled.append(f"thermal limits held its clocks down for {spent['thermal_ns'] / seconds / 1e9:.0%} of it")
        capped = bool(reasons & POWER_CAP) or spent.get("power_cap_ns", 0) > least_ns
        return GpuState(facts, tuple(throttled), capped, tuple(sorted(self._others)))

    def _counters(self) -> dict[str, int]:
        """Totals of the driver since it was loaded, as far as NVML tells them."""
        if self.gpu is None:
            return {}
        library = self.gpu.library
        power = self.gpu.ask("ViolationStatus", library.NVML_PERF_POLICY_POWER)
        thermal = self.gpu.ask("ViolationStatus", library.NVML_PERF_POLICY_THERMAL)
        told = {
            "energy_mj": self.gpu.ask("TotalEnergyConsumption"),
            "power_cap_ns": power and int(power.violationTime),
            "thermal_ns": thermal and int(thermal.violationTime),
        }
        return {name: value for name, value in told.items() if value is not None}


@contextmanager
def watching(device: str) -> Iterator[GpuWatch]:
    """A watch of the GPU that torch uses; one that tells nothing on a CPU, or where NVML does not know the GPU."""
    with nullcontext() if device == "cpu" else open_gpu(memory.device_uuid()) as gpu:
        yield GpuWatch(gpu)


def foreign_processes(found: Sequence[int], own: int, parent_of: Callable[[int], int]) -> tuple[int, ...]:
    """Return the processes on a GPU that our sweep did not start: their parent is not that of process `own`.

    Both workers of a comparison have one parent. A container may list ids of another namespace: where `own` is not
    among `found`, nothing is known and the result is empty.
    """
    if own not in found:
        return ()
    parent = parent_of(own)
    return tuple(pid for pid in found if pid != own and parent_of(pid) != parent)


def _parent_of_worker(pid: int) -> int:
    """Return the process that started a worker's guard; 0 for a process that has ended or has no grandparent."""
    with suppress(psutil.Error):
        parents = psutil.Process(pid).parents()
        return parents[1].pid if len(parents) > 1 else 0
    return 0
