"""A clock that a test moves, and samplers that run by it."""

from collections.abc import Sequence
from dataclasses import dataclass

from fake_nvml import FakeNvml

from bakeoff.monitor.nvml import GpuProbe
from bakeoff.monitor.request import GpuQuantity
from bakeoff.monitor.sampler import Group, Sampler
from bakeoff.record.monitor import Monitored, SeriesRecord

SECOND = 1_000_000_000


@dataclass
class Clock:
    """Nanoseconds; it stands still but where it is moved."""

    now_ns: int = 37_000_000

    def __call__(self) -> int:
        return self.now_ns

    def pass_s(self, seconds: float) -> None:
        self.now_ns += round(seconds * SECOND)


def run(sampler: Sampler, clock: Clock, seconds: float, late_s: float = 0.0) -> Monitored:
    """Sample for a time and report; each wait ends `late_s` after it should."""
    end_ns = clock.now_ns + round(seconds * SECOND)
    while clock.now_ns < end_ns:
        wait_ns = sampler.sample_due()
        assert wait_ns is not None
        clock.now_ns = min(end_ns, clock.now_ns + wait_ns + round(late_s * SECOND))
    return sampler.finish()


def watch_gpus(
    clock: Clock,
    library: FakeNvml,
    uuids: Sequence[str],
    quantities: Sequence[GpuQuantity],
    seconds: float,
    interval_s: float = 0.5,
) -> Monitored:
    """GPUs sampled for a time by the clock."""
    probe = GpuProbe(library, uuids, quantities)
    return run(Sampler([Group("gpu", [probe], interval_s)], 2_000, clock=clock), clock, seconds)


def series_of(report: Monitored, name: str, source: str | None = None) -> SeriesRecord:
    """The only series of this name, and of this source if it is given."""
    (found,) = (each for each in report.series if each.name == name and source in (None, each.source))
    return found
