"""A profiler with the names of Inferix for tests: without monitors, pages and CUDA."""

from pathlib import Path
from typing import Any

from bakeoff.profile import InferixProfiler, ProfilingConfig
from bakeoff.record.session import SessionEvent, SessionRecord

QUIET = {
    **dict.fromkeys(("monitor_gpu_memory", "monitor_gpu_utilization", "monitor_gpu_temperature"), False),
    **dict.fromkeys(("monitor_gpu_power", "monitor_cpu_usage", "monitor_system_memory"), False),
    **dict.fromkeys(("real_time_display", "generate_final_report"), False),
}


def config_in(folder: Path, **more: Any) -> ProfilingConfig:
    return ProfilingConfig(**{"enabled": True, "output_dir": str(folder / "reports"), **QUIET, **more})


def profiler_in(folder: Path, frames_per_block: int | None = None, **more: Any) -> InferixProfiler:
    return InferixProfiler(config_in(folder, **more), device="", frames_per_block=frames_per_block)


def record_of(profiler: InferixProfiler) -> SessionRecord:
    """Of the session that ended last."""
    assert profiler.last_session is not None
    assert profiler.last_session.record is not None
    return profiler.last_session.record


def events(profiler: InferixProfiler, name: str) -> list[SessionEvent]:
    """Of that session, by name."""
    return [event for event in record_of(profiler).events if event.name == name]


def paths(profiler: InferixProfiler) -> set[tuple[str, ...]]:
    """Of its ranges."""
    return {each.path for each in record_of(profiler).ranges}
