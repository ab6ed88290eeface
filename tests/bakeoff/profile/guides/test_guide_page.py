"""docs/compat.md: everything that Inferix' guides name is in its tables."""

from pathlib import Path

import guides
import pytest

PAGE = (Path(__file__).parents[4] / "docs" / "compat.md").read_text(encoding="utf-8")


def test_the_guides_have_names_to_look_for() -> None:
    assert {"enabled", "max_data_points", "session_tags", "profile_model_parameters"} <= guides.keys()
    assert {"profile_method", "record_diffusion_step", "computation_time_ms", "model_name"} <= guides.code_names()
    assert {"--enable_profiling", "run_self_forcing.py", "--reports_dir"} <= guides.command_names()
    assert {"HTML Report", "System information", "BPS Optimization", "Model analysis"} <= guides.titles()


@pytest.mark.parametrize("key", sorted(guides.keys()))
def test_every_key_has_a_row(key: str) -> None:
    assert any(line.startswith(f"| `{key}` |") for line in PAGE.splitlines())


@pytest.mark.parametrize("name", sorted(guides.code_names() | guides.command_names() | guides.titles()))
def test_every_name_is_on_the_page(name: str) -> None:
    assert name.lower() in PAGE.lower()
