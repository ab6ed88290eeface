"""A user's own backend by its file: found where it was typed, refused in one sentence where it is none."""

import sys
from pathlib import Path

import pytest

from bakeoff.backends import backend_module, resolve_backend
from bakeoff.models.errors import BakeoffError
from bakeoff.models.lookup import USER_CODE, user_error
from bakeoff.record.source import backend_source

GOOD = """\
from dataclasses import replace

from selftest_backends.faulty import NAN

BACKEND = replace(NAN, name="{name}")
BACKENDS = [BACKEND]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    (tmp_path / "sub").mkdir()
    for file, name in (("own_one.py", "one"), ("sub/own_one.py", "two"), ("json.py", "three")):
        (tmp_path / file).write_text(GOOD.format(name=name))
    (tmp_path / "own_broken.py").write_text("VALUE = 1\nraise OSError('no licence')\n")
    (tmp_path / "own_syntax.py").write_text("def build(:\n")
    return tmp_path


def test_a_file_names_it_wherever_it_lies_and_whatever_else_has_its_name(folder: Path) -> None:
    for reference, name in (
        ("own_one.py:BACKEND", "one"),
        ("own_one:BACKEND", "one"),
        ("sub/own_one.py:BACKEND", "two"),
        ("json.py:BACKEND", "three"),
        (f"{folder}/json.py:BACKEND", "three"),
        ("own_one.py:BACKEND", "one"),
    ):
        assert resolve_backend(reference).name == name, reference
    found = backend_source("sub/own_one.py:BACKEND")
    assert (found.name, found.reference, found.file) == ("two", "sub/own_one.py:BACKEND", "own_one.py")
    assert found.hash != backend_source("own_one.py:BACKEND").hash
    assert backend_module("own_one.py:BACKEND") == "own_one"


def test_in_a_worker_it_is_that_of_the_folder_in_which_the_command_ran(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("worker"))
    monkeypatch.setenv(USER_CODE, str(folder))
    assert resolve_backend("sub/own_one.py:BACKEND").name == "two"


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("reference", "code", "said"),
    [
        ("gone.py:BACKEND", "bad-user-code", "there is no file gone.py; give another path"),
        ("own_one.py", "bad-user-code", "own_one.py: name the backend too, as in own_one.py:BACKEND"),
        (
            "own_one.py:BACKND",
            "bad-user-code",
            "own_one.py: the file has no 'BACKND'; did you mean BACKEND; it has NAN, BACKEND",
        ),
        ("own_one.py:BACKENDS", "bad-user-code", "'own_one.py:BACKENDS' is a list, not a bakeoff.backends"),
        ("own_broken.py:BACKEND", "bad-user-code", "own_broken.py raised OSError (own_broken.py, line 2): no licence"),
        ("own_syntax.py:BACKEND", "bad-user-code", "own_syntax.py raised SyntaxError"),
        ("indutcor", "unknown-name", "no backend 'indutcor'; did you mean inductor; known: eager, "),
        ("qqq", "unknown-name", "; for your own give mine.py:BACKEND"),
    ],
)
def test_what_is_none_gets_one_sentence(reference: str, code: str, said: str) -> None:
    with pytest.raises(BakeoffError) as refused:
        resolve_backend(reference)
    assert said in str(refused.value)
    assert refused.value.code == code
    assert "\n" not in str(refused.value)


def test_an_exception_without_text_is_named_alone() -> None:
    assert str(user_error("modules()", NotImplementedError())) == "modules() raised NotImplementedError"
