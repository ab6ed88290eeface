"""load_or_build: a complete file is loaded, a missing or damaged one is built, and a failed build leaves no file."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bakeoff.backends.artifact_cache import load_or_build


class Damaged(Exception):
    pass


def load(path: Path) -> str:
    file = path / "text" if path.is_dir() else path
    if not file.exists() or file.read_text() == "damaged":
        raise Damaged
    return file.read_text()


def write_file(target: Path) -> None:
    target.write_text("built")


def write_folder(target: Path) -> None:
    target.mkdir()
    (target / "text").write_text("built")


def get(folder: Path, build: Callable[[Path], None]) -> tuple[str, bool]:
    (folder / "work").mkdir(exist_ok=True)
    return load_or_build(folder / "cache" / "artifact", load, build, folder / "work" / "scratch", (Damaged,))


@pytest.mark.parametrize("build", [write_file, write_folder])
def test_the_first_call_builds_and_the_second_loads(build: Callable[[Path], None], tmp_path: Path) -> None:
    assert get(tmp_path, build) == ("built", False)
    assert get(tmp_path, build) == ("built", True)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["artifact"]
    assert list((tmp_path / "work").iterdir()) == []


@pytest.mark.parametrize("build", [write_file, write_folder])
@pytest.mark.parametrize("left", ["damaged file", "empty folder", "part of a killed build", "scratch of a failed one"])
def test_what_is_not_whole_is_built_again(build: Callable[[Path], None], left: str, tmp_path: Path) -> None:
    cache, work = tmp_path / "cache", tmp_path / "work"
    cache.mkdir()
    work.mkdir()
    {
        "damaged file": lambda: (cache / "artifact").write_text("damaged"),
        "empty folder": lambda: (cache / "artifact").mkdir(),
        "part of a killed build": lambda: (cache / ".artifact.part").mkdir(),
        "scratch of a failed one": lambda: (work / "scratch").write_text("half"),
    }[left]()
    assert get(tmp_path, build) == ("built", False)
    assert [path.name for path in cache.iterdir()] == ["artifact"]


def test_a_failed_build_leaves_nothing_in_the_cache(tmp_path: Path) -> None:
    def fail(target: Path) -> None:
        target.write_text("half")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        get(tmp_path, fail)
    assert not (tmp_path / "cache").exists()


def test_other_errors_of_loading_delete_nothing(tmp_path: Path) -> None:
    get(tmp_path, write_file)

    def refuse(_path: Path) -> str:
        raise MemoryError

    with pytest.raises(MemoryError):
        load_or_build(tmp_path / "cache" / "artifact", refuse, write_file, tmp_path / "work" / "scratch", (Damaged,))
    assert (tmp_path / "cache" / "artifact").exists()
