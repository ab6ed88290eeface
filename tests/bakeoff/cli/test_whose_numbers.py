"""After a clone and one sweep, table, page and history show that sweep alone, and what is published is as it was."""

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from lab import shorten_clocks
from records import HOST, Ran, bakeoff, record

from bakeoff.machine import identity, paths
from bakeoff.record.store import load_all, save, supersede
from bakeoff.report.pages import files, history, readme
from bakeoff.report.render.markdown import citations

SWEEP = ("sweep", "toy", "--workload", "world", "--backends", "eager", "--dtype", "fp32", "--device", "cpu")
IGNORED = Path(__file__).parents[3] / ".gitignore"
FIND_PUBLISHED = paths.published_runs


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with published records of two machines, their pages, and README with a block."""
    folder = tmp_path_factory.mktemp("committed")
    published = folder / "runs" / "published"
    for index, cpu in enumerate(("Old CPU", "Published CPU")):
        for backend, ms in (("eager", 20.0), ("aoti", 10.0)):
            created = f"2026-01-0{index + 1}T03:04:05.000000Z"
            made = record(backend, [ms + 0.1 * step for step in range(20)], host=replace(HOST, cpu=cpu))
            save(published, replace(made, created=created))
    files.update(published)
    (folder / "README.md").write_text(f"# Project\n\n{readme.BEGIN}\n{readme.END}\n")
    records = load_all(published)
    readme.publish(published, records.of_machines([records.machines()[0].key]), folder / "runs")
    for path in (folder / "pyproject.toml", folder / "bakeoff" / "variant.py"):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    (folder / ".gitignore").write_bytes(IGNORED.read_bytes() + b"/cache/\n/locks/\n")
    _git(folder, "init", "--quiet")
    _git(folder, "add", "--all")
    return folder


@pytest.fixture
def clone(committed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in a copy of that checkout, in which commands find the checkout and not its package."""
    monkeypatch.setenv(identity.VARIABLE, "a machine that never measured")
    monkeypatch.setattr(paths, "published_runs", FIND_PUBLISHED)
    shutil.copytree(committed, tmp_path, dirs_exist_ok=True)
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


def changed(clone: Path) -> list[str]:
    """Files of the checkout that are not as they were committed, or are new and not ignored."""
    return _git(clone.parent, "ls-files", "--modified", "--others", "--deleted", "--exclude-standard").splitlines()


def shown(ran: Ran) -> set[str]:
    assert ran.code == 0, ran.err
    return set(json.loads(ran.out)["records"])


def machines(ran: Ran) -> Sequence[str]:
    return [machine["id"] for machine in json.loads(ran.out)["machines"]]


def test_one_sweep_after_a_clone(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = clone.parent / "runs"
    known = {entry.id for entry in load_all(runs / "published").current}
    shorten_clocks(monkeypatch)
    ran = bakeoff(*SWEEP, "--note", "mine", cwd=clone)
    assert ran.code == 0, ran.err
    (mine,) = load_all(runs).current
    assert mine.folder == f"{mine.machine.folder}/records"
    assert mine.folder in ran.out

    table = bakeoff("table", "--json", cwd=clone)
    assert (shown(table), machines(table)) == ({mine.id}, [mine.machine.id])
    everyone = bakeoff("table", "--machine", "all", "--json", cwd=clone)
    assert shown(everyone) == {*known, mine.id}
    assert len(machines(everyone)) == 3

    for command in (["history"], ["history", "--check"]):
        ran = bakeoff(*command, cwd=clone)
        assert ran.code == 0, ran.err
    page = bakeoff("report", "--html", "../runs/report.html", cwd=clone)
    assert page.code == 0, page.err
    found = re.findall(r'href="([^"]+)\.json"', (runs / "report.html").read_text(encoding="utf-8"))
    assert found == [f"{mine.folder}/{mine.id}"]
    folder = runs / mine.machine.folder
    assert citations((folder / history.NAME).read_text(encoding="utf-8")) == [mine.id]
    assert {path.name for path in folder.iterdir()} == {"RESULTS.md", history.NAME, "records"}
    assert changed(clone) == []


def test_records_that_are_own_and_published_are_shown_once(clone: Path) -> None:
    runs = clone.parent / "runs"
    published = load_all(runs / "published").current
    assert save(runs, published[-1].record) == published[-1].id
    both = load_all(runs, runs / "published").current
    assert sorted(entry.id for entry in both) == [entry.id for entry in published]
    assert [entry.id for entry in both if not entry.folder.startswith("published/")] == [published[-1].id], (
        "the own one's folder"
    )
    assert shown(bakeoff("table", "--json", cwd=clone)) == {published[-1].id}
    everyone = bakeoff("table", "--machine", "all", "--json", cwd=clone)
    assert shown(everyone) == {entry.id for entry in published}
    assert len(json.loads(everyone.out)["records"]) == len(published)
    supersede(runs, published[-1].id, "busy")
    everyone = bakeoff("table", "--machine", "all", "--json", cwd=clone)
    assert shown(everyone) == {entry.id for entry in published[:-1]}


class TestWithoutRecordsOfThisMachine:
    """What is published is found where it is asked for."""

    @pytest.mark.parametrize(
        "command", [["table", "toy"], ["report", "--html", "page.html"]], ids=lambda words: words[0]
    )
    def test_nothing_is_shown_and_it_is_said_how_to(self, clone: Path, command: list[str]) -> None:
        ran = bakeoff(*command, cwd=clone)
        assert (ran.code, ran.out) == (2, "")
        assert "make sweep MODEL=" in ran.err
        assert "--machine all" in ran.err
        assert list(clone.iterdir()) == []

    def test_a_record_by_its_name(self, clone: Path) -> None:
        first, second, *_ = (entry.id for entry in load_all(clone.parent / "runs" / "published").current)
        assert bakeoff("show", first, cwd=clone).code == 0
        assert bakeoff("explain", first, second, cwd=clone).code == 0
        title = "toy:tiny.world (toy), batch 1, Old CPU"
        assert "Old CPU" in bakeoff("show", title, cwd=clone).out
        ran = bakeoff("--runs", str(clone), "show", first, cwd=clone)
        assert ran.code == 2, "what --runs names stands alone"


class TestPublish:
    def test_records_of_another_host_are_copied(self, clone: Path) -> None:
        """As those of a GPU host are, which lie in a folder of their own in runs/."""
        runs, published = clone.parent / "runs", clone.parent / "runs" / "published"
        theirs = record("eager", [5.0] * 20, host=replace(HOST, cpu="New CPU"), created="2026-01-03T03:04:05.000000Z")
        older = save(runs, replace(theirs, created="2026-01-02T00:00:00.000000Z"))
        newer = save(runs, theirs)
        before = load_all(published)
        ran = bakeoff("publish", "--machine", "New CPU, 4 cores", "--json", cwd=clone)
        assert ran.code == 0, ran.err
        kept = load_all(published)
        assert {entry.id for entry in kept.current} - {entry.id for entry in before.current} == {newer}
        (copy,) = published.glob(f"*/records/{newer}.json")
        (own,) = runs.glob(f"*/records/{newer}.json")
        assert copy.read_bytes() == own.read_bytes()
        assert not list(published.glob(f"*/records/{older}.json")), "no page cites it"
        assert set(citations((published / "RESULTS.md").read_text())) == {newer}
        assert "New CPU" in (clone.parent / "README.md").read_text()
        assert (published / theirs.machine.folder / history.NAME).is_file()
        assert bakeoff("history", "--check", cwd=clone).code == 1, "the user's own pages are not written"
        assert bakeoff("history", cwd=clone).code == 0
        assert bakeoff("history", "--check", cwd=clone).code == 0

    def test_all_machines_own_and_published(self, clone: Path) -> None:
        tables = clone.parent / "runs" / "published" / "RESULTS.md"
        assert "Old CPU" not in tables.read_text()
        ran = bakeoff("publish", "--machine", "all", "--json", cwd=clone)
        assert {Path(path).name for path in json.loads(ran.out)["written"]} >= {
            "README.md",
            "RESULTS.md",
            "latency.svg",
        }
        assert "Old CPU" in tables.read_text()
        assert "Published CPU" in tables.read_text()
        assert bakeoff("history", "--check", cwd=clone).code == 0

    def test_a_superseded_record_leaves_the_pages(self, clone: Path) -> None:
        published = clone.parent / "runs" / "published"
        last = load_all(published).current[-1]
        ran = bakeoff("publish", "--supersede", last.id, "busy", cwd=clone)
        assert ran.code == 0, ran.err
        assert changed(clone) == [], "published pages change by publish alone"
        assert bakeoff("publish", cwd=clone).code == 0
        assert [entry.id for entry, _ in load_all(published).superseded] == [last.id]
        assert last.id not in citations((published / "RESULTS.md").read_text())
