"""What `make gpu-evidence` does, with a bakeoff that only notes how it is called; and that its real plans exist."""

import os
import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).resolve().parents[1] / "tools" / "gpu-evidence"
STEPS = ("torch", "onnxruntime", "tensorrt")


def evidence(folder: Path, **settings: str) -> list[str]:
    environment = {**os.environ, "OUT": str(folder / "evidence"), "MODELS": "wm image", **settings}
    ran = subprocess.run(
        [str(TOOL)], env=environment, cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.stderr == ""
    return ran.stdout.splitlines()


def pretend(folder: Path, fails: str) -> Path:
    """A folder with a `bakeoff` and a `python` that note their arguments; a call that holds `fails` exits 1."""
    bin_folder = folder / "bin"
    bin_folder.mkdir(exist_ok=True)
    for name in ("bakeoff", "python"):
        script = bin_folder / name
        script.write_text(
            f'#!/bin/sh\necho "{name} $*" >> {folder}/called\necho said\ncase "$*" in *"{fails}"*) exit 1;; esac\n'
        )
        script.chmod(0o755)
    return bin_folder


def called(folder: Path) -> list[str]:
    lines = (folder / "called").read_text().splitlines()
    (folder / "called").unlink()
    return lines


def test_a_failure_stops_nothing_and_is_all_that_a_second_call_repeats(tmp_path: Path) -> None:
    bin_folder = str(pretend(tmp_path, "sweep image --device cuda --dtype bf16 --backends eager"))
    said = evidence(tmp_path, BIN=bin_folder)
    first = called(tmp_path)
    assert first[0] == "python -m pytest -q -m gpu"
    assert first[1] == "bakeoff selftest"
    sweeps = [line for line in first if "sweep" in line]
    assert [line.split()[2] for line in sweeps] == ["wm", "image"] * len(STEPS)
    assert all("--device cuda" in line and "--no-final" in line for line in sweeps)
    assert any(line.startswith("torch-image") and "exit 1" in line for line in said)
    exports = [line.split()[2:5] for line in first if line.startswith("bakeoff export")]
    assert exports[:2] == [["wm", "--backend", "aoti"], ["wm", "--backend", "tensorrt-aot"]]
    assert len(exports) == 2 * 4
    evidence(tmp_path, BIN=str(pretend(tmp_path, "never")))
    assert [line for line in called(tmp_path) if "sweep" in line] == [
        line for line in sweeps if "image" in line and "eager" in line
    ]


def test_every_plan_exists(tmp_path: Path) -> None:
    """A name or an option that no backend has would be found here; without a GPU the plans are the CPU's."""
    said = evidence(tmp_path, BIN=str(Path(sys.executable).parent), DRY="1", MODELS="toy")
    assert [(line.split()[0], line.split()[1]) for line in said] == [(f"{step}-toy", "ok") for step in STEPS]
    assert not list((tmp_path / "evidence" / "done").iterdir())
