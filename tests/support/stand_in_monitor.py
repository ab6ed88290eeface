"""Stands for a monitor: it remembers what it was started on, and reports one sample a tenth of a second."""

import os
import time
from dataclasses import dataclass, field

import psutil

from bakeoff.record.monitor import MonitorCost, Monitored, Point, SeriesRecord

NOTHING = Monitored(missing=("NVML could not be loaded", "psutil is not installed"))


@dataclass
class StandIn:
    """One that runs."""

    pid: int
    gpu: str
    sees: bool = True
    """False: it reports nothing but what is missing."""
    started_ns: int = field(default_factory=time.monotonic_ns)
    first_ns: int = 0
    """When the worker's first phase began, from which times of the recording count."""
    stopped_ns: int = 0

    def stop(self, start_ns: int | None = None) -> Monitored:
        assert start_ns is not None
        assert start_ns <= self.started_ns, "times of the series and of the window are from the same moment"
        assert not self.stopped_ns, "stopped twice"
        self.first_ns, self.stopped_ns = start_ns, time.monotonic_ns()
        if not self.sees:
            return NOTHING
        wall_ns = self.stopped_ns - self.started_ns
        count = 2 + wall_ns // 100_000_000
        points = tuple(Point(place * wall_ns // count, 90.0, 100.0, 110.0, 1) for place in range(count))
        cost = MonitorCost(wall_ns, 20_000_000, count, {"cpu": 0.1}, {"cpu": 0.1}, {"cpu": 100_000})
        return Monitored((SeriesRecord("cpu.process", "%", "process", points),), cost=cost)


@dataclass
class Factory:
    """Takes the place of `bakeoff.process.watch.start_monitor`."""

    sees: bool = True
    made: list[StandIn] = field(default_factory=list)

    def __call__(self, pid: int, gpu: str) -> StandIn:
        assert psutil.Process(pid).ppid() == os.getpid(), "a guard, which a worker and all that it starts are below"
        self.made.append(StandIn(pid, gpu, self.sees))
        return self.made[-1]
