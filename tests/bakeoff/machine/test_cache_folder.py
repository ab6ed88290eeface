"""The cache folder is measured by kind, and clearing removes nothing else, even with links and races."""

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from records import Ran, bakeoff

from bakeoff.machine import build_cache, paths
from bakeoff.machine.locks import device_lock
from bakeoff.models.errors import ErrorCode

FILES = {
    "compiled/aaaa/inductor/x.so": 3_000_000,
    "compiled/bbbb-build2/y.so": 200_000,
    "headers/1234/a.h.gch": 10_000,
    "references/toy-tiny-world-1234/set0.safetensors": 2_000,
    "brought/net-live-1234/about.json": 300,
    "live/1234/net/live.json": 40,
    "logs/20260102T030400-abcdef/toy.log": 5,
    "traces/20260102T030400-abcdef/toy.json.gz": 6,
    "work/bakeoff-1234/model.pt2": 7,
}
KEPT = {
    "locks/cpu.lock": 0,
    "sweeps/20260102T030400-abcdef.json": 1,
    "selftest.json": 2,
    "checkpoints.json": 3,
    "somebody's/thesis.txt": 4,
    "a\udcff\n": 5,
}
"""With a name that is no text."""


@pytest.fixture
def folder() -> Path:
    root = paths.cache_folder()
    for name, size in (FILES | KEPT).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(bytes(size))
    return root


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder outside of the cache."""
    (tmp_path / "precious/toy-tiny-world-1234").mkdir(parents=True)
    (tmp_path / "precious/thesis.txt").write_text("years of work")
    return tmp_path / "precious"


def all_files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}


class TestSize:
    def test_by_kind(self, folder: Path) -> None:
        found = build_cache.measure(folder)
        assert found == {"builds": 3_210_000, "references": 2_000, "models": 340, "logs": 18, "kept": 15}
        assert sum(found.values()) == sum((FILES | KEPT).values())


class TestClearing:
    def test_what_takes_room(self, folder: Path) -> None:
        assert build_cache.clear(folder) == []
        assert all_files(folder) == set(KEPT)

    def test_nothing_outside_is_deleted_by_links(self, folder: Path, outside: Path, tmp_path: Path) -> None:
        (folder / "compiled/aaaa/deep").symlink_to(outside)
        (folder / "compiled/aaaa/file").symlink_to(outside / "thesis.txt")
        shutil.rmtree(folder / "references")
        (folder / "references").symlink_to(outside)
        (tmp_path / "link").symlink_to(folder)
        assert build_cache.clear(tmp_path / "link") == [tmp_path / "link/references"]
        assert all_files(folder) == set(KEPT)
        assert (folder / "references").is_symlink()
        assert all_files(outside) == {"thesis.txt"}
        assert (outside / "toy-tiny-world-1234").is_dir()

    def test_a_folder_that_becomes_a_link_meanwhile(
        self, folder: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        opened = os.open

        def racing(path: Any, *arguments: Any, **more: Any) -> int:
            if str(path) == "aaaa":
                shutil.move(folder / "compiled/aaaa", folder / "moved")
                (folder / "compiled/aaaa").symlink_to(outside)
            return opened(path, *arguments, **more)

        monkeypatch.setattr(os, "open", racing)
        build_cache.clear(folder)
        assert all_files(outside) == {"thesis.txt"}

    def test_files_that_are_deleted_meanwhile(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        unlink = os.unlink

        def racing(path: Any, **more: Any) -> None:
            with suppress(OSError):
                unlink(path, **more)
            unlink(path, **more)  # gone by now

        monkeypatch.setattr(os, "unlink", racing)
        assert build_cache.clear(folder) == []


class TestBuilds:
    def test_a_folder_is_warm_once_a_build_in_it_succeeded(self, tmp_path: Path) -> None:
        assert not build_cache.is_warm(tmp_path / "x")
        build_cache.open_folder(tmp_path / "x")
        assert not build_cache.is_warm(tmp_path / "x")
        (tmp_path / "x/kernel.so").touch()  # of a build that was killed
        assert not build_cache.is_warm(tmp_path / "x")
        build_cache.mark_finished(tmp_path / "x")
        assert build_cache.is_warm(tmp_path / "x")

    def test_what_filled_the_caches_first_says_whether_other_builds_ran(self, tmp_path: Path) -> None:
        for name, beside in (("x", True), ("y", False)):
            build_cache.open_folder(tmp_path / name)
            assert not build_cache.was_built_beside(tmp_path / name)
            build_cache.mark_finished(tmp_path / name, beside)
            build_cache.mark_finished(tmp_path / name, not beside)  # a warm build changes nothing
            assert build_cache.was_built_beside(tmp_path / name) == beside


class TestCommand:
    """Through the real command line."""

    def run(self, what: str, *arguments: str, **environment: str | None) -> Ran:
        ran = bakeoff("doctor", "--cache", what, *arguments, cwd=paths.cache_folder().parent, **environment)
        assert "Traceback" not in ran.err
        return ran

    def refuses(self, *arguments: str, code: ErrorCode, says: str, **environment: str | None) -> None:
        """One error line that ends with `[code]` and names `says`, exit code 2 and nothing on stdout."""
        ran = self.run(*arguments, **environment)
        assert (ran.code, ran.out) == (2, "")
        assert len(ran.said) == 1, ran.err
        assert ran.said[0].endswith(f" [{code}]"), ran.said[0]
        assert says in ran.said[0]

    def test_shows_and_clears(self, folder: Path) -> None:
        assert [line.split() for line in self.run("show").out.splitlines()] == [
            ["3.1", "MiB", "in", str(folder)], [], ["kind", "MiB"], ["----------", "---"], ["builds", "3.1"],
            ["references", "0.0"], ["models", "0.0"], ["logs", "0.0"], ["kept", "0.0"],
        ]  # fmt: skip
        found = json.loads(self.run("show", "--json").out)
        assert (list(found), found["bytes"]) == (["folder", "bytes", "kinds"], sum((FILES | KEPT).values()))
        assert self.run("clear").out == "freed 3.1 MiB\n"
        assert set(KEPT) <= all_files(folder)
        assert not set(FILES) & all_files(folder)
        assert json.loads(self.run("clear", "--json").out) == {"folder": str(folder), "freed_bytes": 0}

    def test_clear_is_refused_while_the_cache_is_used(self, folder: Path) -> None:
        with device_lock("cpu", print, folder):
            before = all_files(folder)
            self.refuses("clear", code="busy", says=f"pid {os.getpid()} of")
            assert self.run("show").code == 0
            assert all_files(folder) == before
        assert self.run("clear").code == 0

    def test_absent_or_wrong_folders(self, tmp_path: Path) -> None:
        for what in ("show", "clear"):
            self.refuses(what, code="not-readable", says=str(tmp_path / "cache"))
        assert not (tmp_path / "cache").exists()
        (tmp_path / "file").touch()
        for what in ("show", "clear"):
            file = str(tmp_path / "file")
            self.refuses(what, code="not-readable", says=file, BAKEOFF_CACHE=file)

    def test_unwritable(self) -> None:
        folder = "/proc/self/fdinfo"
        self.refuses("clear", code="not-writable", says=folder, BAKEOFF_CACHE=folder)
