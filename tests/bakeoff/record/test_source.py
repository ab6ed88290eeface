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
_PRINT = (
    "from bakeoff.record import source as s; "
    "print(s.code_hash(), s.instrument_hash(), s.component_hash('toy'), s.component_hash('wm'), "
    "s.backend_source('inductor').hash, s.backend_source('onnxruntime').hash, s.backend_source('openvino').hash)"
)
NAMES = ("code", "instrument", "toy", "wm", "inductor", "onnxruntime", "openvino")


def installed(target: Path) -> Path:
    """The packages as a wheel lays them out: models, backends and export inside bakeoff."""
    shutil.copytree(ROOT / "bakeoff", target / "bakeoff")
    for name in ("backends", "models", "export"):
        shutil.copytree(ROOT / name, target / "bakeoff" / name)
    return target


def hashes(folder: Path) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {[str(folder), *sys.path]!r}; {_PRINT}"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(zip(NAMES, done.stdout.split(), strict=True))


def test_a_wheel_and_a_checkout_of_the_same_code_agree(tmp_path: Path) -> None:
    here = (source.code_hash(), source.instrument_hash(), source.component_hash("toy"), source.component_hash("wm"))
    found = hashes(installed(tmp_path))
    assert tuple(found[name] for name in NAMES[:4]) == here
    assert found["inductor"] == source.backend_source("inductor").hash


@pytest.mark.parametrize(
    ("file", "changed"),
    [
        ("models/toy/network.py", {"code", "toy"}),
        ("models/toy/spec.py", {"code", "toy"}),
        ("models/weights.py", {"code", "toy", "wm"}),
        ("backends/onnxruntime/session.py", {"code", "onnxruntime"}),
        ("backends/openvino.py", {"code", "openvino"}),
        ("backends/backend.py", {"code", "inductor", "onnxruntime", "openvino"}),
        ("worker/clocks/clock.py", {"code", "instrument"}),
        ("process/supervisor.py", {"code", "instrument"}),
        ("report/columns.py", set()),
        ("cli/sweep.py", set()),
    ],
)
def test_what_changes_with_a_file(file: str, changed: set[str], tmp_path: Path) -> None:
    folder = installed(tmp_path)
    path = folder / "bakeoff" / file
    path.write_text(path.read_text() + "\n# changed\n")
    before = {
        **dict(zip(NAMES[:4], (source.code_hash(), source.instrument_hash()), strict=False)),
        "toy": source.component_hash("toy"),
        "wm": source.component_hash("wm"),
        **{name: source.backend_source(name).hash for name in ("inductor", "onnxruntime", "openvino")},
    }
    after = hashes(folder)
    assert {name for name in NAMES if after[name] != before[name]} == changed


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
