"""What inductor compiles before any graph is shared between builds, and what it compiles for a graph is not."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the headers are torch's")

from torch._inductor import cpp_builder, cpu_vec_isa

from bakeoff.backends.torch_internals import compiled_once


class Builder:
    """A CppBuilder that notes what it compiles."""

    built: list[str]

    def __init__(self, file: str) -> None:
        self.file = file

    def get_target_file_path(self) -> str:
        return self.file

    def build(self) -> None:
        self.built.append(self.file)


class Vectors:
    def check_build(self, code: str) -> bool:
        Builder(f"{code}.so").build()
        return True


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(Builder, "built", [], raising=False)
    monkeypatch.setattr(cpp_builder, "CppBuilder", Builder)
    monkeypatch.setattr(cpu_vec_isa, "VecISA", Vectors)
    return Builder.built


def test_headers_and_checks_are_shared_and_kernels_are_not(built: list[str]) -> None:
    shared: list[Path] = []

    def share(file: Path, make: Any) -> None:
        shared.append(file)
        if file.suffix == ".gch":
            make()

    usual = Builder.build, Vectors.check_build
    with compiled_once(share):
        for file in ("kernel.so", "a.h.gch", "clang.h.pch"):
            Builder(file).build()
        assert Vectors().check_build("avx512")
        Builder("other.so").build()
    assert shared == [Path("a.h.gch"), Path("avx512.so")]
    assert built == ["kernel.so", "a.h.gch", "clang.h.pch", "other.so"]
    assert (Builder.build, Vectors.check_build) == usual
