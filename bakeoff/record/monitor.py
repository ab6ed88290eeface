"""Defines a monitor's recording: the machine's state over time, energy, and the cost of the monitor itself.

Times are monotonic nanoseconds from the start of what was watched. A quantity that the machine does not report is
absent, never zero, and `missing` gives the reason.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SERIES: Mapping[str, tuple[str, str]] = {
    "gpu.power": ("GPU power", "W"),
    "gpu.memory": ("GPU memory", "MiB"),
    "gpu.busy": ("some kernel ran", "%"),
    "gpu.sm_active": ("SMs active", "%"),
    "gpu.temperature": ("GPU temperature", "C"),
    "gpu.clock": ("GPU clock", "MHz"),
    "cpu.process": ("CPU of its processes", "%"),
    "cpu.process_memory": ("memory of its processes", "MiB"),
    "cpu.memory": ("memory in use", "MiB"),
    "cpu.load": ("load average", ""),
}
"""Label and unit of each series of a monitor, in the order in which they are shown. `cpu.process` is in percent of one
core, so four busy threads are 400 %."""


@dataclass(frozen=True, slots=True)
class Point:
    """Summary of consecutive samples."""

    t_ns: int
    """Time of the first sample."""
    least: float
    mean: float
    greatest: float
    count: int


@dataclass(frozen=True, slots=True)
class SeriesRecord:
    """A quantity over time in a bounded number of points; least, greatest, mean and count are exact."""

    name: str
    """For example `gpu.power` or `cpu.process`; a user's own series have the name that the user gave."""
    unit: str
    """For example `W`, `MiB`, `%`; "" if a user gave none."""
    source: str
    """A GPU's UUID, `process`, `machine` or `user`."""
    points: tuple[Point, ...]

    @property
    def count(self) -> int:
        return sum(point.count for point in self.points)

    @property
    def least(self) -> float | None:
        """Smallest sample; None if the series is empty, as for `mean` and `greatest`."""
        return min((point.least for point in self.points), default=None)

    @property
    def mean(self) -> float | None:
        count = self.count
        return sum(point.mean * point.count for point in self.points) / count if count else None

    @property
    def greatest(self) -> float | None:
        return max((point.greatest for point in self.points), default=None)


@dataclass(frozen=True, slots=True)
class DeviceEnergy:
    """Energy of one device over the time that was watched."""

    device: str
    """A GPU's UUID, or a RAPL domain as in `package-0`."""
    counter_mj: float | None
    """Millijoules by the device's own counter; None if there is no counter, or if it was reset or ticks too seldom."""
    integral_mj: float | None
    """Millijoules by integrating sampled power; None if the device does not report its power."""
    note: str = ""
    """Reason why one of the two figures is None, or how they contradict each other."""

    @property
    def mj(self) -> float | None:
        """Millijoules by the counter, or else by the integral; None if unknown."""
        return self.counter_mj if self.counter_mj is not None else self.integral_mj


@dataclass(frozen=True, slots=True)
class ThrottleTime:
    """Share of the time for which a GPU gave one reason for lowering its clocks."""

    device: str
    reason: str
    """For example `power cap` or `hardware thermal slowdown`."""
    share: float
    """Share of the samples in which the GPU could report its reasons."""


@dataclass(frozen=True, slots=True)
class MonitorCost:
    """Cost and number of the monitor's samples."""

    wall_ns: int
    cpu_ns: int
    """CPU time of the monitor's own process."""
    samples: int
    asked_s: dict[str, float]
    """Requested interval in seconds, by group (`gpu` or `cpu`)."""
    ran_s: dict[str, float]
    """Interval in seconds at the end, by group; longer than requested if a sample took too large a part of it."""
    sample_ns: dict[str, int]
    """Median cost of one sample by group: CPU time for `cpu`, time until the driver answers for `gpu`."""
    note: str = ""
    """Reason why an interval was lengthened."""

    @property
    def sampling_share(self) -> float:
        """Share of one core that sampling takes: each group's median cost divided by its interval, without start-up."""
        return sum(
            self.sample_ns[group] / 1e9 / seconds for group, seconds in self.ran_s.items() if group in self.sample_ns
        )


@dataclass(frozen=True, slots=True)
class Monitored:
    """The report of a monitor."""

    series: tuple[SeriesRecord, ...] = ()
    energy: tuple[DeviceEnergy, ...] = ()
    throttled: tuple[ThrottleTime, ...] = ()
    cost: MonitorCost | None = None
    """Cost of the monitor; None if it did not run to its end."""
    missing: tuple[str, ...] = ()
    """Sentences that say what is unknown, and why."""


def merged(points: Sequence[Point], most: int) -> tuple[Point, ...]:
    """Merge neighbouring points, equally many each, so that at most `most` points remain."""
    every = max(1, -(-len(points) // most))
    return tuple(_one(points[start : start + every]) for start in range(0, len(points), every))


def _one(points: Sequence[Point]) -> Point:
    count = sum(point.count for point in points)
    return Point(
        t_ns=points[0].t_ns,
        least=min(point.least for point in points),
        mean=sum(point.mean * point.count for point in points) / count,
        greatest=max(point.greatest for point in points),
        count=count,
    )
