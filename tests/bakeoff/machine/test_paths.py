"""Folders are taken from the BAKEOFF_* variables, else the XDG variables, else the home folder."""

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


def test_folders_below_the_home_folder(installed: Path) -> None:
    assert paths.cache_folder() == installed / ".cache" / "bakeoff"
    assert paths.runs_folder() == installed / ".local" / "share" / "bakeoff" / "runs"


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
