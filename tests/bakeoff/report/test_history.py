"""The generated history: what it says, what it cites, and how it is checked against the records."""

import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import pytest
from comparisons import final
from few_records import THREE, at, block, folder_in, ms, rows_by_link, stored, whole_tables
from records import HOST, machine_of_host

from bakeoff.record.objective import parse_objective
from bakeoff.record.schema import SCHEMA, Comparison, Record, Round, Samples
from bakeoff.record.store import Records, StoredComparison, load_all, save, supersede
from bakeoff.report.pages import files, history
from bakeoff.report.render.markdown import citations, render


def page_of(records: Records) -> str:
    """The page of the machine that measured last."""
    return render(history.of_machine(records, records.machines()[0]))


class TestLines:
    def lines(self, *made: Record, comparisons: tuple[StoredComparison, ...] = ()) -> list[str]:
        """Those of all machines, the newest first."""
        page = render(history.of_all(Records(stored(*made), (), (), comparisons)))
        return [line for line in page.splitlines() if line.startswith("- 2026")]

    def test_the_best_row_of_each_sweep_beside_that_of_the_one_before(self) -> None:
        old = [at(1, "eager", ms(10.0), sweep="a"), at(2, "inductor", ms(8.0), sweep="a")]
        new = [at(3, "eager", ms(10.0), sweep="b"), at(4, "aoti", ms(4.0), sweep="b")]
        new += [at(5, "onnxruntime", ms(1.0), "parity_failed", "wrong", sweep="b")]
        assert self.lines(*old, *new, at(6, "eager", status="crashed", sweep="c")) == [
            "- 2026-01-02 03:04 toy:tiny.world: nothing is ok",
            "- 2026-01-02 03:04 toy:tiny.world: aoti fp32 4.950 ms, 2.21x eager fp32, was inductor fp32 8.950 ms",
            "- 2026-01-02 03:04 toy:tiny.world: inductor fp32 8.950 ms, 1.22x eager fp32",
        ]

    def test_what_else_changed_is_said(self) -> None:
        versions = {"bakeoff": "0.1.0", "torch": "2.12.0"}
        made = [at(1, "eager", ms(10.0), sweep="a", versions=versions), at(2, "eager", ms(8.0), sweep="b")]
        (line, _) = self.lines(*made)
        was = "was 10.95 ms with another version of torch (2.12.0, not 2.13.0)"
        assert line.endswith(f": eager fp32 8.950 ms, {was}")

    def test_a_final_decides_which_is_best(self) -> None:
        made = [at(1, "eager", ms(10.0), sweep="a"), at(2, "inductor", ms(9.9), sweep="a")]
        slower = replace(final(replace(made[1], measurement=at(1, "eager", ms(30.0)).measurement), made[0]), sweep="a")
        (line,) = self.lines(*made, comparisons=(StoredComparison("final", slower),))
        assert line.endswith(": eager fp32 10.95 ms, faster in a final")

    def test_a_sweep_for_throughput_has_its_rate(self) -> None:
        (line,) = self.lines(at(1, "eager", ms(10.0), objective=parse_objective("throughput")))
        assert line.endswith(": eager fp32 91.32 [87.72, 95.24] items/s")

    def test_subjects_of_one_name_have_their_whole_titles(self) -> None:
        lines = self.lines(at(1, "eager", ms(10.0), batch=2), at(2, "eager", ms(8.0)))
        assert ["batch 1" in line for line in lines] == [True, False]
        assert not any("was" in line for line in lines)


class TestHistoryPage:
    def test_superseded_records_are_listed_and_not_shown(self, runs: Path) -> None:
        bad = load_all(runs).current[1]
        supersede(runs, bad.id, "another program ran")
        page = page_of(load_all(runs))
        assert f"- **{bad.id}**: another program ran" in page.partition("## Superseded")[2]
        assert bad.id not in citations(page)
        assert bad.id not in block(load_all(runs))
        assert bad.id not in whole_tables(load_all(runs))

    def test_check(self, runs: Path) -> None:
        assert len(files.check(runs)) == 3
        paths = files.update(runs)
        machine = folder_in(runs).parent
        assert paths == [runs / history.NAME, machine / "RESULTS.md", machine / history.NAME]
        for path in paths:
            assert files.check(runs) == []
            text = path.read_text()
            path.write_text(text.replace("1.84x", "9.84x"))
            (problem,) = files.check(runs)
            assert str(path) in problem
            path.write_text(text)
        save(runs, at(9, "inductor", ms(4.0)))
        assert len(files.check(runs)) == 3
        files.update(runs)
        assert files.check(runs) == []
        cited = next(folder_in(runs).glob("*freezing*.json"))
        cited.unlink()
        assert [cited.stem in problem for problem in files.check(runs)] == [False, True, True]

    def test_check_lists_every_file_that_cannot_be_read(self, runs: Path) -> None:
        for index in range(9):
            (folder_in(runs) / f"torn{index}.json").write_text("{")
        assert [problem.count(".json") for problem in files.check(runs)] == [1] * 9

    def test_check_of_pages_whose_records_are_gone(self, runs: Path) -> None:
        """The page of a machine that has no record left cites what is missing."""
        save(runs, at(40, "eager", ms(9.0), machine=machine_of_host(replace(HOST, cpu="Another CPU"))))
        files.update(runs)
        (gone,) = [entry for entry in load_all(runs).current if entry.machine.name.startswith("Another")]
        (runs / gone.folder / f"{gone.id}.json").unlink()
        files.update(runs)
        problems = files.check(runs)
        assert len(problems) == 2
        assert all(gone.id in problem for problem in problems)

    def test_superseding_a_cited_record_is_stale_not_missing(self, runs: Path) -> None:
        files.update(runs)
        name = load_all(runs).current[0].id
        supersede(runs, name, "busy")
        problems = files.check(runs)
        assert len(problems) == 3
        assert name not in "".join(problems)

    def test_each_sweep_is_an_entry_of_its_component_and_machine(self, runs: Path) -> None:
        save(
            runs, replace(at(30, "eager", ms(9.0), note="after the change"), sweep="20260103T000000-fedcba", commit="")
        )
        save(runs, at(40, "eager", ms(9.0), machine=machine_of_host(replace(HOST, cpu="Another CPU"))))
        records = load_all(runs)
        another, test = records.machines()
        page = render(history.of_machine(records, test))
        assert re.findall("^## (.*)", page, re.MULTILINE) == ["Newest first", "toy", "Columns"]
        assert re.findall("<summary>.* UTC, (.*)</summary>", page) == [
            "sweep 20260103T000000-fedcba, outside a checkout",
            "sweep 20260102T030400-abcdef, commit 0123456789ab",
        ]
        assert "**note**: after the change\n" in page
        assert render(history.of_machine(records, another)).count("<summary>") == 1

    def test_a_final_stands_in_the_entry_of_its_own_sweep(self, runs: Path) -> None:
        save(runs, replace(at(30, "eager", ms(9.0)), sweep="another"))
        name = save(runs, final(*THREE[:2], sweep=THREE[0].sweep))
        page = page_of(load_all(runs))
        entries = page.split("<summary>")[1:]
        found = {entry.partition("sweep ")[2].partition(",")[0]: "\n**Final**: " in entry for entry in entries}
        assert found == {THREE[0].sweep: True, "another": False}
        assert name in citations(page)

    def test_rows_that_cannot_run_are_named_in_one_line(self) -> None:
        made = [at(2 + place, name, status="unavailable", reason="no GPU") for place, name in enumerate(("a", "b"))]
        page = page_of(Records(stored(at(1, "eager", ms(9.0)), *made), (), ()))
        assert "**2 rows cannot run here (2 unavailable)**: a fp32, b fp32 (why: " in page
        assert "**a fp32, b fp32**: no GPU\n" in page
        assert list(rows_by_link(page)) == ["id-0"]

    def test_the_page_of_all_machines_begins_with_the_one_that_measured_last(self, runs: Path) -> None:
        save(runs, at(40, "eager", ms(9.0), machine=machine_of_host(replace(HOST, cpu="Another CPU"))))
        records = load_all(runs)
        another, test = records.machines()
        page = render(history.of_all(records))
        assert re.findall(r"^## (.+) \(\w{6}\)\n\n(\d) record", page, re.MULTILINE) == [
            (another.name, "1"),
            (test.name, "3"),
        ]
        assert [line.partition(": ")[2] for line in page.splitlines() if line.startswith("- ")] == [
            "eager fp32 9.950 ms",
            "inductor fp32 5.950 ms, 1.84x eager fp32",
        ]
        files.update(runs)
        for path in (runs / history.NAME, *runs.glob(f"*/{history.NAME}")):
            targets = re.findall(r"^\[.+\]: (\S+)$", path.read_text(), re.MULTILINE)
            assert len(targets) == (4 if path.parent == runs else 1 if another.folder in str(path) else 3)
            assert all((path.parent / unquote(target)).is_file() for target in targets)

    def test_a_machine_that_only_compared_has_a_history(self, tmp_path: Path) -> None:
        sides = tuple(replace(made, measurement=replace(made.measurement, latency=None)) for made in THREE[:2])
        rounds = tuple(Round((0, 1), (Samples([300]), Samples([100]))) for _ in range(20))
        name = save(tmp_path, Comparison(SCHEMA, THREE[0].created, "", "interleaved", 1, sides, rounds))
        assert len(files.update(tmp_path)) == 3
        (path,) = tmp_path.glob(f"*/{history.NAME}")
        assert citations(path.read_text()) == [name]

    def test_only_pages_of_the_given_machines_are_written(self, runs: Path) -> None:
        save(runs, at(40, "eager", ms(9.0), machine=machine_of_host(replace(HOST, cpu="Another CPU"))))
        another, test = load_all(runs).machines()
        files.update(runs)
        for path in runs.glob("*/*.md"):
            path.write_text("mine")
        written = files.update(runs, machines=[test.key])
        assert [path.parent.name for path in written] == [runs.name, test.folder, test.folder]
        assert (runs / another.folder / "RESULTS.md").read_text() == "mine"
        (runs / another.folder / history.NAME).unlink()
        assert len(files.update(runs, machines=[test.key])) == 5, "pages that are missing are written"

    def test_figures_are_those_of_the_samples(self, runs: Path) -> None:
        """Mean, Min, Max, Std and calls a second as written in the table, against the record itself."""
        save(runs, at(30, "aoti", [4.0] * 19 + [24.0]))
        found = rows_by_link(page_of(load_all(runs)))
        for entry in load_all(runs).current:
            row, figures = found[entry.id], entry.record.latency
            assert figures is not None
            wanted = {"mean": figures.mean_ms, "min": figures.min_ms, "max": figures.max_ms, "std": figures.std_ms}
            assert {key: float(row[f"{key} ms"]) for key in wanted} == pytest.approx(wanted, abs=0.005)
            assert row["avg FPS"] == f"{1000 / figures.mean_ms:.2f}"
