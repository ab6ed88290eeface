"""`ProfilingConfig` with the fields and defaults of Inferix; settings are made from it when a session starts."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from bakeoff.profile.settings import IGNORED, Settings

OUTPUT_DIR = "profiling_reports"
"""Where Inferix writes without an `output_dir`."""


@dataclass(slots=True)
class ProfilingConfig:
    """Settings under the names of Inferix. Not frozen: its guides assign to fields of one that exists."""

    enabled: bool = False
    gpu_monitor_interval: float = 0.5
    cpu_monitor_interval: float = 1.0
    monitor_gpu_memory: bool = True
    monitor_gpu_utilization: bool = True
    monitor_gpu_temperature: bool = True
    monitor_gpu_power: bool = True
    monitor_cpu_usage: bool = True
    monitor_system_memory: bool = True
    real_time_display: bool = True
    display_interval: float = 5.0
    generate_final_report: bool = True
    save_raw_data: bool = False
    output_dir: str | None = None
    report_format: str = "both"
    max_data_points: int = 10_000
    profile_inference_steps: bool | None = None
    """Does nothing, as the next two."""
    profile_vae_decode: bool | None = None
    profile_text_encoding: bool | None = None
    profile_diffusion_steps: bool = True
    profile_block_computation: bool = True
    profile_model_parameters: bool = True
    session_tags: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Warns for fields that do nothing. Raises BakeoffError for a value that a field does not take."""
        Settings.from_mapping(self._values(), "ProfilingConfig")

    def settings(self) -> Settings:
        """The settings it stands for now. Raises BakeoffError as `__post_init__`."""
        values = {key: value for key, value in self._values().items() if key not in IGNORED}
        return Settings.from_mapping(values, "ProfilingConfig")

    def _values(self) -> dict[str, Any]:
        values = {key: value for key, value in asdict(self).items() if value is not None}
        return {"output_dir": OUTPUT_DIR} | values
