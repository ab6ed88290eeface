"""What is taken for a model of a user, and what is refused before anything runs."""

from pathlib import Path

import pytest

from bakeoff.bring.bring import is_brought, read_source
from bakeoff.models.errors import BakeoffError
from bakeoff.record.source import check_unchanged

FACTORY = "import helper\ndef model():\n    return helper.made()\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(FACTORY)
    (tmp_path / "helper.py").write_text("from parts import layer\n")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "__init__.py").write_text("")
    (tmp_path / "parts" / "layer.py").write_text("WIDTH = 8\n")
    (tmp_path / "program.pt2").write_bytes(b"zip")
    return tmp_path


@pytest.mark.parametrize("text", ["mine.py:model", "./sub/mine.py:model", "mine.py", "net.pt2", "gone.py:model"])
def test_files_are_taken_for_models(text: str) -> None:
    assert is_brought(text)


@pytest.mark.parametrize("text", ["wm", "package.module:SPEC", "mine", "net.pt", "wm:200m.step", ""])
def test_names_are_not(text: str) -> None:
    assert not is_brought(text)


@pytest.mark.usefixtures("folder")
def test_a_model_is_named_by_its_file_and_the_preset_says_what_it_was(folder: Path) -> None:
    source, name, preset = read_source("mine.py:model")
    assert (source.kind, source.function, name, preset) == ("function", "model", "mine", "py")
    source, name, preset = read_source("program.pt2")
    assert (source.kind, name, preset) == ("archive", "program", "pt2")
    given = folder / "my pipe.vae.decode"
    given.mkdir()
    (given / "live.json").write_text("{}")
    source, name, preset = read_source(str(given))
    assert (source.kind, name, preset) == ("live", "my-pipe.vae.decode", "live")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("mine.py:decoder", "mine.decoder"),
        ("mine.py:mine", "mine.mine"),
        ("mine.py:_decoder", "mine.decoder"),
        ("image.py:model", "image.model"),
        ("two.parts.py:model", "two-parts"),
    ],
)
def test_other_functions_and_files_named_as_a_component_have_the_functions_name_too(
    text: str, name: str, folder: Path
) -> None:
    (folder / text.partition(":")[0]).write_text("")
    assert read_source(text)[1:] == (name, "py")


@pytest.mark.parametrize("edited", ["mine.py", "helper.py", "parts/layer.py"])
def test_the_hash_covers_what_the_file_imports_of_its_folder(edited: str, folder: Path) -> None:
    before = read_source("mine.py:model")[0].hash
    assert read_source("mine.py:model")[0].hash == before
    (folder / edited).write_text((folder / edited).read_text() + "\n# edited\n")
    assert read_source("mine.py:model")[0].hash != before


@pytest.mark.parametrize("edited", ["mine.py", "parts/layer.py", "program.pt2"])
def test_an_edit_after_the_description_is_refused(edited: str, folder: Path) -> None:
    sources = [read_source(asked)[0] for asked in ("mine.py:model", "program.pt2")]
    for source in sources:
        check_unchanged("model", source)
    (folder / edited).write_text("# edited\n")
    changed = sources[edited.endswith(".pt2")]
    with pytest.raises(BakeoffError, match="was changed after it was described; name it as") as refused:
        check_unchanged("model", changed)
    assert refused.value.code == "bad-user-code"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gone.py:model", "^there is no file gone.py; give another path$"),
        ("parts.py:model", "there is no file parts.py"),
        ("mine.py", r"name the function too, as in mine.py:model"),
        ("wm.pt2", "'wm' is a component of this lab"),
        ("mine.py:__", "cannot be part of a variant's name"),
        ("mine.py:café", "use ASCII letters"),
        ("gone.pt2", "there is no file gone.pt2"),
        ("wrong.py:model", "wrong.py, line 1: .*; correct it"),
    ],
)
def test_bad_input_gets_one_sentence(text: str, said: str, folder: Path) -> None:
    (folder / "wm.pt2").touch()
    (folder / "wrong.py").write_text("def model(:\n")
    with pytest.raises(BakeoffError, match=said) as raised:
        read_source(text)
    assert "\n" not in str(raised.value)
