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


@pytest.mark.parametrize("place", range(6))
def test_yaml_as_it_is_gives_the_same(place: int, tmp_path: Path) -> None:
    path = tmp_path / "profiling_config.yaml"
    path.write_text(guides.blocks("yaml")[place], encoding="utf-8")
    assert load(path) == load(TOML[place])


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
