"""Precompiled headers are used only as they were stored, and each compiler and version of torch has its own."""

import sys
from pathlib import Path

import pytest

from bakeoff.machine import build_cache, host
from bakeoff.machine.build_cache import (
    Stamp,
    describe_header,
    header_folder,
    is_undamaged,
    read_stamp,
    usable_headers,
    write_stamp,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two headers of two bytes each, and their stamp."""
    for name in ("a.h", "a.h.gch"):
        (tmp_path / name).write_bytes(b"xy")
    write_stamp(tmp_path, Stamp(("inductor",), tuple(describe_header(tmp_path / name) for name in ("a.h", "a.h.gch"))))
    return tmp_path


def test_whole_headers_are_used(folder: Path) -> None:
    assert read_stamp(folder).sets == ("inductor",)
    assert is_undamaged(folder, read_stamp(folder))
    assert usable_headers(folder) == (folder / "a.h", folder / "a.h.gch")


@pytest.mark.parametrize("content", [b"", b"x", b"xyz", None])
def test_headers_of_another_size_are_not_used(folder: Path, content: bytes | None) -> None:
    (folder / "a.h.gch").unlink()
    if content is not None:
        (folder / "a.h.gch").write_bytes(content)
    assert usable_headers(folder) == ()
    assert not is_undamaged(folder, read_stamp(folder))


def test_changed_headers_of_the_same_size_are_found_by_their_hash(folder: Path) -> None:
    (folder / "a.h.gch").write_bytes(b"xz")
    assert not is_undamaged(folder, read_stamp(folder))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"sets": ["inductor"]}', None])
def test_a_folder_without_a_readable_stamp_holds_nothing(folder: Path, content: bytes | None) -> None:
    (folder / "stamp.json").unlink()
    if content is not None:
        (folder / "stamp.json").write_bytes(content)
    assert read_stamp(folder) == Stamp((), ())
    assert usable_headers(folder) == ()
    assert read_stamp(folder / "missing") == Stamp((), ())


@pytest.mark.parametrize("change", ["torch", "c++", "compiler", "prefix", "python", "machine"])
def test_what_headers_depend_on_is_in_the_name_of_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    (tmp_path / "g++").touch(mode=0o755)
    before = header_folder(tmp_path)
    assert before == header_folder(tmp_path)
    assert before.parent == tmp_path / "headers"
    versions = dict(host.read_versions())
    monkeypatch.setattr(host, "read_versions", lambda: versions)
    if change in ("torch", "c++"):
        versions[change] = "9.9"
    elif change == "compiler":
        monkeypatch.setenv("CXX", str(tmp_path / "g++"))
    elif change == "prefix":
        monkeypatch.setattr(sys, "prefix", "/elsewhere")
    elif change == "python":
        monkeypatch.setattr(sys, "version", "4.0")
    else:
        other = type("Other", (), {"machine_class": "other"})
        monkeypatch.setattr(build_cache, "this_machine", lambda _device: other)
    assert header_folder(tmp_path) != before
