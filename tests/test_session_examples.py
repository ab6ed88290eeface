"""The examples of docs/sessions.md are complete: written to files unchanged and run, they record what the page says."""

import dataclasses
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from page_examples import DOCS, files_of, run_python, write_files

from bakeoff.profile import Settings

PAGE = (DOCS / "sessions.md").read_text(encoding="utf-8")


def blocks(language: str) -> dict[str, str]:
    return files_of("sessions.md", language=language)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_files(tmp_path, {**blocks("python"), **blocks("toml")})
    return tmp_path


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_bytes()) for path in sorted(folder.rglob("*.session.json"))]


def test_every_block_is_one_that_a_test_here_runs() -> None:
    assert set(blocks("python")) == {"after.py", "decorated.py", "ranks.py"}
    assert set(blocks("toml")) == {"profile.toml"}


def test_the_first_example_records_its_units(folder: Path) -> None:
    said = run_python(folder, "after.py").splitlines()
    assert said[-1] == "torch.Size([240, 3, 32, 32])"
    files = [folder / name for name in said if name.startswith("profiles/")]
    assert {path.name.partition(".")[2] for path in files} == {"session.json", "html", "report.json"}
    assert all(path.is_file() for path in files)
    (record,) = records(folder / "profiles")
    assert record["tags"] == {"model": "toy", "blocks": 20}
    assert {kind["kind"]: (kind["count"], kind["frames"]) for kind in record["units"]}["steady"] == (19, 228)
    assert [(step["timestep"], step["calls"]) for step in record["steps"]] == [(t, 20) for t in (1000, 750, 500, 250)]
    assert sum(each["own_ns"] for each in record["ranges"]) == record["ns"]
    shown = run_python(
        folder, "-m", "bakeoff", "session", "show", *(str(path) for path in files if "session" in path.name)
    )
    assert "denoise" in shown
    assert "frames a second" in shown


def test_decorated_functions_are_recorded(folder: Path) -> None:
    run_python(folder, "decorated.py")
    (record,) = records(folder / "decorated")
    paths = {tuple(each["path"]): each["calls"] for each in record["ranges"]}
    assert {path[-1] for path in paths if path} >= {"denoise", "decode"}
    assert sum(kind["count"] for kind in record["units"]) == 5
    assert [step["calls"] for step in record["steps"]] == [5, 5]
    assert [tuple(each["path"])[-1] for each in record["before"] if each["path"]] == ["load"]
    assert {event["name"]: event["data"] for event in record["events"]}["finished"] == {"blocks": 5, "frames": 20}
    assert [series["name"] for series in record["series"] if series["source"] == "user"] == ["frames"]


def test_two_ranks_are_aggregated(folder: Path) -> None:
    run_python(folder, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "ranks.py")
    (group,) = {path.parent for path in (folder / "ranks").rglob("*.session.json")}
    assert group.name.startswith("two-")
    assert [record["rank"]["rank"] for record in records(group)] == [0, 1]
    said = run_python(folder, "-m", "bakeoff", "session", "aggregate", str(group), "--html")
    assert "denoise" in said
    assert "denoise" in (group / "ranks.html").read_text(encoding="utf-8")


def _default(value: object) -> str:
    return json.dumps(dict(value) if isinstance(value, dict) else value)


def test_the_table_of_settings_has_every_key_and_its_default() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", PAGE, re.MULTILINE))
    assert rows == {each.name: _default(getattr(Settings(), each.name)) for each in dataclasses.fields(Settings)}


def test_the_settings_file_is_one(folder: Path) -> None:
    loaded = Settings.load(folder / "profile.toml")
    assert loaded.enabled
    assert set(tomllib.loads(blocks("toml")["profile.toml"])["profiling"]) <= {
        each.name for each in dataclasses.fields(Settings)
    }
