"""A shared file is made once, is used only as it was made, and each compiler and version of torch has its own."""

import os
import shutil
import sys
import threading
import time
from pathlib import Path

import pytest

from bakeoff.machine import build_cache, host
from bakeoff.machine.build_cache import header_folder, make_shared


class Builds:
    """Builds that need one header, each in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.shared, self.made = folder, folder / "shared", 0

    def build(self, number: int) -> bytes:
        """Return the header that the build gets."""
        file = self.folder / f"build{number}" / "a.h.gch"
        file.parent.mkdir()

        def make() -> None:
            self.made += 1
            time.sleep(0.1)
            file.write_bytes(b"xy")

        make_shared(self.shared, file, make)
        return file.read_bytes()

    @property
    def copy(self) -> Path:
        (found,) = self.shared.glob("*-a.h.gch")
        return found


@pytest.fixture
def builds(tmp_path: Path) -> Builds:
    return Builds(tmp_path)


def test_the_first_build_makes_it_and_the_others_link_it(builds: Builds) -> None:
    assert [builds.build(number) for number in range(3)] == [b"xy"] * 3
    assert builds.made == 1
    assert builds.copy.stat().st_nlink == 3, "a copy that is replaced does not disappear from a build"


def test_builds_at_once_make_it_once(builds: Builds) -> None:
    threads = [threading.Thread(target=builds.build, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert builds.made == 1


@pytest.mark.parametrize("content", [b"", b"x", b"xz", b"xyz"])
def test_a_damaged_copy_is_made_again(builds: Builds, content: bytes) -> None:
    builds.build(1)
    builds.copy.chmod(0o644)
    builds.copy.write_bytes(content)
    assert builds.build(2) == b"xy"
    assert builds.build(3) == b"xy"
    assert (builds.made, builds.copy.read_bytes()) == (2, b"xy")


@pytest.mark.parametrize("obstacle", ["no folder", "another disk", "full disk"])
def test_a_folder_that_cannot_be_used_costs_each_build_its_own(
    builds: Builds, obstacle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    if obstacle == "no folder":
        builds.shared.write_text("in the way")
    else:
        owner, name = (os, "link") if obstacle == "another disk" else (shutil, "copyfile")
        monkeypatch.setattr(owner, name, refuse)
    assert [builds.build(number) for number in range(2)] == [b"xy"] * 2
    assert builds.made == 2
    assert not list(builds.folder.rglob("*.part"))


def test_an_error_of_the_compiler_is_that_of_the_build(builds: Builds) -> None:
    def fail() -> None:
        raise OSError("no compiler")

    with pytest.raises(OSError, match="no compiler"):
        make_shared(builds.shared, builds.folder / "a.h.gch", fail)
    assert builds.build(1) == b"xy"


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
