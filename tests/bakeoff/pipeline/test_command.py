"""`bakeoff pipeline` as it is typed: output, exit codes and what a signal leaves."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab import TORCHLESS, marked_folder
from typer.testing import CliRunner

from bakeoff.cli import app
from bakeoff.machine import paths
from bakeoff.models.errors import BakeoffError
from bakeoff.pipeline import mix_worker
from bakeoff.process import supervisor
from bakeoff.record.store import load_all

ARGUMENTS = ("--device", "cpu", "--threads", "1", "--units", "3", "--json")
MISSING = ("--mix", "image=canaries:MISSING_LIBRARY/bf16")

PAGES: list[Path] = []
"""Folders whose pages were to be written."""


@pytest.fixture(autouse=True)
def _lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(supervisor, "WORKER", TORCHLESS)
    monkeypatch.setattr("bakeoff.cli.pages.update_pages", PAGES.append)
    with marked_folder(tmp_path):
        yield


def pipeline(*arguments: str, name: str = "loops:Small") -> Any:
    return CliRunner().invoke(app, ["pipeline", name, *ARGUMENTS, *arguments])


def test_it_names_its_records(tmp_path: Path) -> None:
    done = pipeline("--mix", "eager", "--mix", "wm=inductor/bf16", "--note", "why", name="loops:Small[steps=3]")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    records = {entry.id: entry.record for entry in load_all(tmp_path / "runs").pipelines}
    assert set(found["records"]) == set(records)
    assert found["interrupted"] == []
    assert [(mix["record"], mix["status"], mix["figures"]["units"]) for mix in found["mixes"]] == [
        (name, "ok", 3 + 2 * 5) for name in found["records"]
    ]
    assert {str(record.mix) for record in records.values()} == {
        "small:tiny[steps=3]/wm=eager/fp32,image=eager/fp32@cpu",
        "small:tiny[steps=3]/wm=inductor/bf16,image=eager/fp32@cpu",
    }
    assert PAGES[-1] == tmp_path / "runs"
    assert {(record.run, record.note) for record in records.values()} == {(found["run"], "why")}


def test_the_exit_code_says_that_nothing_was_measured() -> None:
    """The one of a run with some that could not is that of the run that goes on, below."""
    assert pipeline(*MISSING).exit_code == 3


def test_an_interrupted_run_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_arguments: object) -> None:
        raise KeyboardInterrupt

    before = mix_worker.run_rounds
    monkeypatch.setattr("bakeoff.pipeline.run.run_rounds", interrupted)
    done = pipeline("--mix", "eager", *MISSING)
    assert done.exit_code == 130
    assert "interrupted; not run: eager; the same command with --resume runs them" in done.stderr
    assert len(json.loads(done.stdout)["records"]) == 1
    monkeypatch.setattr("bakeoff.pipeline.run.run_rounds", before)
    left = json.loads(pipeline("--mix", "eager", *MISSING, "--resume", "--dry-run").stdout)
    assert [line["role"] for line in left["mixes"]] == ["eager"]
    again = pipeline("--mix", "eager", *MISSING, "--resume")
    assert again.exit_code == 0
    assert len(load_all(paths.runs_folder()).pipelines) == 2


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--units", "0"), "--units 0: give 1 to 100000"),
        (("--mix", ""), "--mix is empty"),
        (("--row-timeout", "0"), "--row-timeout"),
        (("--resume",), "--resume: no unfinished run of pipeline small"),
        (("--note", "x" * 501), "--note has 501 characters"),
    ],
)
def test_mistakes_are_answered_before_anything_runs(arguments: tuple[str, ...], text: str) -> None:
    done = pipeline(*arguments)
    assert isinstance(done.exception, BakeoffError)
    assert text in str(done.exception)
