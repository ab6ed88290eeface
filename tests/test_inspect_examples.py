"""The examples of docs/inspect.md: written to a file unchanged and run, they print what the page says."""

import json
import re
import shlex
from pathlib import Path

import pytest
from lab import shorten_clocks
from records import bakeoff

from bakeoff.machine import paths
from bakeoff.record.store import load_all

PAGE = (Path(__file__).parent.parent / "docs" / "inspect.md").read_text(encoding="utf-8")
COLUMNS = 100


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (source,) = blocks("python")
    (tmp_path / "mine.py").write_text(source, encoding="utf-8")
    return tmp_path


def run(folder: Path, command: str, *more: str) -> str:
    """Standard output of a bakeoff command of the page; fails the test where the command fails."""
    first, *arguments = shlex.split(command)
    assert first == "bakeoff"
    done = bakeoff(*arguments, *more, cwd=folder)
    assert done.code == 0, done.err
    return done.out


def test_every_command_is_one_that_a_test_here_runs() -> None:
    assert [block.partition(" --record")[0].strip() for block in blocks("sh")] == ["bakeoff inspect mine.py:pipe"] * 2


def test_the_pipeline_is_inspected_as_the_page_says(folder: Path) -> None:
    said = run(folder, blocks("sh")[0])
    lines = said.splitlines()
    names = [line.split("  ")[0] for line in lines if " Decoder " in line or " Sequential " in line]
    assert set(names) == {"denoiser", "decoder.decode", "· .up"}
    assert any(line.startswith("outside modules") for line in lines)
    assert max(map(len, lines)) <= COLUMNS
    found = json.loads(run(folder, blocks("sh")[0], "--json", "--passes", "2"))
    assert {one["name"] for one in found["candidates"]} == {"denoiser", "decoder.decode"}
    inspection = found["inspection"]
    for index, ns in enumerate(inspection["pass_ns"]):
        own = sum(node["own_ns"][index] for node in inspection["nodes"])
        assert own + inspection["outside_ns"][index] == ns
    shown = run(folder, blocks("sh")[0], "--depth", "0", "--passes", "2")
    assert "· " not in shown


def test_what_is_recorded_is_swept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the page says, for the method alone, with eager, which needs no compiler, and with short clocks."""
    said = run(folder, blocks("sh")[1].replace("denoiser,", ""), "--passes", "2")
    assert "decoder.decode: 8 different calls of 8 as call, in " in said
    shorten_clocks(monkeypatch)
    command = next(line for line in said.splitlines()[::-1] if line.startswith("bakeoff "))
    run(folder, command, "--backends", "eager")
    records = [stored.record for stored in load_all(paths.runs_folder()).current]
    assert {(one.variant.component, one.variant.preset, one.variant.workload) for one in records} == {
        ("mine.decoder.decode", "live", "call")
    }
    assert {one.status for one in records} <= {"ok", "unstable"}
