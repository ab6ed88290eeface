"""The parent's descriptions of pipelines: made by a worker, once for each code, preset and options."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from lab import Recorder

pytest.importorskip("torch", reason="workers need it")

from bakeoff.bring.bring import bring
from bakeoff.models.brought.about import read_about
from bakeoff.models.pipelines.pipeline import Loop
from bakeoff.pipeline.describe import described_loop
from bakeoff.plan.brought import brought_reference

LOOP = """
from bakeoff.models.pipelines.pipeline import BuiltIn, Pipeline

class Loop(Pipeline):
    def modules(self):
        return {"image": BuiltIn("toy", "tiny")}

    def given(self, unit, draw):
        return {"z": draw("z", (1, 32, 16, 16), slot="image")}

    def step(self, state, given, run):
        return state, {"image": run.image.picture(z=given["z"])["image"]}
"""

NET = """
import torch

from bakeoff import Pipeline

class Loop(Pipeline):
    def modules(self):
        return {"net": torch.nn.Linear(4, 4).eval()}

    def given(self, unit, draw):
        return {"x": draw("x", (1, 4))}

    def step(self, state, given, run):
        return state, {"y": run.net(given["x"])}
"""


def described(file: Path, progress: Recorder, preset: str = "") -> Loop:
    return described_loop(f"{file}:Loop", preset, {}, "cpu", 1, 0, progress)


def test_a_loop_is_described_once_and_anew_after_an_edit(tmp_path: Path) -> None:
    file, progress = tmp_path / "mine.py", Recorder()
    file.write_text(LOOP)
    first = described(file, progress)
    assert first.calls() == {("image", "picture"): 1}
    assert described(file, progress) == first
    file.write_text(LOOP.replace("return state, {", "run.image.picture(z=given['z'])\n        return state, {"))
    assert described(file, progress).calls() == {("image", "picture"): 2}
    assert [what for kind, what in progress.told if kind == "start"] == [f"describing {file}:Loop"] * 2


def test_a_dry_run_of_owl_imports_no_torch(tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "bakeoff", "pipeline", "owl:tiny", "--dry-run"]
    folders = {f"BAKEOFF_{name}": str(tmp_path / name) for name in ("CACHE", "RUNS", "LOCKS")}
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, **folders}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    imported = {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}
    assert "bakeoff.cli" in imported
    assert "torch" not in imported
    assert [line for line in lines if line.startswith("describing owl: started")]
    assert "wm.step4" in done.stdout


def test_a_loop_is_the_same_one_from_wherever_it_is_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a name of its module means it in its file's folder, however it was typed."""
    (tmp_path / "mine.py").write_text(NET)
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path)
    progress = Recorder()
    loop = described_loop("mine.py:Loop", "", {}, "cpu", 1, 0, progress)
    described = bring(loop.slots[0].component, 0, 1, progress)
    monkeypatch.chdir(tmp_path / "below")
    again = described_loop("../mine.py:Loop", "", {}, "cpu", 1, 0, progress)
    assert again == replace(loop, reference="../mine.py:Loop")
    assert bring(again.slots[0].component, 0, 1, progress) == described
    assert read_about(Path(described)).source.typed == f"{tmp_path.resolve()}/mine.py:Loop"
    assert brought_reference("mine.net") == described
