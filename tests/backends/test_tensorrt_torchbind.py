"""Saved programs with an object of a C++ class under the name of TensorRT's engines, compiled here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="engines are objects of a class that torch registers")

from torch.utils import cpp_extension
from toys import NEEDS_COMPILER

SUPPORT = Path(__file__).resolve().parents[1] / "support"


def compiled(folder: Path) -> Path:
    library = folder / "engine.so"
    headers = [f"-I{path}" for path in cpp_extension.include_paths()]
    libraries = [f"-L{path}" for path in cpp_extension.library_paths()]
    compiler = os.environ.get("CXX", "g++")
    command = [compiler, "-std=c++20", "-O0", "-shared", "-fPIC", *headers, str(SUPPORT / "torchbind_engine.cpp")]
    subprocess.run([*command, "-o", str(library), *libraries, "-ltorch_cpu", "-lc10"], check=True)
    return library


@NEEDS_COMPILER
def test_an_engine_of_the_c_class_is_saved_checked_and_loaded(tmp_path: Path) -> None:
    command = [sys.executable, str(SUPPORT / "torchbind_engine.py"), str(compiled(tmp_path)), str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert "custom_obj_0" in found.pop("refusal"), "only the format with engines lets one through"
    assert found == {
        "class": "ScriptObject",
        "state": ["_run_on_acc_0", "plan"],
        "engines": 1,
        "outside": {},
        "outputs": [[0.0, 2.0, 4.0]],
    }
