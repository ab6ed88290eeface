"""The commands in error messages keep the torch that is installed."""

import re
from pathlib import Path

import pytest

from bakeoff.backends import install

ROOT = Path(__file__).resolve().parents[2]


def fake_torch(monkeypatch: pytest.MonkeyPatch, torch: str) -> None:
    monkeypatch.setattr(install, "version", {"torch": torch}.__getitem__)


@pytest.mark.parametrize(
    ("torch", "inside"),
    [
        ("2.13.0+cu130", " (in a checkout: make install TENSORRT=1)"),
        ("2.11.0", " (in a checkout: make install TENSORRT=1 CONSTRAINTS=constraints-torch-2.11.txt)"),
        ("2.12.1", ""),
    ],
)
def test_tensorrt_for_the_installed_torch(monkeypatch: pytest.MonkeyPatch, torch: str, inside: str) -> None:
    fake_torch(monkeypatch, torch)
    command = f"pip install 'torch=={torch}' 'torch-tensorrt=={torch[:4]}.*'{inside}"
    assert install.tensorrt_command() == command
    assert install.modelopt_command().startswith(f"pip install 'torch=={torch}' ")


@pytest.mark.parametrize("torch", ["2.11.0", "2.13.0"])
def test_the_constraints_named_pin_this_torch(monkeypatch: pytest.MonkeyPatch, torch: str) -> None:
    fake_torch(monkeypatch, torch)
    named = re.search(r"-c (\S+)\)", install.onnxruntime_gpu_command())
    assert named is not None
    assert f"\ntorch=={torch}\n" in (ROOT / named[1]).read_text(encoding="utf-8")


def test_no_message_or_page_has_pip_look_the_project_up_by_its_bare_name() -> None:
    """Nobody has published it, so that an index may hold another package of that name."""
    places = [path for folder in ("backends", "bakeoff", "export", "models") for path in (ROOT / folder).rglob("*.py")]
    for path in [*places, ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        assert not re.search(r"pip install [^\n`]*\bbakeoff\[", path.read_text(encoding="utf-8")), path
