"""A monitor beside a worker, where one is asked for; one that cannot run costs a finding and nothing else."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from bakeoff.monitor.client import Monitor
from bakeoff.monitor.request import MonitorRequest
from bakeoff.record.monitor import Monitored
from bakeoff.record.redact import without_folders
from bakeoff.record.schema import Finding, new_finding

GPU_INTERVAL_S, CPU_INTERVAL_S = 0.5, 1.0
POINTS = 240
"""Largest number of points of a series: records stay below 200 KB, and two minutes keep every sample."""


@dataclass(frozen=True, slots=True)
class Watched:
    """Part of a monitor's report that a record keeps."""

    monitored: Monitored | None = None
    window_ns: tuple[int, int] | None = None
    """Start and end of the timed phases, by the times of the series; None where no timed phase was entered."""
    findings: tuple[Finding, ...] = ()


NOT_WATCHED = Watched()


def start_monitor(guard: int, gpu: str) -> Monitor:
    """A monitor of what is below a guard's process, and of the GPU with this UUID; "" is none.

    It is not waited for: meanwhile the phases that the worker announces would be noted late.
    """
    return Monitor.start(
        MonitorRequest(
            pid=guard,
            devices=(gpu,) if gpu else (),
            gpu=("memory", "busy", "temperature", "power", "clocks", "throttle") if gpu else (),
            cpu=("process", "memory", "load"),
            gpu_interval_s=GPU_INTERVAL_S,
            cpu_interval_s=CPU_INTERVAL_S,
            points=POINTS,
        ),
        ready_s=0.0,
    )


def stop_monitor(monitor: Monitor, timeline: Sequence[tuple[str, float]], timed: Collection[str]) -> Watched:
    """Return the recording of a worker that has ended. `timeline` has each phase and when it began, `timed` names those
    in which samples were taken; times are from the first one."""
    began_s = timeline[0][1]
    seen = monitor.stop(round(began_s * 1e9))
    seen = replace(seen, missing=tuple(map(without_folders, seen.missing)))
    at_s = [index for index, (phase, _) in enumerate(timeline) if phase in timed]
    window = (timeline[at_s[0]][1], timeline[at_s[-1] + 1][1]) if at_s else None
    why = "" if seen.series else "; ".join(seen.missing) or "the monitor took no sample"
    return Watched(
        seen,
        (round((window[0] - began_s) * 1e9), round((window[1] - began_s) * 1e9)) if window else None,
        (new_finding("not-monitored", f"a monitor was asked for and saw nothing: {why}"),) if why else (),
    )
