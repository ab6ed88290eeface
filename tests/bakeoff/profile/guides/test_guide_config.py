"""The guides' YAML files, their TOML twins, and `ProfilingConfig`."""

import warnings
from pathlib import Path

import guides
import pytest

from bakeoff.profile.settings import ProfilingConfig, Settings

TOML = sorted(guides.FOLDER.glob("*.toml"))
"""The YAML blocks of both guides in TOML, in their order."""


def load(path: Path) -> Settings:
    """Settings of a file, without the warning for keys that do nothing."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*nothing reads")
        return Settings.load(path)


def test_each_block_has_a_twin() -> None:
    assert len(TOML) == len(guides.blocks("yaml")) == 6


def test_the_guide_s_file_turns_everything_on() -> None:
    found = load(TOML[0])
    expected = Settings(
        enabled=True,
        real_time_display=True,
        display_interval=3.0,
        output_dir="./example/self_forcing/profiling_reports",
        max_data_points=10_000,
        session_tags={"model": "self_forcing", "experiment": "performance_analysis"},
    )
    assert found == expected


def test_parts_of_a_file_load_too() -> None:
    assert load(TOML[3]) == Settings(max_data_points=5_000, gpu_monitor_interval=1.0, cpu_monitor_interval=2.0)
    assert load(TOML[4]) == Settings(monitor_gpu_temperature=False, monitor_gpu_power=False)
    assert load(TOML[5]) == Settings()


@pytest.mark.parametrize("place", range(6))
def test_yaml_as_it_is_gives_the_same(place: int, tmp_path: Path) -> None:
    path = tmp_path / "profiling_config.yaml"
    path.write_text(guides.blocks("yaml")[place], encoding="utf-8")
    assert load(path) == load(TOML[place])


def test_the_config_has_the_defaults_of_inferix() -> None:
    config = ProfilingConfig()
    assert (config.monitor_gpu_power, config.session_tags, config.profile_vae_decode) == (True, {}, None)
    settings = config.settings()
    assert (settings.enabled, settings.real_time_display, settings.max_data_points) == (False, True, 10_000)
    assert settings.output_dir == "profiling_reports"


def test_a_config_that_is_changed_gives_other_settings() -> None:
    config = ProfilingConfig(enabled=True, session_tags={"experiment": "optimization_v1"})
    config.max_data_points = 5_000
    config.real_time_display = False
    assert config.settings() == Settings(
        enabled=True,
        output_dir="profiling_reports",
        max_data_points=5_000,
        session_tags={"experiment": "optimization_v1"},
    )


def test_a_config_warns_once_for_idle_fields() -> None:
    with pytest.warns(UserWarning, match="nothing reads profile_vae_decode,") as said:
        ProfilingConfig(profile_vae_decode=True).settings()
    assert len(said) == 1
