"""A folder with three records."""

from pathlib import Path

import pytest
from few_records import THREE

from bakeoff.record.store import save


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for entry in THREE:
        save(tmp_path / "runs", entry)
    return tmp_path / "runs"
