"""The measured device: memory of its runtime, flushing of its L2 cache, and a GPU's state by NVML during timing.

Counters are read at both ends of the timed window, other values between its segments, while no call is timed. Values
read after the window would be those of an idle GPU, with other clocks, power and throttle reasons.
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
from bakeoff.record.finding import Finding, new_finding
from bakeoff.worker.checks import memory
from bakeoff.worker.subject import LoadedSubject, synchronise

_MANY = 16
_LEAST_WEIGHT_BYTES = 1
"""Bytes of a weight in int8 or fp8, the smallest that rows of a sweep usually store."""
_LEAST_SHARE = 0.01
"""A limit is reported if it held the clocks down for more than this share of the window, by the driver's counters."""


def context_bytes(device: str) -> int:
    """Start the device's runtime and return the bytes of device memory that its context takes; 0 on a CPU.

    If NVML does not list this process, the growth of the whole GPU's memory in use is returned.
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
    """Return the bytes in use now: of this process on the host, plus on CUDA those of all processes on the device."""
    if device == "cpu":
        return memory.used_bytes()
    free, total = torch.cuda.mem_get_info()
    return memory.used_bytes() + total - free


def cache_flush(device: str, loaded: LoadedSubject) -> Callable[[], None] | None:
    """Return a function that empties the GPU's L2 cache; None on a CPU, or if the weights are over 16 times as large.

    If the weights are only somewhat larger than the L2, a part of them stays cached from call to call, so that a call
    may take less than its floor by memory traffic. At sixteen times the size this part is 6 % at most; copies reach
    about 90 % of the bandwidth. The weights that a call reads count as one byte each, so that all rows of a workload
    are timed alike.
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
    """True if the GPU was at its power cap."""
    other_processes: tuple[int, ...] = ()
    """Ids of processes on the GPU that this sweep did not start."""

    def alarms(self) -> list[Finding]:
        """Return the findings that make numbers measured in this state unfit to be ranked."""
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
    """Collects NVML's readings of one GPU, or nothing on a CPU or without a driver."""

    gpu: Gpu | None = None
    _before: Mapping[str, int] = field(default_factory=dict)
    _started: float = 0.0
    _seen: dict[str, list[int]] = field(default_factory=dict)
    """Readings by name."""
    _others: set[int] = field(default_factory=set)

    def begin(self) -> None:
        """Start a window: forget earlier readings, and read the counters."""
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
        """Return the driver's totals since it was loaded (energy in mJ, throttled time in ns), as far as known."""
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
    """Yield a watch of the GPU that torch uses; it collects nothing on a CPU, or if NVML does not know the GPU."""
    with nullcontext() if device == "cpu" else open_gpu(memory.device_uuid()) as gpu:
        yield GpuWatch(gpu)


def foreign_processes(found: Sequence[int], own: int, parent_of: Callable[[int], int]) -> tuple[int, ...]:
    """Return the processes on a GPU that our sweep did not start: their parent is not the parent of process `own`.

    `found` are the ids of all processes on the GPU. All workers of a comparison have the same parent. In a container,
    NVML may list ids of another namespace: if `own` is not among `found`, nothing is known and the result is empty.
    """
    if own not in found:
        return ()
    parent = parent_of(own)
    return tuple(pid for pid in found if pid != own and parent_of(pid) != parent)


def _parent_of_worker(pid: int) -> int:
    """Return the id of the process that started a worker's guard; 0 if `pid` has ended or has no grandparent."""
    with suppress(psutil.Error):
        parents = psutil.Process(pid).parents()
        return parents[1].pid if len(parents) > 1 else 0
    return 0
