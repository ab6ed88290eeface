"""The search for compilers, headers and the CUDA toolkit, in a host's folders made up by the test."""

import sysconfig
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
        return found.capability.missing(options, device)


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


def test_triton_needs_pythons_headers(host: FakeHost) -> None:
    host.program("gcc")
    (host.folder / "python" / "Python.h").unlink()
    gap = host.gap("inductor") or ""
    assert f"{host.folder}/python/Python.h does not exist; install python3-dev" in gap


def test_a_cpu_needs_a_cpp_compiler_alone(host: FakeHost) -> None:
    host.program("gcc", "clang++")  # inductor looks for $CXX, else for g++ alone
    for backend in ("inductor", "aoti"):
        assert host.gap(backend, "cpu") == "no C++ compiler found (looked for $CXX and g++); install g++"
    host.program("g++")
    for backend in ("inductor", "aoti"):
        assert host.gap(backend, "cpu") is None
    host.monkeypatch.setenv("CXX", "g++-99")
    assert "CXX='g++-99' is not a program" in (host.gap("inductor", "cpu") or "")


def test_ahead_of_time_on_cuda_needs_a_cpp_compiler(host: FakeHost) -> None:
    host.program("gcc")
    assert host.gap("inductor") is None
    assert "no C++ compiler found" in (host.gap("aoti") or "")


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


def test_looks_last_where_the_toolkit_usually_is(host: FakeHost) -> None:
    host.program("gcc", "g++")
    host.monkeypatch.setattr(compilers, "_USUAL_TOOLKIT", str(host.folder / "usual"))
    assert f"({host.folder}/usual/include/cuda_runtime_api.h does not exist; looked at" in (host.gap("aoti") or "")
    host.header(host.folder / "usual/include/cuda_runtime_api.h")
    assert host.gap("aoti") is None
