"""The programs of examples/profile run as their docstrings say, and record what they do."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parent.parent / "examples" / "profile"


def run(folder: Path, program: str, *arguments: str) -> list[str]:
    """Lines on standard output; fails the test where the program fails."""
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / program), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def record_in(folder: Path) -> Any:
    (path,) = folder.rglob("*.session.json")
    return json.loads(path.read_bytes())


def test_wan_of_diffusers_is_profiled_from_outside(tmp_path: Path) -> None:
    if importlib.util.find_spec("diffusers") is None:
        pytest.skip("diffusers is no dependency of bakeoff; install it with: pip install diffusers transformers")
    run(tmp_path, "wan.py", "--videos", "2", "--size", "32", "--frames", "5", "--steps", "2")
    record = record_in(tmp_path)
    calls = {tuple(each["path"])[-1]: each["calls"] for each in record["ranges"] if each["path"]}
    assert calls["transformer"] == 2 * 2 * 2, "two videos of two steps, each with and without the prompt"
    assert calls["scheduler"] == 2 * 2
    assert (calls["decode"], calls["latent frame"], calls["present"]) == (2, 2 * 2, 2)
    assert sum(kind["frames"] for kind in record["units"]) == 2 * 5
    assert [tuple(each["path"]) for each in record["before"] if each["path"]] == [("build",)]
    assert sum(each["own_ns"] for each in record["ranges"]) == record["ns"]
