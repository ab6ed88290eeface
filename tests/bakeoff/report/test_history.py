"""The generated history: what it says, what it cites, and how it is checked against the records."""

import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import pytest
from comparisons import final
from few_records import THREE, at, block, folder_in, ms, stored, whole_tables
from records import HOST, machine_of_host, measurement

from bakeoff.record.finding import new_finding
from bakeoff.record.objective import parse_objective
from bakeoff.record.schema import Record
from bakeoff.record.store import Records, StoredComparison, load_all, save, supersede
from bakeoff.report.pages import files, history
from bakeoff.report.render.markdown import citations, render


def page_of(records: Records) -> str:
    """The page of the machine that measured last."""
    return render(history.of_machine(records, records.machines()[0]))


class TestStories:
    """Eager takes 10.95 ms with [10.5, 11.4], and each other row as much more than its first sample."""

    def steps(self, *made: Record, comparisons: tuple[StoredComparison, ...] = ()) -> list[str]:
        """The steps of the only story, as on the page."""
        page = page_of(Records(stored(*made), (), (), comparisons))
        return re.findall(r"^1\. (.*)$", page, re.MULTILINE)

    def names(self, *made: Record, comparisons: tuple[StoredComparison, ...] = ()) -> list[str]:
        found = (re.match(r"\*\*\S+ \S+ (.*?)\*\*: ", step) for step in self.steps(*made, comparisons=comparisons))
        return [each[1] for each in found if each is not None]

    def sweep(self, second: int, **rows: float) -> list[Record]:
        """A sweep of these backends, in its own minute."""
        named = rows.items()
        return [at(second + place, name, ms(first), sweep=f"s{second}") for place, (name, first) in enumerate(named)]

    def test_the_baseline_then_what_was_faster_than_the_best_before_in_the_same_sweep(self) -> None:
        first, second = self.sweep(1, eager=10.0, inductor=6.0), self.sweep(5, eager=11.0, inductor=6.5, aoti=3.0)
        eager, inductor, aoti = self.steps(*first, *second)
        assert eager.startswith(
            "**2026-01-02 03:04 eager fp32**: median ms [95 %] 10.95 [10.50, 11.40], mean ms 10.95, "
        )
        assert inductor.startswith(
            "**2026-01-02 03:04 inductor fp32**: 1.58x [1.42, 1.75] eager fp32 (10.95 to 6.950 ms); median ms "
        )
        assert aoti.startswith(
            "**2026-01-02 03:04 aoti fp32**: 3.03x [2.61, 3.54] eager fp32 (11.95 to 3.950 ms); 1.89x [1.59, 2.26] the "
            "best then (7.450 to 3.950 ms); median "
        )
        assert "error 1.0e-06" in aoti
        assert [step[step.rindex("[") :] for step in (eager, inductor, aoti)] == ["[id-0]", "[id-1]", "[id-4]"]

    def test_a_faster_row_whose_interval_overlaps_is_no_milestone(self) -> None:
        made = [*self.sweep(1, eager=10.0, inductor=6.0), *self.sweep(5, eager=10.0, inductor=6.0, aoti=5.5)]
        assert self.names(*made) == ["eager fp32", "inductor fp32"]

    def test_a_sweep_of_fewer_variants_is_no_milestone(self) -> None:
        """As one of eager alone once stood there as if the model had become slower."""
        made = [*self.sweep(1, eager=10.0, inductor=6.0), at(3, "eager", ms(5.0), dtype="bf16", sweep="s1")]
        later = [at(6, "eager", ms(10.0), sweep="s6"), at(7, "eager", ms(2.0), dtype="bf16", sweep="s6")]
        assert self.names(*made) == ["eager fp32", "eager bf16"]
        faster = [at(2, "inductor", ms(4.0), sweep="s1"), *made[::2]]
        assert self.names(*faster, *later) == ["eager fp32", "inductor fp32"]
        assert self.names(*faster, *later, *self.sweep(10, openvino=1.0, eager=10.0)) == [
            "eager fp32", "inductor fp32", "openvino fp32",
        ]  # fmt: skip

    def test_without_the_best_before_what_counts_is_eager_of_the_own_sweep(self) -> None:
        first = self.sweep(1, eager=10.0, inductor=6.0)
        slower, faster = self.sweep(5, eager=20.0, aoti=11.0), self.sweep(8, eager=20.0, openvino=5.0)
        assert self.names(*first, *slower) == ["eager fp32", "inductor fp32"], "1.75x [1.65, 1.87] is not above 1.75x"
        *_, last = self.steps(*first, *slower, *faster)
        assert last.startswith(
            "**2026-01-02 03:04 openvino fp32**: 3.52x [3.20, 3.89] eager fp32 (20.95 to 5.950 ms); - the best then; "
        )

    def test_other_libraries_are_a_milestone_if_the_row_gained_against_eager(self) -> None:
        first = self.sweep(1, eager=10.0, inductor=6.0)
        for factor, names in ((6.0, 2), (2.0, 3)):
            later = [
                replace(row, versions={"bakeoff": "0.1.0", "torch": "2.14.0"})
                for row in self.sweep(5, eager=10.0, inductor=factor)
            ]
            steps = self.steps(*first, *later)
            assert len(steps) == names
        assert "; - the best then; " in steps[2]
        assert steps[2].startswith("**2026-01-02 03:04 inductor fp32**: 3.71x [3.09, 4.56] eager fp32 (")
        assert "; changed: with another version of torch (2.13.0, not 2.14.0) [" in steps[2]
        assert len(self.steps(*first, *self.sweep(5, eager=10.0, inductor=2.0))) == 2, "nothing but the time is other"

    def test_a_best_that_fails_gives_way_to_the_next(self) -> None:
        first, second = (
            self.sweep(1, eager=10.0, inductor=6.0, aoti=7.5),
            self.sweep(5, eager=10.0, inductor=6, aoti=7.5),
        )
        failed = replace(second[1], measurement=at(1, "x", status="crashed", reason="signal 11").measurement)
        unstable = replace(second[1], measurement=replace(second[1].measurement, status="unstable"))
        assert self.names(*first, second[0], failed, second[2]) == ["eager fp32", "inductor fp32", "aoti fp32"]
        assert self.names(*first, second[0], unstable, second[2]) == ["eager fp32", "inductor fp32"]

    def test_a_final_decides_and_is_cited(self) -> None:
        eager, inductor, aoti = made = self.sweep(1, eager=10.0, inductor=6.0, aoti=6.2)
        race = replace(
            final(replace(aoti, measurement=self.sweep(1, aoti=2.0)[0].measurement), inductor, eager), sweep="s1"
        )
        (_, best) = self.steps(*made, comparisons=(StoredComparison("f_1na1", race),))
        assert best.startswith(
            "**2026-01-02 03:04 aoti fp32**: 3.71x [3.71, 3.71] eager fp32 (10.95 to 2.950 ms, final); median ms "
            "[95 %] 7.150 "
        )
        assert best.endswith(" [id-2] [1na1]")
        other = replace(race, sweep="another")
        assert self.names(*made, comparisons=(StoredComparison("f_1na1", other),)) == ["eager fp32", "inductor fp32"]

    def test_a_smaller_sweep_that_measured_the_best_and_decided_for_another_is_a_milestone(self) -> None:
        """Though the machine's two speeds made the winner of its final unstable, as its page of results says."""
        whole = self.sweep(1, eager=10.0, inductor=6.0, aoti=7.5, openvino=9.0)
        eager, inductor, aoti = self.sweep(6, eager=10.0, inductor=6.0, aoti=4.0)
        race = replace(
            final(replace(aoti, measurement=self.sweep(1, aoti=2.0)[0].measurement), inductor, eager), sweep="s6"
        )
        modes = {"status": "unstable", "reason": "two modes", "findings": (new_finding("bimodal", "two modes"),)}
        aoti = replace(aoti, measurement=replace(aoti.measurement, **modes))
        made, known = (*whole, eager, inductor, aoti), (StoredComparison("f_1na1", race),)
        assert self.names(*made, comparisons=known) == ["eager fp32", "inductor fp32", "aoti fp32"]
        page = page_of(Records(stored(*made), (), (), known))
        assert "Deploy aoti fp32: in the final it was faster than inductor fp32" in page
        assert "Tried, without a result that counts" not in page
        assert self.names(*made) == ["eager fp32", "inductor fp32"], "nothing decided for it"
        lost = replace(
            final(replace(aoti, measurement=self.sweep(1, aoti=9.0)[0].measurement), inductor, eager), sweep="s6"
        )
        page = page_of(Records(stored(*made), (), (), (StoredComparison("f_1na1", lost),)))
        tried = re.search(r"^Tried, and slower than the best:\n\n((?:- .*\n(?:  .*\n)*)+)", page, re.MULTILINE)
        assert tried is not None
        assert "aoti fp32**: unstable: two modes; " in tried[1]

    def test_what_did_not_help_has_its_newest_figures_or_why_it_failed(self) -> None:
        made = [*self.sweep(1, eager=10.0, inductor=6.0, aoti=9.0), *self.sweep(5, eager=10.0, inductor=6.0, aoti=8.0)]
        made += [at(9, "onnxruntime", status="crashed", reason="signal 11", sweep="s5")]
        made += [at(10, "openvino", status="unavailable", reason="no openvino", sweep="s5")]
        page = page_of(Records(stored(*made), (), ()))
        tried = re.findall(r"^(Tried.*):\n\n- (.*)\n", page, re.MULTILINE)
        (slower, aoti), (useless, failed) = tried
        assert aoti.startswith(
            "**2026-01-02 03:04 aoti fp32**: 1.22x [1.12, 1.34] eager fp32 (10.95 to 8.950 ms); 0.78x [0.69, 0.87] the "
            "best then (6.950 to 8.950 ms); median "
        )
        assert aoti.endswith(" [id-5]")
        assert failed == "**2026-01-02 03:04 onnxruntime fp32**: crashed: signal 11 [id-6]"
        assert (slower, useless) == ("Tried, and slower than the best", "Tried, without a result that counts")

    def test_what_was_tried_is_told_by_what_became_of_it(self) -> None:
        first = self.sweep(1, eager=10.0, inductor=6.0, aoti=8.0, openvino=12.5, onnxruntime=6.2)
        page = page_of(Records(stored(*first, *self.sweep(8, inductor=6.0, torchao=9.0)), (), ()))
        found = re.findall(r"^Tried, (.*):\n\n((?:- .*\n)+)", page, re.MULTILINE)
        assert {title: re.findall(r"\*\*\S+ \S+ (\S+) fp32\*\*", items) for title, items in found} == {
            "without a difference from the best, or not together with it": ["onnxruntime"],
            "and slower than the best": ["aoti", "torchao"],
            "and slower than the baseline": ["openvino"],
        }

    def test_what_to_deploy_is_told_by_the_sweep_of_the_nearest_rival(self) -> None:
        """Not by an earlier one, whose runner-up was further away: it was called far ahead of that."""
        made = [*self.sweep(1, eager=10.0, inductor=3.0), *self.sweep(5, eager=10.0, inductor=3.0, aoti=4.0)]
        for later in ((), self.sweep(9, eager=10.0, inductor=3.0)):
            page = page_of(Records(stored(*made, *later), (), ()))
            assert "inductor fp32 has the lowest median, 3.950 ms [3.500, 4.400], before aoti fp32 with 4.950" in page
            assert "far ahead" not in page

    def test_the_best_is_shown_as_it_was_measured_last(self) -> None:
        made = [*self.sweep(1, eager=10.0, inductor=6.0), *self.sweep(5, eager=10.0, inductor=5.5)]
        records = Records(stored(*made), (), ())
        page = page_of(records)
        assert "\nMeasured last:\n\n- **2026-01-02 03:04 inductor fp32**: 1.70x " in page
        (row,) = (
            line for line in render(history.of_all(Records(stored(*made), (), ()))).splitlines() if "toy:" in line
        )
        assert [cell.strip() for cell in row.split("|")][2:-1] == [
            "10.95",
            "inductor fp32",
            "6.450",
            "1.70x",
            "2026-01-02 [id-3]",
        ]

    def test_milestones_of_a_sweep_for_throughput_are_by_throughput_and_in_a_story_of_their_own(self) -> None:
        rate = parse_objective("throughput")
        slow_alone = replace(measurement(ms(12.0)), throughput=measurement(ms(5.0)).throughput)
        eager, inductor = (replace(each, objective=rate) for each in self.sweep(5, eager=10.0, inductor=12.0))
        made = [*self.sweep(1, eager=10.0, aoti=8.0), eager, replace(inductor, measurement=slow_alone)]
        page = page_of(Records(stored(*made), (), ()))
        by_latency, by_rate = page.split("\n## ")[1:3]
        assert by_rate.startswith("toy:tiny.world, throughput")
        assert ("aoti fp32" in by_latency, "inductor" in by_latency) == (True, False)
        assert re.search(r"^1\. .* inductor fp32\*\*: 1\.8\dx ", by_rate, re.MULTILINE)


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

    def test_the_page_of_all_machines_begins_with_the_one_that_measured_last(self, runs: Path) -> None:
        save(runs, at(40, "eager", ms(9.0), machine=machine_of_host(replace(HOST, cpu="Another CPU"))))
        records = load_all(runs)
        another, test = records.machines()
        page = render(history.of_all(records))
        assert re.findall(r"^- \*\*(.+)\*\*: (\d) record", page, re.MULTILINE) == [
            (another.name, "1"),
            (test.name, "3"),
        ]
        rows = [[cell.strip() for cell in line.split("|")] for line in page.splitlines() if line.startswith("| ")]
        assert [row[1:6] for row in rows[1:]] == [
            [f"[{another.tag}]", "", "", "", ""],
            ["toy:tiny.world", "9.950", "eager fp32", "9.950", "-"],
            [f"[{test.tag}]", "", "", "", ""],
            ["toy:tiny.world", "10.95", "inductor fp32", "5.950", "1.84x"],
        ]
        files.update(runs)
        for path in (runs / history.NAME, *runs.glob(f"*/{history.NAME}")):
            targets = re.findall(r"^\[.+\]: (\S+)$", path.read_text(), re.MULTILINE)
            assert len(targets) == (6 if path.parent == runs else 1 if another.folder in str(path) else 3)
            assert all((path.parent / unquote(target)).is_file() for target in targets)

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
        """Mean, min, max, std and calls a second as written, against the record itself."""
        save(runs, at(30, "aoti", [4.0] * 19 + [24.0], sweep=THREE[0].sweep))
        page, records = page_of(load_all(runs)), load_all(runs)
        for entry in (entry for entry in records.current if entry.record.variant.backend in ("eager", "aoti")):
            (step,) = (
                line for line in page.splitlines() if f"{entry.record.variant.backend} fp32**" in line and "std" in line
            )
            figures = entry.record.latency
            assert figures is not None
            wanted = {"mean": figures.mean_ms, "min": figures.min_ms, "max": figures.max_ms, "std": figures.std_ms}
            found = {key: float(re.findall(rf"{key} ms ([\d.]+)", step)[0]) for key in wanted}
            assert found == pytest.approx(wanted, abs=0.005)
            assert f"avg FPS {1000 / figures.mean_ms:.2f}" in step
