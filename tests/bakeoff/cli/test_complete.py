"""What a shell completes, and the help of `sweep`."""

import subprocess
import sys
from pathlib import Path

import pytest
from records import record

from bakeoff.backends import backend_names
from bakeoff.cli import complete
from bakeoff.models import component_names
from bakeoff.record.store import save


def test_components_and_suites_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert set(complete.subjects("")) >= {*component_names(), "owl"}
    assert complete.subjects("matrix-v") == ["matrix-vae"]
    (tmp_path / "bakeoff.toml").write_text("[suites.nightly]\n[suites.quick]\n")
    assert complete.subjects("@n") == ["@nightly"]
    (tmp_path / "bakeoff.toml").write_text("suites = 3 = 4")
    assert complete.subjects("@") == []


def test_backends_complete_after_a_comma_and_a_plus() -> None:
    assert complete.backends("") == list(backend_names())
    assert "eager,inductor" in complete.backends("eager,ind")
    assert "int8+inductor" in complete.backends("int8+ind")


def test_records_complete_by_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAKEOFF_RUNS", str(tmp_path))
    name = save(tmp_path, record("eager", [1.0]))
    assert complete.records(name[:8]) == [name]
    assert complete.records("x") == []


def test_nothing_imports_torch(tmp_path: Path) -> None:
    code = "from bakeoff.cli import complete; complete.subjects('w'); complete.backends('e'); complete.records('2'); "
    script = f"{code}import sys; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=False).returncode == 0
