"""docs/compat.md: everything that Inferix' guides name is in its tables, or in that of the settings."""

from pathlib import Path

import guides
import pytest

DOCS = Path(__file__).parents[4] / "docs"
PAGE = (DOCS / "compat.md").read_text(encoding="utf-8")
SETTINGS = (DOCS / "sessions.md").read_text(encoding="utf-8").partition("\n## Settings\n")[2].partition("\n## ")[0]


def test_the_guides_have_names_to_look_for() -> None:
    assert {"enabled", "max_data_points", "session_tags", "profile_model_parameters"} <= guides.keys()
    assert {"profile_method", "record_diffusion_step", "computation_time_ms", "model_name"} <= guides.code_names()
    assert {"--enable_profiling", "run_self_forcing.py", "--reports_dir"} <= guides.command_names()
    assert {"HTML Report", "System information", "BPS Optimization", "Model analysis"} <= guides.titles()


@pytest.mark.parametrize("key", sorted(guides.keys()))
def test_every_key_has_a_row(key: str) -> None:
    rows = (line.split(" | ")[0] for line in f"{PAGE}\n{SETTINGS}".splitlines() if line.startswith("| `"))
    assert any(f"`{key}`" in row for row in rows)


@pytest.mark.parametrize("name", sorted(guides.code_names() | guides.command_names() | guides.titles()))
def test_every_name_is_on_the_page(name: str) -> None:
    assert name.lower() in f"{PAGE}{SETTINGS}".lower()
