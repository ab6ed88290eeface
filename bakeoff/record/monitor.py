"""Recording of a monitor: the machine's state over time, energy, and what the monitor itself cost.

Times are monotonic nanoseconds from the start of what was watched. What a machine does not tell is absent, never zero,
and `missing` says why.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Point:
    """Samples that lie beside each other in time."""

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
    """For example `W`, `MiB`, `%`; "" where a user gave none."""
    source: str
    """A GPU's UUID, `process`, `machine` or `user`."""
    points: tuple[Point, ...]

    @property
    def count(self) -> int:
        return sum(point.count for point in self.points)

    @property
    def least(self) -> float | None:
        """None of an empty series, as `mean` and `greatest`."""
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
    """Energy of one device over what was watched."""

    device: str
    """A GPU's UUID, or a RAPL domain as in `package-0`."""
    counter_mj: float | None
    """Millijoules by the device's own counter; None where it has none, was reset, or ticks too seldom."""
    integral_mj: float | None
    """Millijoules by the integral of sampled power; None where power is not told."""
    note: str = ""
    """Reason why one of them is None, or how they contradict each other."""

    @property
    def mj(self) -> float | None:
        """The counter's, else the integral's; None is unknown."""
        return self.counter_mj if self.counter_mj is not None else self.integral_mj


@dataclass(frozen=True, slots=True)
class ThrottleTime:
    """Time for which a GPU had a reason for clocks below those asked for."""

    device: str
    reason: str
    """For example `power cap` or `hardware thermal slowdown`."""
    share: float
    """Share of the samples that have reasons at all."""


@dataclass(frozen=True, slots=True)
class MonitorCost:
    """Cost and number of the monitor's samples."""

    wall_ns: int
    cpu_ns: int
    """CPU time of the monitor's own process."""
    samples: int
    asked_s: dict[str, float]
    """Interval by group, `gpu` or `cpu`, as asked."""
    ran_s: dict[str, float]
    """The same at the end; longer where a sample cost too much of it."""
    sample_ns: dict[str, int]
    """Median cost of one sample by group: CPU time of `cpu`, and of `gpu` the time until the driver has answered."""
    note: str = ""
    """Reason why an interval was lengthened."""

    @property
    def sampling_share(self) -> float:
        """Share of one core that samples took, each its median cost in its interval; starting up is not in it."""
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
    """None where the monitor did not run to its end."""
    missing: tuple[str, ...] = ()
    """Sentences: what is unknown, and why."""


def merged(points: Sequence[Point], most: int) -> tuple[Point, ...]:
    """Return at most `most` points: neighbours are merged, equally many each."""
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
