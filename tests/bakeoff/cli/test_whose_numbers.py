"""After a clone and one sweep, table, page and history show that sweep alone, and README is as it was."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from lab import command_line
from records import HOST, bakeoff, record

from bakeoff.machine import identity
from bakeoff.record.folders import machine_of
from bakeoff.record.store import load_all, save
from bakeoff.report.markdown import files, history, readme
from bakeoff.report.markdown.table import citations
from bakeoff.report.svg import files as plots

SWEEP = ("sweep", "toy", "--workload", "world", "--backends", "eager", "--dtype", "fp32", "--device", "cpu")


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what a project publishes: records of two machines, their pages, and README with a block."""
    monkeypatch.setenv(identity.VARIABLE, "a machine that never measured")
    for index, cpu in enumerate(("Old CPU", "Published CPU")):
        for backend, ms in (("eager", 20.0), ("aoti", 10.0)):
            created = f"2026-01-0{index + 1}T03:04:05.000000Z"
            save(
                tmp_path / "runs",
                record(backend, [ms + 0.1 * step for step in range(20)], host=replace(HOST, cpu=cpu), created=created),
            )
    files.update(tmp_path / "runs")
    plots.update(tmp_path / "runs")
    (tmp_path / "README.md").write_text(f"# Project\n\n{readme.BEGIN}\n{readme.END}\n")
    publish(tmp_path / "runs")
    return tmp_path


def publish(runs: Path) -> None:
    """README's block of the machine that measured last."""
    records = load_all(runs)
    readme.publish(runs, records.of_machines([records.machines()[0].id]))


@pytest.mark.timeout(600)
def test_one_sweep_after_a_clone(clone: Path) -> None:
    runs = clone / "runs"
    published, known = (clone / "README.md").read_bytes(), {entry.id for entry in load_all(runs).current}
    before = {path: path.read_bytes() for path in runs.glob("*/*.md")}
    with command_line([*SWEEP, "--note", "mine"]) as process:
        out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert (clone / "README.md").read_bytes() == published
    records = load_all(runs)
    (mine,) = [entry for entry in records.current if entry.id not in known]
    assert mine.folder == f"{mine.machine.folder}/records"
    assert mine.folder in out
    assert all(path.read_bytes() == text for path, text in before.items()), "pages of other machines are left alone"
    assert bakeoff("history", "--check", cwd=clone).code == 0

    table = bakeoff("table", "--json", cwd=clone)
    assert json.loads(table.out)["records"] == [mine.id]
    assert [machine["id"] for machine in json.loads(table.out)["machines"]] == [mine.machine.id]
    everyone = bakeoff("table", "--machine", "all", "--json", cwd=clone)
    assert set(json.loads(everyone.out)["records"]) == {*known, mine.id}

    page = bakeoff("report", "--html", "page.html", cwd=clone)
    assert page.code == 0, page.err
    found = re.findall(r'href="([^"]+)\.json"', (clone / "page.html").read_text(encoding="utf-8"))
    assert found == [f"runs/{mine.folder}/{mine.id}"]

    text = (runs / history.NAME).read_text(encoding="utf-8")
    assert citations(text) == [mine.id]
    first, *others = re.findall(r"^- .*?\((\w{6})\)", text, re.MULTILINE)
    assert first == mine.machine.id[:6]
    assert len(others) == 2
    folder = runs / mine.machine.folder
    assert {path.name for path in folder.iterdir()} == {"RESULTS.md", history.NAME, "plots", "records"}


class TestWithoutRecordsOfThisMachine:
    """The project's machine that measured last is shown, and one line says whose numbers they are."""

    def test_table(self, clone: Path) -> None:
        ran = bakeoff("table", "toy", cwd=clone)
        assert (ran.code, ran.err) == (0, "")
        first = ran.out.splitlines()[0]
        assert "Published CPU" in first
        assert "sweep" in first
        assert "Old CPU" not in ran.out

    def test_report(self, clone: Path) -> None:
        ran = bakeoff("report", "--html", "page.html", cwd=clone)
        assert ran.code == 0, ran.err
        assert "Published CPU" in ran.out.splitlines()[0]
        text = (clone / "page.html").read_text(encoding="utf-8")
        assert "Published CPU" in text
        assert "Old CPU" not in text

    def test_another_machine_by_name(self, clone: Path) -> None:
        ran = bakeoff("table", "--machine", "old cpu, 4 cores", "--json", cwd=clone)
        (machine,) = json.loads(ran.out)["machines"]
        assert machine["name"].startswith("Old CPU")

    def test_publish_writes_what_is_asked_for(self, clone: Path) -> None:
        old = machine_of(record(host=replace(HOST, cpu="Old CPU")))
        tables = clone / "runs" / "RESULTS.md"
        before = tables.read_text()
        ran = bakeoff("publish", "--machine", old.id, "--json", cwd=clone)
        written = [clone / "README.md", *(clone / "runs" / name for name in ("RESULTS.md", "latency.svg"))]
        assert json.loads(ran.out)["written"] == [str(path) for path in written]
        after = tables.read_text()
        assert "Published CPU" in before
        assert "Published CPU" not in after
        assert set(citations(after)).isdisjoint(citations(before))
        assert bakeoff("history", "--check", cwd=clone).code == 0

    def test_supersede_writes_the_pages_of_the_record_s_machine(self, clone: Path) -> None:
        runs = clone / "runs"
        for path in runs.glob("**/*.md"):
            path.write_text("mine")
        last = load_all(runs).current[-1]
        assert bakeoff("supersede", last.id, "--reason", "busy", cwd=clone).code == 0
        changed = {path.relative_to(runs).parts[0] for path in runs.glob("**/*.md") if path.read_text() != "mine"}
        assert changed == {history.NAME, last.machine.folder}

    def test_history_leaves_readme_alone(self, clone: Path) -> None:
        save(clone / "runs", record("eager", [5.0] * 20, created="2026-02-02T03:04:05.000000Z", sweep="later"))
        before = (clone / "README.md").read_bytes()
        assert bakeoff("history", cwd=clone).code == 0
        assert (clone / "README.md").read_bytes() == before
        assert bakeoff("history", "--check", cwd=clone).code == 0
