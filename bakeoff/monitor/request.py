"""`MonitorRequest`: what a monitor watches and how often. `Probe`: the protocol of classes that read the machine."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from bakeoff.record.monitor import Monitored

GpuQuantity = Literal["memory", "busy", "sm_active", "temperature", "power", "clocks", "throttle"]
"""`busy` is the share of NVML's sample period in which any kernel ran; it does not say how much of the GPU was used."""
CpuQuantity = Literal["process", "memory", "load", "energy"]
MIB = 1 << 20
LATEST, STOP = b"latest", b"stop"
"""Commands to a monitor process."""


@dataclass(frozen=True, slots=True)
class MonitorRequest:
    """Request to a monitor process. It reads nothing from the machine but the quantities named here."""

    pid: int
    """Id of the process whose tree is watched: the process and its descendants, without the monitor."""
    devices: tuple[str, ...]
    """UUIDs of GPUs or MIG instances."""
    gpu: tuple[GpuQuantity, ...]
    cpu: tuple[CpuQuantity, ...]
    gpu_interval_s: float
    cpu_interval_s: float
    points: int
    """Largest number of points of a series, at least 2; beyond it, neighbouring points are merged."""
    raw: str = ""
    """Path of a new file that gets every sample as a line of JSON; "" for none."""


class Reading(NamedTuple):
    """One value of a series."""

    name: str
    source: str
    value: float


def joined(reports: Iterable[Monitored]) -> Monitored:
    """Return several reports joined into one, in their order, without series and cost."""
    found = tuple(reports)
    return Monitored(
        energy=tuple(energy for report in found for energy in report.energy),
        throttled=tuple(time for report in found for time in report.throttled),
        missing=tuple(text for report in found for text in report.missing),
    )


class Probe(Protocol):
    """Reader of one kind of quantities. What it cannot read goes into its report and raises nothing."""

    def sample(self, now_ns: int) -> Iterable[Reading]:
        """Return the values at `now_ns` of the monotonic clock."""
        ...

    def report(self) -> Monitored:
        """Return the final report without series: energy, throttling and what is missing."""
        ...
