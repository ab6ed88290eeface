"""The monitor of a session: what the settings ask it to watch."""

import os
from collections.abc import Mapping
from importlib import import_module
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
"""Quantities by key of the settings."""


def quantities(settings: Settings) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What is asked of GPUs and of the host."""

    def chosen(table: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
        return tuple(name for key, names in table.items() if getattr(settings, key) for name in names)

    return chosen(_GPU), chosen(_CPU)


def start_monitor(settings: Settings, raw: str) -> Any:
    """A started monitor of this process, or None where the settings ask for none. Raises what starting it raises.

    `raw` is the file for every sample, or "".
    """
    gpu, cpu = quantities(settings)
    if not gpu and not cpu:
        return None
    request: Any = import_module("bakeoff.monitor.request")
    client: Any = import_module("bakeoff.monitor.client")
    asked = request.MonitorRequest(
        pid=os.getpid(),
        devices=request.visible_devices() if gpu else (),
        gpu=gpu,
        cpu=cpu,
        gpu_interval_s=settings.gpu_monitor_interval,
        cpu_interval_s=settings.cpu_monitor_interval,
        points=settings.max_data_points,
        raw=raw,
    )
    return client.Monitor.start(asked)
