"""The generated history: what it cites, and how it is checked against the records."""

import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import pytest
from comparisons import final
from few_records import THREE, at, block, folder_in, ms, stored, tables, whole_tables
from records import HOST, machine_of_host

from bakeoff.record.schema import SCHEMA, Comparison, Round, Samples
from bakeoff.record.store import Records, load_all, save, supersede
from bakeoff.report.markdown import elsewhere, history
from bakeoff.report.pages import files
from bakeoff.report.render.markdown import citations


class TestHistoryPage:
    def test_superseded_records_are_listed_and_not_shown(self, runs: Path) -> None:
        bad = load_all(runs).current[1]
        supersede(runs, bad.id, "another program ran")
        page = history.render(load_all(runs))
        assert f"- `{bad.id}`: another program ran" in page.partition("## Superseded")[2]
        assert f"/{bad.id}.json)" not in page
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
            path.write_text(text.replace("10.95", "9.95"))
            (problem,) = files.check(runs)
            assert str(path) in problem
            path.write_text(text)
        save(runs, at(9, "inductor", ms(4.0)))
        assert len(files.check(runs)) == 3
        files.update(runs)
        assert files.check(runs) == []
        cited = next(folder_in(runs).glob("*freezing*.json"))
        cited.unlink()
        assert all(cited.stem in problem for problem in files.check(runs))

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
        page = history.render_machine(records, test)
        assert [line for line in page.splitlines() if line.startswith("## ")] == ["## toy"]
        assert page.count("\n#### ") == 2
        assert "sweep 20260103T000000-fedcba, outside a checkout" in page
        assert "> after the change\n" in page
        assert history.render_machine(records, another).count("\n#### ") == 1

    def test_a_final_stands_in_the_entry_of_its_own_sweep(self, runs: Path) -> None:
        save(runs, replace(at(30, "eager", ms(9.0)), sweep="another"))
        name = save(runs, final(*THREE[:2], sweep=THREE[0].sweep))
        entries = history.render(load_all(runs)).split("\n#### ")[1:]
        found = {entry.partition("sweep ")[2].partition(",")[0]: "\nFinal: " in entry for entry in entries}
        assert found == {THREE[0].sweep: True, "another": False}
        assert name in "".join(entries)

    def test_the_page_of_all_machines_opens_with_the_one_that_measured_last(self, runs: Path) -> None:
        save(runs, at(40, "eager", ms(9.0), machine=machine_of_host(replace(HOST, cpu="Another CPU"))))
        records = load_all(runs)
        another, test = records.machines()
        page = history.render(records)
        assert re.findall(r"^- (.+) \(\w{6}\): (\d) record", page, re.MULTILINE) == [
            (another.name, "1"),
            (test.name, "3"),
        ]
        assert len(citations(page)) == 1, "the history of the last machine alone"
        files.update(runs)
        for path in [*runs.glob("*.md"), *runs.glob("*/*.md")]:
            for target in re.findall(r"\]\(([^)]+)\)", path.read_text()):
                assert (path.parent / unquote(target)).is_file(), f"{path}: {target}"

    def test_what_others_published_is_quoted_and_not_divided_by(self) -> None:
        base = at(1, "eager", ms(10.0))
        made = [replace(base, variant=replace(base.variant, component=name)) for name in ("wm", "matrix-vae")]
        page = history.render(Records(stored(*made), (), ()))
        (lines,) = tables(page.partition(elsewhere.HEADING)[2])
        found = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
        assert [row[1:] for row in found] == [["29.00", "3.10"], ["294", "not stated"]]
        assert "x" not in "".join(cell for row in found for cell in row[1:]), "no ratio"
        assert elsewhere.HEADING not in history.render(Records(stored(base), (), ()))

    def test_a_machine_that_only_compared_has_a_history(self, tmp_path: Path) -> None:
        sides = tuple(replace(made, measurement=replace(made.measurement, latency=None)) for made in THREE[:2])
        rounds = tuple(Round((0, 1), (Samples([300]), Samples([100]))) for _ in range(20))
        name = save(tmp_path, Comparison(SCHEMA, THREE[0].created, "", "interleaved", 1, sides, rounds))
        assert len(files.update(tmp_path)) == 3
        assert citations((tmp_path / history.NAME).read_text()) == [name]

    def test_only_pages_of_the_given_machines_are_written(self, runs: Path) -> None:
        save(runs, at(40, "eager", ms(9.0), machine=machine_of_host(replace(HOST, cpu="Another CPU"))))
        another, test = load_all(runs).machines()
        files.update(runs)
        for path in runs.glob("*/*.md"):
            path.write_text("mine")
        written = files.update(runs, machines=[test.id])
        assert [path.parent.name for path in written] == [runs.name, test.folder, test.folder]
        assert (runs / another.folder / "RESULTS.md").read_text() == "mine"
        (runs / another.folder / history.NAME).unlink()
        assert len(files.update(runs, machines=[test.id])) == 5, "pages that are missing are written"

    def test_figures_are_those_of_the_samples(self, runs: Path) -> None:
        """Mean, Min, Max, Std and calls a second as written in the table, against the record itself."""
        save(runs, at(30, "aoti", [4.0] * 19 + [24.0]))
        page = history.render(load_all(runs))
        for entry in load_all(runs).current:
            (line,) = [line for line in page.splitlines() if f"/{entry.id}.json)" in line]
            found = [cell.strip() for cell in line.strip("|").split("|")]
            figures = entry.record.latency
            assert figures is not None
            wanted = (figures.mean_ms, figures.min_ms, figures.max_ms, figures.std_ms)
            assert [float(cell) for cell in found[2:6]] == pytest.approx(wanted, abs=0.005)
            assert found[9] == f"{1000 / figures.mean_ms:.2f}"
