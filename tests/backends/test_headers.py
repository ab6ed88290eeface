"""Precompiled headers are linked into inductor's folder; what cannot be linked is left to inductor."""

import os
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the headers are torch's")

from torch._inductor import codecache

from bakeoff.backends.compilers import link_headers, precompiled_headers


@pytest.fixture
def inductors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Inductor's folder, which does not exist yet."""
    monkeypatch.setattr(codecache, "_HEADER_DIR", str(tmp_path / "inductor" / "headers"))
    return tmp_path / "inductor" / "headers"


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, ...]:
    files = (tmp_path / "a.h", tmp_path / "a.h.gch")
    for file in files:
        file.write_text(file.name)
    return files


def test_headers_are_linked_and_survive_their_deletion(inductors: Path, made: tuple[Path, ...]) -> None:
    link_headers(made)
    link_headers(made)
    for file in made:
        file.unlink()
    assert {file.name: file.read_text() for file in inductors.iterdir()} == {"a.h": "a.h", "a.h.gch": "a.h.gch"}


def test_libraries_are_linked_to_where_inductor_looks_for_them(
    inductors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    library = tmp_path / "cabcdef.so"
    library.write_text("a library")
    link_headers([library])
    _, folder, wanted = codecache.get_path("cabcdef", "so")
    assert Path(folder).is_relative_to(tmp_path / "cache")
    assert Path(wanted).read_text() == "a library"
    assert not inductors.exists()


def test_what_inductor_has_already_stays(inductors: Path, made: tuple[Path, ...]) -> None:
    inductors.mkdir(parents=True)
    (inductors / "a.h").write_text("its own")
    link_headers(made)
    assert (inductors / "a.h").read_text() == "its own"
    assert (inductors / "a.h.gch").read_text() == "a.h.gch"


def test_no_headers_are_no_folder(inductors: Path) -> None:
    link_headers(())
    assert not inductors.exists()


@pytest.mark.parametrize("obstacle", ["another disk", "gone", "no folder"])
def test_what_cannot_be_linked_is_no_error(
    inductors: Path, made: tuple[Path, ...], obstacle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    if obstacle == "another disk":
        monkeypatch.setattr(os, "link", refuse)
    elif obstacle == "gone":
        made[0].unlink()
    else:
        inductors.parent.write_text("a file")
    link_headers(made)
    assert not (inductors / "a.h").exists()


def test_headers_with_their_sources_are_found(inductors: Path) -> None:
    assert precompiled_headers() == ()
    (inductors / "locks").mkdir(parents=True)
    for name in ("a.h", "a.h.gch", "source-only.h", "clang.h", "clang.h.pch", "sourceless.h.gch"):
        (inductors / name).touch()
    assert [file.name for file in precompiled_headers()] == ["a.h", "a.h.gch"]


def test_a_torch_without_the_folder_does_what_it_did(
    tmp_path: Path, made: tuple[Path, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(codecache, "_HEADER_DIR")
    before = sorted(tmp_path.rglob("*"))
    link_headers(made)
    assert precompiled_headers() == ()
    assert sorted(tmp_path.rglob("*")) == before
