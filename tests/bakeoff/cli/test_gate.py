"""`bakeoff gate`: its words and files, exit codes, and what it refuses; what it measures is canned."""

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from records import Ran, bakeoff

from bakeoff.plan.plan import Plan
from bakeoff.record.gate import PROCESSES, Change, GatedRow
from bakeoff.record.store import Records
from bakeoff.sweeps import gate as measuring

SAME = Change("no change shown", 1.001, 0.99, 1.012, 4)
ROW = GatedRow("toy:tiny.world/eager/fp32@cpu", 1, "ok", "ok", change=SAME, same=(1.0,), pairs=(1.0,))
SLOWER = replace(ROW, batch=2, change=Change("slower", 1.1, 1.08, 1.12, 4))
CRASHED = replace(ROW, variant="toy:tiny.world/inductor[freezing]/fp32@cpu", candidate="crashed", change=None)
CRASHED = replace(CRASHED, reason="SIGSEGV in phase build")
SUITES = (
    "[suites.ci]\ncomponents = 'toy'\nbackends = 'eager'\ndtype = 'fp32'\nthreads = 1\nnote = 'ci'\ntime-limit = '1m'\n"
)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "bakeoff.toml").write_text(SUITES)
    (tmp_path / "known").mkdir()
    (tmp_path / "mine.py").write_text("")
    return tmp_path


def ran(here: Path, rows: list[GatedRow], *arguments: str) -> tuple[Ran, list[Any]]:
    """The command's end, and what it gave to the function that measures."""
    given: list[Any] = []

    def measured(*values: Any) -> list[GatedRow]:
        given.extend(values)
        return rows

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measuring, "gate_records", measured)
        patch.setattr(measuring, "gate_live", measured)
        return bakeoff("--runs", "runs", "gate", *arguments, cwd=here), given


def test_a_suite_is_swept_in_several_processes_and_compared_with_records(here: Path) -> None:
    (here / "bakeoff.toml").write_text(f"{SUITES}policy = {{contention = 5.0}}\n")
    done, (plans, records, *_) = ran(here, [ROW], "@ci", "--against", "known", "--dtype", "bf16")
    assert done.code == 0, done.err
    (plan,) = plans
    assert {(str(row.variant), row.process) for row in plan.rows} == {
        ("toy:tiny.world/eager/bf16@cpu", process) for process in range(1, PROCESSES + 1)
    }
    assert (plan.request.final_s, plan.request.time_limit_s, plan.request.asked["suite"]) == (0.0, 0.0, "ci")
    assert isinstance(records, Records)
    assert "no regression of +10.0% or more: 1 row compared" in done.out
    assert "policy: contention 5 (usual 0.2)" in done.out


def test_a_baseline_is_planned_for_its_own_interpreter(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bakeoff.machine.host._versions_of", lambda _python: {"torch": "1.0"})
    done, (plans, *_) = ran(here, [ROW], "@ci", "--baseline-python", "/other/python")
    assert done.code == 0, done.err
    candidate, baseline = plans[0]
    assert isinstance(candidate, Plan)
    assert [plan.rows[0].subject.python for plan in (candidate, baseline)] == ["", "/other/python"]
    assert candidate.rows[0].cache_folder != baseline.rows[0].cache_folder


def test_the_page_says_what_failed_and_why(here: Path) -> None:
    files = ("--markdown", "gate.md", "--junit", "gate.xml")
    done, _ = ran(here, [ROW, SLOWER, CRASHED], "toy", "--against", "known", *files)
    assert done.code == 1
    page = (here / "gate.md").read_text()
    for text in (done.out, page):
        assert "2 of 3 rows failed" in text
        assert "+10.0% [+8.0%, +12.0%]" in text
        assert "SIGSEGV in phase build" in text
    suite = ElementTree.parse(here / "gate.xml").getroot()
    assert {**suite.attrib, "name": ""} == {"name": "", "tests": "3", "failures": "2", "skipped": "0"}
    failures = {case.attrib["name"]: case.find("failure") for case in suite}
    assert [found is not None for found in failures.values()] == [False, True, True]
    assert "SIGSEGV" in failures[CRASHED.name].attrib["message"]  # type: ignore[union-attr]


def test_a_slowdown_by_records_is_suspected_until_a_race_confirms_it(here: Path) -> None:
    suspected = replace(SLOWER, live=False)
    done, _ = ran(here, [ROW, suspected], "toy", "--against", "known")
    assert done.code == 3
    assert "suspected" in done.out
    assert "--baseline-source" in done.out


BROKEN = "import torch\ndef model():\n    raise ValueError('no weights')\n"
WORKS = "import torch\ndef model():\n    return torch.nn.Linear(4, 4), torch.randn(2, 4)\n"


def test_a_model_that_no_longer_runs_fails_with_its_rows_and_the_others_are_judged(here: Path, tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    for name, text in (("mine.py", BROKEN), ("base/mine.py", WORKS), ("other.py", WORKS), ("base/other.py", WORKS)):
        (here / name).write_text(text)
    asked = ("mine.py:model", "other.py:model", "--backends", "eager", "--dtype", "fp32", "--baseline-source", "base")
    done, (plans, *_) = ran(here, [ROW], *asked, "--junit", "gate.xml")
    assert [candidate.component.name for candidate, _ in plans] == ["other"]
    assert done.code == 1
    assert "1 of 2 rows failed" in done.out
    case = ElementTree.parse(here / "gate.xml").getroot()[1]
    assert case.attrib["name"] == "mine:py.call/eager/fp32@cpu"
    assert "no weights" in case.find("failure").attrib["message"]  # type: ignore[union-attr]


def test_a_suspected_model_is_raced_with_the_files_that_its_commit_has(here: Path) -> None:
    def git(*arguments: str) -> None:
        name = ["-c", "user.name=a", "-c", "user.email=a@a.example"]
        subprocess.run(["git", *name, "-C", str(here), *arguments], check=True, capture_output=True)

    (here / "runs").mkdir()
    (here / "runs" / "note").write_text("")
    (here / "mine.py").write_text(WORKS)
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "x")
    (here / "mine.py").write_text(f"{WORKS}CHANGED = True\n")
    suspected = replace(SLOWER, variant="mine:py.call/eager/fp32@cpu", batch=1, live=False)
    raced: list[tuple[Plan, Plan]] = []

    def live(plans: list[tuple[Plan, Plan]], *_: Any) -> list[GatedRow]:
        raced.extend(plans)
        assert Path(plans[0][1].component.preset("py").config.source.partition(":")[0]).read_text() == WORKS
        return [replace(suspected, live=True)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measuring, "gate_records", lambda *_: [ROW, suspected])
        patch.setattr(measuring, "gate_live", live)
        asked = ("toy", "mine.py:model", "--backends", "eager,inductor", "--dtype", "fp32", "--against", "HEAD")
        done = bakeoff("--runs", "runs", "gate", *asked, cwd=here)
    assert done.code == 1, done.err
    assert "regression" in done.out
    ((candidate, baseline),) = raced
    assert candidate.request.component != baseline.request.component
    assert [[str(row.variant) for row in plan.rows] for plan in (candidate, baseline)] == [[suspected.variant]] * 2


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        ("@ci", "give --against RECORDS, or", "bad-option"),
        ("@ci --against known --find 1%", "--find 1%: give a percentage from 2% to 100%", "bad-option"),
        ("@ci --against known --find 0.1", "--find 0.1", "bad-option"),
        ("@ci --against nowhere", "nowhere", "no-record"),
        ("@ci --against known --resume", "--resume", "bad-option"),
        ("@no --against known", "no suite 'no'", "unknown-name"),
        ("mine.py:Loop --against known", "mine.py:Loop", "bad-option"),
        ("@ci --baseline-source none", "none", "bad-option"),
        ("@ci --baseline-source known", "toy does not come from a file", "bad-option"),
        ("@ci --baseline-python ./mine.py", "./mine.py", "bad-option"),
    ],
)
def test_what_is_refused(arguments: str, said: str, code: str, here: Path) -> None:
    (here / "mine.py").write_text("class Loop: ...\n")
    done, _ = ran(here, [ROW], *arguments.split())
    assert done.code == 2
    assert said in done.err
    assert done.err.endswith(f"[{code}]\n")
