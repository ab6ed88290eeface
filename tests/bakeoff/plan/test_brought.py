"""A brought model is the file that it came from: its name stands for the one of the folder in which it is typed."""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from bakeoff.models.brought.about import ABOUT, About, InputSet, Source
from bakeoff.models.brought.spec import component_of
from bakeoff.models.component import TensorSpec, Work
from bakeoff.models.errors import BakeoffError
from bakeoff.models.signature import Signature, TensorLeaf
from bakeoff.plan.brought import brought_reference


@pytest.fixture(autouse=True)
def cache(tmp_path: Path) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BAKEOFF_CACHE", str(tmp_path / "cache"))
        patch.setenv("HOME", str(tmp_path))
        yield tmp_path / "cache" / "brought"


def describe(cache: Path, path: Path, key: str, source: Source | None = None) -> Path:
    """A description of `path:model`, or of another source, as a worker writes it."""
    call = Signature((TensorLeaf("x"),), {})
    spec = TensorSpec("x", (1,), "given")
    one = InputSet("call", call, TensorLeaf("output"), (spec,), (TensorSpec("output", (1,)),), Work(1, 1, 2), 1)
    source = source or Source("function", str(path), "model", "0", str(path.parent))
    about = About("mine", "py", "mine.Net, brought by a user", source, "0", 0, "0", 1, (), 1e-4, True, (one,), {})
    folder = cache / f"mine-py-{key}"
    folder.mkdir(parents=True)
    (folder / ABOUT).write_bytes(msgspec.json.encode(about))
    return folder


def test_a_name_of_two_files_stands_for_the_one_of_the_working_folder(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [tmp_path / name for name in ("one", "two")]
    made = [describe(cache, folder / "mine.py", folder.name) for folder in folders]
    for folder, expected in zip(folders, made, strict=True):
        folder.mkdir()
        monkeypatch.chdir(folder)
        assert brought_reference("mine") == str(expected)
    for elsewhere in (cache, tmp_path):  # no source below, and both
        monkeypatch.chdir(elsewhere)
        with pytest.raises(BakeoffError) as refused:
            brought_reference("mine")
        assert refused.value.code == "unknown-name"
        assert all(f"{folder}/mine.py:model" in str(refused.value) for folder in folders)


def test_a_name_that_nothing_has_is_answered_with_the_nearest_and_all_that_are_known(
    cache: Path, tmp_path: Path
) -> None:
    describe(cache, tmp_path / "mine.py", "one")
    for reference in ("wm", "package.module:SPEC", "/a/folder"):
        assert brought_reference(reference) == reference
    with pytest.raises(BakeoffError) as refused:
        brought_reference("mina")
    assert str(refused.value) == (
        "no component 'mina'; did you mean mine; known: wm, image, audio, matrix-vae, matrix-wm, toy; yours: mine; for "
        "one of yours give mine.py:model"
    )
    assert refused.value.code == "unknown-name"


def test_of_one_file_it_is_the_newest_however_its_folder_was_typed(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "one")
    older = describe(cache, tmp_path / "one" / "mine.py", "older")
    os.utime(older / ABOUT, (0, 0))
    newer = describe(cache, tmp_path / "link" / ".." / "one" / "mine.py", "newer")
    assert brought_reference("mine") == str(newer)


def test_a_file_of_the_working_folder_that_was_not_swept_is_not_taken_for_another(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = describe(cache, tmp_path / "one" / "mine.py", "one")
    (tmp_path / "two").mkdir()
    monkeypatch.chdir(tmp_path / "two")
    assert brought_reference("mine") == str(made)
    (tmp_path / "two" / "mine.py").touch()
    with pytest.raises(BakeoffError, match=r"one/mine\.py:model, and mine\.py of this folder was not swept") as refused:
        brought_reference("mine")
    assert refused.value.code == "unknown-name"


def test_an_object_is_of_the_folder_in_which_it_was_given(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given again with other weights it has another folder in the cache, which is named by the content."""
    made = {}
    for age, (content, folder) in enumerate((("a", "two"), ("b", "one"), ("c", "one"))):
        (tmp_path / folder).mkdir(exist_ok=True)
        kept = tmp_path / "cache" / "live" / content / "model"
        described = describe(cache, kept, content, Source("live", str(kept), "", content, str(tmp_path / folder)))
        os.utime(described / ABOUT, (age, age))
        made[folder] = described
    for folder, newest in made.items():
        monkeypatch.chdir(tmp_path / folder)
        assert brought_reference("mine") == str(newest)
    assert component_of(made["two"]).presets[0].label == "a live module in ~/two, mine.Net"


def test_records_and_titles_say_which_file(cache: Path, tmp_path: Path) -> None:
    one, two = (component_of(describe(cache, tmp_path / name / "mine.py", name)) for name in ("one", "two"))
    (mine,), (other,) = one.presets, two.presets
    assert mine.label == "~/one/mine.py:model, mine.Net"
    assert mine.config.source == "~/one/mine.py:model"
    assert mine.config != other.config, "rows of two files are in two tables, and are not compared"
