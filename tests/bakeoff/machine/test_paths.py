"""Folders are taken from the BAKEOFF_* variables, else the XDG variables, else the home folder."""

import subprocess
from pathlib import Path

import pytest

from bakeoff.machine import paths


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An installation outside a checkout, with a home folder and no variables set."""
    for name in ("BAKEOFF_RUNS", "BAKEOFF_CACHE", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(paths, "checkout", lambda: None)
    return tmp_path


def test_xdg_variables_are_followed(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(installed / "c"))
    monkeypatch.setenv("XDG_DATA_HOME", str(installed / "d"))
    assert paths.cache_folder() == installed / "c" / "bakeoff"
    assert paths.runs_folder() == installed / "d" / "bakeoff" / "runs"


def test_own_variables_come_first(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(installed / "c"))
    monkeypatch.setenv("BAKEOFF_CACHE", str(installed / "own"))
    monkeypatch.setenv("BAKEOFF_RUNS", str(installed / "r"))
    assert paths.cache_folder() == installed / "own"
    assert paths.runs_folder() == installed / "r"
    assert paths.runs_folder(installed / "asked") == installed / "asked"


def git(folder: Path, *words: str) -> str:
    named = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    return subprocess.run(
        ["git", *named, *words], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A checkout of this project with one commit, which this process takes for its own."""
    (tmp_path / "bakeoff").mkdir()
    for name in ("pyproject.toml", "bakeoff/variant.py"):
        (tmp_path / name).touch()
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "one")
    monkeypatch.setattr(paths, "_HERE", tmp_path)
    return tmp_path


@pytest.mark.parametrize("owner", ["this user", "another user"])
def test_the_commit_of_a_checkout(owner: str, checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = git(checkout, "rev-parse", "HEAD")
    if owner == "another user":  # setup.c of git 2.39, ensure_valid_ownership
        monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
        with pytest.raises(subprocess.CalledProcessError):
            git(checkout, "rev-parse", "HEAD")
    assert paths.commit() == (head, False)
    (checkout / "runs").mkdir()
    (checkout / "runs" / "record.json").touch()
    assert paths.commit() == (head, False)
    (checkout / "pyproject.toml").write_text("[project]")
    assert paths.commit() == (head, True)
