"""The commands in error messages keep the torch that is installed."""

import re
import tomllib
from pathlib import Path

import pytest

from bakeoff.backends import install

ROOT = Path(__file__).resolve().parents[2]


def fake_torch(monkeypatch: pytest.MonkeyPatch, torch: str) -> None:
    monkeypatch.setattr(install, "version", {"torch": torch}.__getitem__)


@pytest.mark.parametrize(
    ("torch", "command"),
    [
        ("2.13.0+cu130", "make install TENSORRT=1 (or pip install -c constraints.txt -e '.[gpu,tensorrt,modelopt]')"),
        (
            "2.11.0",
            "make install TENSORRT=1 CONSTRAINTS=constraints-torch-2.11.txt "
            "(or pip install -c constraints-torch-2.11.txt -e '.[gpu,tensorrt,modelopt]')",
        ),
        ("2.12.1", "pip install 'torch==2.12.1' 'torch-tensorrt==2.12.*'"),
    ],
)
def test_tensorrt_for_the_installed_torch(monkeypatch: pytest.MonkeyPatch, torch: str, command: str) -> None:
    fake_torch(monkeypatch, torch)
    assert install.tensorrt_command() == command


@pytest.mark.parametrize("torch", ["2.11.0", "2.13.0"])
def test_the_constraints_named_pin_this_torch(monkeypatch: pytest.MonkeyPatch, torch: str) -> None:
    fake_torch(monkeypatch, torch)
    for command in (
        install.tensorrt_command(),
        install.modelopt_command(),
        install.onnxruntime_gpu_command(),
    ):
        named = re.search(r"-c (\S+)", command)
        assert named is not None
        assert f"\ntorch=={torch}\n" in (ROOT / named[1]).read_text(encoding="utf-8")


@pytest.mark.parametrize("command", [install.tensorrt_command(), install.modelopt_command()])
def test_the_extras_named_exist(command: str) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    named = re.search(r"\.\[([\w,]+)\]", command)
    assert named is not None
    assert set(named[1].split(",")) <= set(extras)


def test_onnxruntime_gpu_replaces_onnxruntime(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_torch(monkeypatch, "2.11.0")
    command = (
        "pip uninstall --yes onnxruntime onnxruntime-gpu; pip install -c constraints-torch-2.11.txt onnxruntime-gpu"
    )
    assert install.onnxruntime_gpu_command() == command
    fake_torch(monkeypatch, "2.14.1")
    assert install.onnxruntime_gpu_command().endswith("; pip install onnxruntime-gpu")
