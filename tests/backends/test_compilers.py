"""The search for compilers, headers and the CUDA toolkit, in a host's folders made up by the test."""

import sysconfig
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest

from bakeoff.backends import compilers, resolve_backend


class FakeHost:
    """Programs in a folder that is the only one on PATH; no compiler is named by the environment."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.programs, self.monkeypatch = folder, folder / "toolkit" / "bin", monkeypatch
        self.programs.mkdir(parents=True)
        monkeypatch.setenv("PATH", str(self.programs))
        for name in ("CC", "CXX", "CUDA_HOME", "CUDA_PATH"):
            monkeypatch.delenv(name, raising=False)
        self.header(self.folder / "python" / "Python.h")
        monkeypatch.setattr(sysconfig, "get_paths", self.paths)
        monkeypatch.setattr(compilers, "find_spec", self.find)
        monkeypatch.setattr(compilers, "_USUAL_TOOLKIT", str(folder / "usual"))

    def find(self, name: str) -> ModuleSpec | None:
        """The namespace package `nvidia`, once a wheel of CUDA lies in the folder `site`."""
        assert name == "nvidia"
        if not (self.folder / "site/nvidia").exists():
            return None
        spec = ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = [str(self.folder / "site/nvidia")]
        return spec

    def paths(self, scheme: str) -> dict[str, str]:
        assert scheme in sysconfig.get_scheme_names()
        return {"include": str(self.folder / "python")}

    def program(self, *names: str) -> None:
        for name in names:
            (self.programs / name).touch(mode=0o755)

    def header(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    def gap(self, backend: str, device: str = "cuda") -> str | None:
        found = resolve_backend(backend)
        options: Any = found.options()
        return found.missing(options, device)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    return FakeHost(tmp_path, monkeypatch)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("backend", ["inductor", "aoti"])
def test_triton_needs_a_c_compiler(host: FakeHost, backend: str, compiler: str) -> None:
    host.program("g++")  # Triton does not take it
    host.header(host.folder / "toolkit/include/cuda_runtime_api.h")
    host.monkeypatch.setenv("CUDA_HOME", str(host.folder / "toolkit"))
    assert host.gap(backend) == ("Triton needs a C compiler and found none (looked for $CC, gcc, clang); install gcc")
    host.program(compiler)
    assert host.gap(backend) is None


def test_triton_takes_cc_and_nothing_else_where_it_is_set(host: FakeHost) -> None:
    host.program("gcc")
    host.monkeypatch.setenv("CC", "ccache gcc")
    assert "CC='ccache gcc' is not a program" in (host.gap("inductor") or "")
    host.monkeypatch.setenv("CC", str(host.programs / "gcc"))
    assert host.gap("inductor") is None


def test_a_cpu_needs_a_cpp_compiler_alone(host: FakeHost) -> None:
    host.program("gcc", "clang++")  # inductor looks for $CXX, else for g++ alone
    for backend in ("inductor", "aoti"):
        assert host.gap(backend, "cpu") == "no C++ compiler found (looked for $CXX and g++); install g++"
    host.program("g++")
    for backend in ("inductor", "aoti"):
        assert host.gap(backend, "cpu") is None
    host.monkeypatch.setenv("CXX", "g++-99")
    assert "CXX='g++-99' is not a program" in (host.gap("inductor", "cpu") or "")


@pytest.mark.parametrize("variable", ["CUDA_HOME", "CUDA_PATH", ""])
def test_ahead_of_time_on_cuda_needs_the_toolkit(host: FakeHost, variable: str) -> None:
    """The variables win over nvcc, as in torch/utils/cpp_extension.py."""
    host.program("gcc", "g++", "nvcc")
    gap = host.gap("aoti") or ""
    assert f"no CUDA toolkit found ({host.folder}/toolkit/include/cuda_runtime_api.h does not exist" in gap
    assert "set CUDA_HOME to it" in gap
    if variable:
        host.monkeypatch.setenv(variable, str(host.folder / "other"))
        host.header(host.folder / "toolkit/include/cuda_runtime_api.h")
        assert f"({host.folder}/other/include" in (host.gap("aoti") or "")
        host.header(host.folder / "other/include/cuda_runtime_api.h")
    else:
        host.header(host.folder / "toolkit/include/cuda_runtime_api.h")
    assert host.gap("aoti") is None


WHEELS = ("cuda_runtime_api.h", "crt/host_defines.h", "nv/target")
"""A header of nvidia-cuda-runtime, nvidia-cuda-crt and nvidia-cuda-cccl, each in its wheel of CUDA 13.0."""


def environment(host: FakeHost) -> dict[str, str]:
    """What the backend sets for a worker, without the folders of its caches."""
    found = resolve_backend("aoti").environment(host.folder / "cache")
    return {name: value for name, value in found.items() if not name.endswith("_CACHE_DIR")}


@pytest.mark.parametrize("nvcc", [True, False])
def test_takes_the_toolkit_of_torchs_wheels_where_the_host_has_none(host: FakeHost, nvcc: bool) -> None:
    """With nvcc too, if no header lies beside it."""
    host.program("gcc", "g++", *(("nvcc",) if nvcc else ()))
    home = host.folder / "site/nvidia/cu13"
    for header in WHEELS:
        assert "no CUDA toolkit found" in (host.gap("aoti") or "")
        assert environment(host) == {}
        host.header(home / "include" / header)
    assert host.gap("aoti") is None
    assert environment(host) == {"CUDA_HOME": str(home)}


@pytest.mark.parametrize("variable", ["CUDA_HOME", "CUDA_PATH"])
def test_a_named_toolkit_is_taken_and_no_other(host: FakeHost, variable: str) -> None:
    host.program("gcc", "g++")
    for header in WHEELS:
        host.header(host.folder / "site/nvidia/cu13/include" / header)
    host.monkeypatch.setenv(variable, str(host.folder / "other"))
    assert f"({host.folder}/other/include" in (host.gap("aoti") or "")
    assert environment(host) == {}


def test_the_toolkit_of_the_host_goes_before_that_of_the_wheels(host: FakeHost) -> None:
    host.program("gcc", "g++")
    for header in WHEELS:
        host.header(host.folder / "site/nvidia/cu13/include" / header)
    host.header(host.folder / "usual/include/cuda_runtime_api.h")
    assert host.gap("aoti") is None
    assert environment(host) == {}
