"""A monitor's request, what to watch and how often, and the protocol of those that read the machine."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from bakeoff.record.monitor import Monitored

GpuQuantity = Literal["memory", "busy", "sm_active", "temperature", "power", "clocks", "throttle"]
"""`busy`: some kernel ran, as a share of NVML's sample period; it says nothing of how much of the GPU was used."""
CpuQuantity = Literal["process", "memory", "load", "energy"]
LEAST_INTERVAL_S, MOST_INTERVAL_S = 0.05, 3600.0
"""An interval outside is taken for the nearest one inside, and the report says so."""
UNITS = {
    "gpu.memory": "MiB",
    "gpu.busy": "%",
    "gpu.sm_active": "%",
    "gpu.temperature": "C",
    "gpu.power": "W",
    "gpu.clock": "MHz",
    "cpu.process": "%",
    "cpu.process_memory": "MiB",
    "cpu.memory": "MiB",
    "cpu.load": "",
}
"""Unit of each series. `cpu.process` is in percent of one core, so four busy threads are 400 %."""
MIB = 1 << 20
LATEST, STOP = b"latest", b"stop"
"""Commands to its process."""


@dataclass(frozen=True, slots=True)
class MonitorRequest:
    """Nothing is asked of the machine but the quantities named here."""

    pid: int
    """Process whose tree is watched: itself and all it started, without the monitor."""
    devices: tuple[str, ...]
    """UUIDs of GPUs or MIG instances."""
    gpu: tuple[GpuQuantity, ...]
    cpu: tuple[CpuQuantity, ...]
    gpu_interval_s: float
    cpu_interval_s: float
    points: int
    """Most points of a series, at least 2; neighbours merge beyond them."""
    raw: str = ""
    """File that is written anew with every sample, as JSON lines; "": none."""


class Reading(NamedTuple):
    """One value of a series."""

    name: str
    source: str
    value: float


def joined(reports: Iterable[Monitored]) -> Monitored:
    """All of them as one, in their order, without series and cost."""
    found = tuple(reports)
    return Monitored(
        energy=tuple(energy for report in found for energy in report.energy),
        throttled=tuple(time for report in found for time in report.throttled),
        missing=tuple(text for report in found for text in report.missing),
    )


class Probe(Protocol):
    """Reads quantities of one kind. What cannot be read is said in the report, and raises nothing."""

    def sample(self, now_ns: int) -> Iterable[Reading]:
        """Values at `now_ns` by the monotonic clock."""
        ...

    def report(self) -> Monitored:
        """Return what it knows at the end besides its series."""
        ...
