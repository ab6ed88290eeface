"""`aggregate_reports`: which folder is aggregated, and where the report goes."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from bakeoff.profile import aggregate_reports


@dataclass
class Report:
    folder: str
    rate: float = float("nan")


@pytest.fixture(autouse=True)
def _aggregate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Aggregation has its own tests; here it tells what it was asked for."""
    made = SimpleNamespace(aggregate=lambda folder: Report(Path(folder).name))
    monkeypatch.setitem(sys.modules, "bakeoff.profile.ranks.aggregate", made)


def ranks_in(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "rank-00000.session.json").write_text("{}")
    return folder


def test_a_folder_of_ranks_is_aggregated(tmp_path: Path) -> None:
    output = tmp_path / "new" / "aggregated.json"
    report = aggregate_reports(str(ranks_in(tmp_path / "run")), str(output))
    assert report.folder == "run"
    assert json.loads(output.read_text(), parse_constant=pytest.fail) == {"folder": "run", "rate": None}
