"""Hashes of source: they change with the code that decides a number, and with nothing else."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import bakeoff
from bakeoff.models.errors import BakeoffError
from bakeoff.record import source

ROOT = Path(bakeoff.__path__[0]).parent
NAMES = ("code", "instrument", "toy", "wm", "inductor", "onnxruntime", "openvino")
CHANGED: dict[str, set[str]] = {
    "": set(),
    "models/toy/network.py": {"code", "toy"},
    "models/toy/spec.py": {"code", "toy"},
    "models/weights.py": {"code", "toy", "wm"},
    "backends/onnxruntime/session.py": {"code", "onnxruntime"},
    "backends/openvino.py": {"code", "openvino"},
    "backends/backend.py": {"code", "inductor", "onnxruntime", "openvino"},
    "worker/clocks/clock.py": {"code", "instrument"},
    "process/supervisor.py": {"code", "instrument"},
    "report/columns.py": set(),
    "cli/sweep.py": set(),
}
"""Files of the package, and what changes with each; "": nothing, in a wheel of the checkout."""
SCRIPT = """
import os, sys
from pathlib import Path
sys.path[:0] = {places}
from bakeoff.record import source as s
for file in {files}:
    path = Path("bakeoff", file)
    text = path.read_text() if file else ""
    if file:
        path.write_text(text + "\\n# changed\\n")
    if os.fork() == 0:  # hashes are kept for a process
        components = [s.component_hash(name) for name in ("toy", "wm")]
        backends = [s.backend_source(name).hash for name in ("inductor", "onnxruntime", "openvino")]
        print(s.code_hash(), s.instrument_hash(), *components, *backends, flush=True)
        os._exit(0)
    os.wait()
    if file:
        path.write_text(text)
"""


@pytest.fixture(scope="module")
def hashes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """By the file that is changed, in a folder that is laid out as a wheel: models, backends and export inside."""
    folder = tmp_path_factory.mktemp("installed")
    shutil.copytree(ROOT / "bakeoff", folder / "bakeoff")
    for name in ("backends", "models", "export"):
        shutil.copytree(ROOT / name, folder / "bakeoff" / name)
    script = SCRIPT.format(places=[str(folder), *sys.path], files=[*CHANGED])
    command = [sys.executable, "-S", "-c", script]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    lines = [dict(zip(NAMES, line.split(), strict=True)) for line in done.stdout.splitlines()]
    return dict(zip(CHANGED, lines, strict=True))


@pytest.mark.parametrize("file", CHANGED)
def test_what_changes_with_a_file(file: str, hashes: dict[str, dict[str, str]]) -> None:
    here = {"code": source.code_hash(), "instrument": source.instrument_hash()}
    here |= {name: source.component_hash(name) for name in ("toy", "wm")}
    here |= {name: source.backend_source(name).hash for name in ("inductor", "onnxruntime", "openvino")}
    assert {name for name in NAMES if hashes[file][name] != here[name]} == CHANGED[file]


def test_a_components_hash_is_of_what_draws_its_weights_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before, where = source.component_hash("toy"), source._module_file
    other = tmp_path / "weights.py"
    other.write_text("# drawn in another way\n")
    monkeypatch.setattr(source, "_module_file", lambda name: other if name == "bakeoff.models.weights" else where(name))
    assert source.component_hash("toy") != before


def test_a_backend_of_the_user_is_named_by_reference_and_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_source.py").write_text(
        "from bakeoff.backends.backend import Backend\nBACKEND = Backend('mine', 'mine')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    found = source.backend_source("mine_source:BACKEND")
    assert (found.name, found.reference, found.file) == ("mine", "mine_source:BACKEND", "mine_source.py")
    assert len(found.hash) == 12


def test_a_module_that_is_gone_is_named() -> None:
    with pytest.raises(BakeoffError, match="nowhere_at_all") as error:
        source._module_file("nowhere_at_all")
    assert error.value.code == "bad-user-code"
