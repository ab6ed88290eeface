"""What a sampler asks of those that read the machine."""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from bakeoff.record.monitor import DeviceEnergy, ThrottleTime

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


class Reading(NamedTuple):
    """One value of a series."""

    name: str
    source: str
    value: float


class ProbeReport(NamedTuple):
    """What a probe knows at the end besides its series."""

    energy: tuple[DeviceEnergy, ...] = ()
    throttled: tuple[ThrottleTime, ...] = ()
    missing: tuple[str, ...] = ()


class Probe(Protocol):
    """Reads quantities of one kind. What cannot be read is said in the report, and raises nothing."""

    def sample(self, now_ns: int) -> Iterable[Reading]:
        """Values at `now_ns` by the monotonic clock."""
        ...

    def report(self) -> ProbeReport: ...
