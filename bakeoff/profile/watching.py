"""Starts the monitor of a session for the quantities that its settings ask for."""

import os
from collections.abc import Mapping
from typing import Any

from bakeoff.profile.settings import Settings

_GPU: Mapping[str, tuple[str, ...]] = {
    "monitor_gpu_memory": ("memory",),
    "monitor_gpu_utilization": ("busy", "sm_active"),
    "monitor_gpu_temperature": ("temperature",),
    "monitor_gpu_power": ("power", "clocks", "throttle"),
}
_CPU: Mapping[str, tuple[str, ...]] = {
    "monitor_cpu_usage": ("process", "load", "energy"),
    "monitor_system_memory": ("memory",),
}
"""Quantities of a monitor by key of the settings."""


def start_monitor(settings: Settings, raw: str) -> Any:
    """Start a monitor of this process and return it; None if the settings ask for none.

    It watches all GPUs that CUDA programs see. `raw` is the path of a file for every sample, or "". Raises what
    starting it raises.
    """

    def chosen(table: Mapping[str, tuple[str, ...]]) -> tuple[Any, ...]:
        return tuple(name for key, names in table.items() if getattr(settings, key) for name in names)

    gpu, cpu = chosen(_GPU), chosen(_CPU)
    if not gpu and not cpu:
        return None
    from bakeoff.machine.gpus import read_gpus
    from bakeoff.monitor.client import Monitor
    from bakeoff.monitor.request import MonitorRequest

    devices = tuple(str(facts["uuid"]) for facts in read_gpus()) if gpu else ()
    every = settings.gpu_monitor_interval, settings.cpu_monitor_interval
    return Monitor.start(MonitorRequest(os.getpid(), devices, gpu, cpu, *every, settings.max_data_points, raw))
