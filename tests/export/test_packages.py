"""Packages of AOTInductor: exported as variants of other backends are, and run by a program in C++."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="artifacts are opened with torch")

import torch
from artifacts import EXAMPLES, WARM, called_from_two_threads, check, exported, rewrite
from toys import LIBRARY_WARNINGS

from bakeoff.backends import resolve_backend
from bakeoff.variant import parse_variant

pytestmark = LIBRARY_WARNINGS
WINDOW = "wm:tiny.step4/aoti/fp32@cpu"
INT8 = "toy:tiny.world/int8[least=0]+aoti/fp32@cpu"


def skip_without(variant: str) -> None:
    for use in parse_variant(variant).backends:
        backend = resolve_backend(use.name)
        if gap := backend.unavailable(backend.options(), "cpu"):
            pytest.skip(gap)


def test_quantised_layers_are_exported(tmp_path: Path) -> None:
    skip_without(INT8)
    done = exported(INT8, tmp_path / "artifact", tmp_path / "runs")
    check(done)
    assert done.manifest.quantisation == "dynamic"
    assert called_from_two_threads(done.folder) == "other-thread"


def test_weights_apart_are_stored_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """AOTInductor stores weights of 1 GB or more in a separate file; here weights of one byte or more."""
    skip_without(WINDOW)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "support" / "small_apart"), prepend=os.pathsep)
    done = exported(WINDOW, tmp_path / "artifact", tmp_path / "runs")
    check(done)
    assert all(one.constants[-1] == "step4.constants.safetensors" for one in done.manifest.programs)
    sizes = [file.bytes for name, file in done.manifest.files.items() if name.endswith(".constants.safetensors")]
    assert sum(sizes) < 1.1 * max(sizes), "only a table of positions is another in each program"
    build_and_run_rollout(tmp_path)


def build_and_run_rollout(folder: Path) -> None:
    """The C++ program computes the sample's frames with a small error, without Python."""
    if shutil.which("cmake") is None:
        return
    source, build = EXAMPLES / "cpp", folder / "build"
    found = f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}"
    quick = "-DCMAKE_BUILD_TYPE=None"
    for command in (["cmake", "-S", str(source), "-B", str(build), found, quick], ["cmake", "--build", str(build)]):
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stdout + made.stderr
    ran = subprocess.run([build / "rollout", folder / "artifact"], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    said = re.search(r"10 frames, largest relative error of an output (\S+)\n$", ran.stdout)
    assert said is not None, ran.stdout
    assert WARM.findall(ran.stdout) == ["20"] * 3
    assert re.findall(r"^(\w+) +first call", ran.stdout, re.MULTILINE) == ["context4", "step4", "append4"]
    assert float(said[1]) < 1e-4
    assert refusal(build / "rollout", folder)
    for named, changes in {"cuda": {"device": "cuda"}, "onnx": {"device": "cpu", "artifact": "onnx"}}.items():
        rewrite(folder / "artifact", **changes)
        assert named in refusal(build / "rollout", folder / "artifact")


def refusal(program: Path, artifact: Path) -> str:
    """The line with which the program refuses an artifact."""
    ran = subprocess.run([program, artifact], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr.count("\n")) == (1, 1), ran.stderr
    return ran.stderr
