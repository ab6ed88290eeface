"""The user's callable: what a pass calls, and what is wrong with it in one sentence."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bakeoff.models.errors import BakeoffError
from bakeoff.worker.inspection.load import load_pass

SOURCE = """\
import functools
import torch
from torch import nn

linear = nn.Linear(2, 2)
number = 3
runs = []

def direct():
    runs.append("direct")

def factory():
    def run():
        runs.append("run")
    return run

def with_arguments():
    def run(steps, scale=1.0):
        runs.append((steps, scale))
    return run, {"steps": 4}

def wrong_arguments():
    def run(steps):
        pass
    return run, {"step": 4}

def returns_taking():
    return linear

def takes(prompt):
    pass

def raises():
    linear(torch.ones(3))

def leaves():
    raise SystemExit(3)

class Pipe:
    def __call__(self):
        runs.append("object")

pipe = Pipe()
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / f"mine_{tmp_path.name}.py"
    path.write_text(SOURCE, encoding="utf-8")
    return path


def runs_of(subject: Callable[..., Any]) -> Any:
    return subject.__globals__["runs"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("direct", ["direct", "direct"]),  # called once to see what it returns
        ("factory", ["run"]),
        ("with_arguments", [(4, 1.0)]),
    ],
)
def test_one_rule_says_what_a_pass_calls(file: Path, name: str, found: list[Any]) -> None:
    run, subject = load_pass(file, name)
    run()
    assert runs_of(subject) == found


def test_a_callable_object_is_one_too(file: Path) -> None:
    run, subject = load_pass(file, "pipe")
    run()
    assert runs_of(type(subject).__call__) == ["object", "object"]


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("nothing", "bad-user-code", "the file has no 'nothing'; it has direct, factory"),
        ("number", "bad-user-code", "is an int; name a function"),
        ("takes", "bad-user-code", "missing a required argument: 'prompt'"),
        ("returns_taking", "bad-user-code", "cannot be called without arguments"),
        ("wrong_arguments", "bad-user-code", "cannot be called with step"),
        ("raises", "bad-user-code", "raised RuntimeError"),
        ("leaves", "bad-user-code", "raised SystemExit"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(file: Path, name: str, code: str, said: str) -> None:
    with pytest.raises(BakeoffError) as caught:
        load_pass(file, name)[0]()
    assert caught.value.code == code
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_classes_of_a_file_on_the_path_can_be_imported_again(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recorded module travels by the import path of its class, and workers have the user's folder on their path."""
    monkeypatch.syspath_prepend(file.parent)
    _, subject = load_pass(file, "pipe")
    assert type(subject).__module__ == file.stem
