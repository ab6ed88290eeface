"""A host whose torch pip does not know, as one of a container, of conda or built from source, plans and exports."""

import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace

import pytest
from artifacts import check, exported
from fake_nvml import FakeNvml, whole_gpu

from bakeoff.backends import install
from bakeoff.backends.format import HostRequirement
from bakeoff.export import requirements
from bakeoff.machine import gpus, host
from bakeoff.machine.identity import this_machine
from bakeoff.plan.plan import make_plan
from bakeoff.plan.request import Request
from bakeoff.report.pages import doctor
from bakeoff.report.render import terminal

UUID = "11111111-0000-0000-0000-000000000000"
STATED = """from typing import Optional

__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip', 'rocm', 'xpu']
__version__ = '2.13.0a0+gitcf30153'
debug = False
cuda: Optional[str] = '13.0'
git_version = 'cf30153c4c131c8164ee7798e5022d810682e2cb'
hip: Optional[str] = None
rocm: Optional[str] = None
xpu: Optional[str] = None
"""
"""torch/version.py of the wheel 2.13.0+cpu, with the version of a build from source and with a CUDA version."""
CACHES = (host.read_host, host.read_versions, this_machine)


def no_distribution(name: str) -> str:
    raise PackageNotFoundError(name)


@pytest.fixture(autouse=True)
def _unknown_to_pip(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(install, "version", no_distribution)
    for cached in CACHES:
        cached.cache_clear()
    yield
    for cached in CACHES:
        cached.cache_clear()


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A build for CUDA, whose package cannot be imported, and a GPU."""
    folder = tmp_path / "torch"
    folder.mkdir()
    (folder / "version.py").write_text(STATED)
    spec = SimpleNamespace(submodule_search_locations=[str(folder)])
    monkeypatch.setattr(install, "find_spec", {"torch": spec}.get)
    monkeypatch.delenv(gpus.VISIBLE, raising=False)
    monkeypatch.setattr(gpus, "_told_by_driver", lambda: None)
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml([whole_gpu(UUID)]))
    return folder


@pytest.mark.usefixtures("own")
def test_it_is_found_by_what_it_states() -> None:
    assert host.read_versions()["torch"] == "2.13.0a0+gitcf30153"
    assert host.cuda_runtime() == "13.0"
    assert host.missing_device("cuda") is None
    assert "'torch==2.13.0a0+gitcf30153' 'torch-tensorrt==2.13.*'" in install.tensorrt_command()
    assert "torch is not installed" not in terminal.render(doctor.page(doctor.read()))


@pytest.mark.usefixtures("own")
def test_it_meets_what_its_own_artifacts_need() -> None:
    names = ("torch", "cuda", "driver", "compute capability")
    needs = requirements.with_host_values([HostRequirement(name, "at least") for name in names], requirements.facts())
    assert [(need.what, need.value) for need in needs[:2]] == [("torch", "2.13.0a0"), ("cuda", "13.0")]
    assert len(needs) == 4
    assert requirements.unmet(needs, requirements.facts()) == ()
    (unmet,) = requirements.unmet([HostRequirement("cuda", "at least", "13.1")], requirements.facts())
    assert "pip install" not in unmet


@pytest.mark.usefixtures("own")
def test_a_sweep_on_its_gpu_is_planned() -> None:
    asked = Request("toy", ("tiny",), ("world",), ("eager",), dtypes=("bf16",), device="cuda", threads=1)
    rows = make_plan(asked).rows
    assert rows
    assert not any(row.precheck for row in rows)


def test_of_a_build_for_cpus_alone_that_is_said(own: Path) -> None:
    (own / "version.py").write_text(STATED.replace("'13.0'", "None").replace("2.13.0a0+gitcf30153", "2.13.0+cpu"))
    assert host.cuda_runtime() == ""
    assert "built for CPUs" in str(host.missing_device("cuda"))


def test_another_interpreter_s_is_read_too(own: Path, tmp_path: Path) -> None:
    """A program in the interpreter's place, which prints what that would: no torch among the distributions."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho \'[{{"numpy": "2.4.6"}}, ["{own}"]]\'\n')
    python.chmod(0o755)
    assert host.read_versions(str(python))["torch"] == "2.13.0a0+gitcf30153"


def test_it_exports(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = exported("toy:tiny.picture/torch.export/fp32@cpu", tmp_path / "artifact", tmp_path / "runs")
    check(done)
    (need,) = done.manifest.needs
    assert need == HostRequirement("torch", "at least", install.torch_version().partition("+")[0])
