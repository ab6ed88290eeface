"""`bakeoff gate`: its words and files, exit codes, and what it refuses; what it measures is canned."""

import json
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

SAME = Change("no change shown", 1.001, 0.99, 1.012, 1.021, 4)
ROW = GatedRow("toy:tiny.world/eager/fp32@cpu", 1, "ok", "ok", change=SAME, same=(1.0,), pairs=(1.0,))
SLOWER = replace(ROW, batch=2, change=Change("slower", 1.1, 1.08, 1.12, 1.021, 4))
CRASHED = replace(ROW, variant="toy:tiny.world/inductor[freezing]/fp32@cpu", candidate="crashed", change=None)
CRASHED = replace(CRASHED, reason="SIGSEGV in phase build")
SUITES = (
    "[suites.ci]\ncomponents = 'toy'\nbackends = 'eager'\ndtype = 'fp32'\nthreads = 1\nnote = 'ci'\nbudget = '1m'\n"
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
        return bakeoff("gate", *arguments, "--runs", "runs", cwd=here), given


def test_a_suite_is_swept_in_several_processes_and_compared_with_records(here: Path) -> None:
    (here / "bakeoff.toml").write_text(f"{SUITES}policy = {{contention = 5.0}}\n")
    done, (plans, records, *_) = ran(here, [ROW], "@ci", "--against", "known", "--dtype", "bf16")
    assert done.code == 0, done.err
    (plan,) = plans
    assert {(str(row.variant), row.process) for row in plan.rows} == {
        ("toy:tiny.world/eager/bf16@cpu", process) for process in range(1, PROCESSES + 1)
    }
    assert (plan.request.final_s, plan.request.budget_s, plan.request.asked["suite"]) == (0.0, 0.0, "ci")
    assert isinstance(records, Records)
    assert "no regression of +2.1% or more: 1 row compared" in done.out
    assert "policy: contention 5 (usual 0.2)" in done.out


def test_a_baseline_is_planned_for_its_own_interpreter(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bakeoff.machine.host._versions_of", lambda _python: {"torch": "1.0"})
    done, (plans, *_) = ran(here, [ROW], "@ci", "--baseline-python", "/other/python")
    assert done.code == 0, done.err
    candidate, baseline = plans[0]
    assert isinstance(candidate, Plan)
    assert [plan.rows[0].subject.python for plan in (candidate, baseline)] == ["", "/other/python"]
    assert candidate.rows[0].cache_folder != baseline.rows[0].cache_folder


@pytest.mark.parametrize(("rows", "code"), [([ROW], 0), ([ROW, SLOWER], 1), ([replace(ROW, change=None)], 3)])
def test_exit_codes(rows: list[GatedRow], code: int, here: Path) -> None:
    done, _ = ran(here, rows, "@ci", "--against", "known", "--json")
    assert (done.code, json.loads(done.out)["exit_code"]) == (code, code)


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


def test_a_row_that_only_a_large_change_would_fail_is_undecided_and_passes_nowhere(here: Path) -> None:
    blind = replace(ROW, change=Change("undecided", 1.162, 0.454, 2.976, 4.919, 5))
    done, _ = ran(here, [blind], "toy", "--against", "known", "--junit", "gate.xml")
    assert done.code == 3
    assert "nothing was decided: 1 row compared" in done.out
    assert "only a change of +391.9% or more would be found" in " ".join(done.out.split())
    (case,) = ElementTree.parse(here / "gate.xml").getroot()
    assert "+391.9%" in case.find("skipped").attrib["message"]  # type: ignore[union-attr]
    done, _ = ran(here, [ROW, blind], "toy", "--against", "known", "--junit", "gate.xml")
    assert done.code == 0
    assert "no regression of +2.1% or more: 2 rows compared" in done.out
    assert "1 of them undecided" in " ".join(done.out.split())
    first, _ = ElementTree.parse(here / "gate.xml").getroot()
    assert first.findtext("system-out") == "unchanged: +0.1% [-1.0%, +1.2%]: found from +2.1%"


def test_expected_statuses_and_an_unexpected_pass(here: Path) -> None:
    entry = "[[xfail]]\nrow = '*/inductor[freezing]/*'\nreason = 'known bug'\n"
    (here / "expected.toml").write_text(entry)
    asked = ("toy", "--against", "known", "--expected", "expected.toml", "--junit", "gate.xml")
    done, _ = ran(here, [ROW, CRASHED], *asked)
    assert done.code == 0
    assert "known bug" in done.out
    assert ElementTree.parse(here / "gate.xml").getroot().attrib["skipped"] == "1"
    done, _ = ran(here, [ROW, replace(CRASHED, candidate="ok", baseline="ok", change=SAME)], *asked)
    assert done.code == 0
    assert "unexpected pass" in done.out
    (here / "expected.toml").write_text(f"{entry}status = 'oom'\n")
    assert ran(here, [ROW, CRASHED], *asked)[0].code == 1


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        ("@ci", "give either --against", "bad-option"),
        ("@ci --against known --baseline-python python3", "give either --against", "bad-option"),
        ("@ci --against nowhere", "nowhere", "no-record"),
        ("@ci --against known --resume", "--resume", "bad-option"),
        ("@ci --against known --expected none.toml", "none.toml", "not-readable"),
        ("@ci --against known --expected wrong.toml", "xfails", "bad-config"),
        ("@no --against known", "no suite 'no'", "unknown-name"),
        ("mine.py:Loop --against known", "mine.py:Loop", "bad-option"),
        ("@ci --baseline-source none", "none", "bad-option"),
        ("@ci --baseline-source known", "toy does not come from a file", "bad-option"),
        ("@ci --baseline-python ./mine.py", "./mine.py", "bad-option"),
    ],
)
def test_what_is_refused(arguments: str, said: str, code: str, here: Path) -> None:
    (here / "wrong.toml").write_text("[[xfails]]\n")
    (here / "mine.py").write_text("class Loop: ...\n")
    done, _ = ran(here, [ROW], *arguments.split())
    assert done.code == 2
    assert said in done.err
    assert done.err.endswith(f"[{code}]\n")
