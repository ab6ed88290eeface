"""Newest values of a session under the names of Inferix."""

from time import time
from typing import Any

from bakeoff.profile.snapshot import Snapshot

_METRICS = {
    "gpu.memory": ("gpu", "memory_used_mb"),
    "gpu.busy": ("gpu", "utilization_percent"),
    "gpu.sm_active": ("gpu", "sm_active_percent"),
    "gpu.temperature": ("gpu", "temperature_celsius"),
    "gpu.power": ("gpu", "power_watts"),
    "gpu.clock": ("gpu", "graphics_clock_mhz"),
    "cpu.process": ("cpu", "process_percent_of_one_core"),
    "cpu.process_memory": ("cpu", "process_memory_mb"),
    "cpu.memory": ("cpu", "memory_used_mb"),
    "cpu.load": ("cpu", "load_average_1min"),
}
"""Group and name of `get_current_metrics` by series of the monitor; MB are MiB, as in Inferix."""


def metrics(snapshot: Snapshot) -> dict[str, Any]:
    """Values of the monitor in groups `gpu` and `cpu`, of further GPUs by UUID in `gpus`; rates of the last units.

    What is unknown is absent.
    """
    found: dict[str, Any] = {"timestamp": time()}
    for series, value in snapshot.latest.items():
        name, _, device = series.partition("@")
        group, key = _METRICS.get(name, ("other", name))
        place = found.setdefault("gpus", {}).setdefault(device, {}) if device else found.setdefault(group, {})
        place[key] = value
    rates = {"fps": snapshot.frames_per_s, "bps": snapshot.units_per_s}
    known = {name: value for name, value in rates.items() if value is not None}
    return found | ({"rates": known} if known else {})
