"""Pages of pipelines: what they say of each mix, and that equal records give equal pages."""

import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from answers import present
from pipeline_records import (
    BEST,
    MACHINE,
    failed,
    measured,
    pipeline_record,
    run_of_two,
    units,
)
from records import bakeoff, record

from bakeoff.mix import parse_mix
from bakeoff.record.objective import OF_BUDGET, parse_objective
from bakeoff.record.pipeline import Budget, Forecast, PipelineRecord, UnitKind
from bakeoff.record.store import Records, StoredPipeline, load_all, save, supersede
from bakeoff.report.document import Document, Text
from bakeoff.report.figures.pipeline import units_figure, waterfall_figure
from bakeoff.report.pages import files, history, readme, results
from bakeoff.report.pages import pipelines as pages
from bakeoff.report.pipelines import MixRow, named, newest_budgets, pipeline_tables
from bakeoff.report.render import markdown, terminal
from bakeoff.report.selection import chosen

AOTI = "owl:200m/wm=aoti/bf16,image=eager/fp32@cpu"


def stored(*made: PipelineRecord) -> tuple[StoredPipeline, ...]:
    return tuple(StoredPipeline(f"id-{place}", entry) for place, entry in enumerate(made))


def records(*made: PipelineRecord) -> Records:
    return Records((), (), (), pipelines=stored(*made))


def recompiled() -> PipelineRecord:
    """The best mix, with a unit that compiled."""
    kinds: list[UnitKind] = ["opening", "filling", *(["steady"] * 8)]
    made = units([{"denoise": 40.0, "glue": 1.0}] * 10, kinds, moved={"5": ("wm.step",)})
    return pipeline_record(BEST, "best", measured(BEST, status="unstable", reason="recompiled: wm.step", units=made))


def of_runs(*made: PipelineRecord) -> str:
    """What `bakeoff pipeline` prints at the end of these runs."""
    return terminal.render(pages.of_runs(stored(*made)))


def run_of_budget() -> tuple[PipelineRecord, PipelineRecord]:
    """The two mixes that a budget confirms after `run_of_two`, the best one and another."""
    objective = parse_objective("fps>=1", OF_BUDGET)
    promised = tuple(Forecast(parse_mix(text).variants, ms, None, None) for text, ms in ((BEST, 50.0), (AOTI, 80.0)))
    budget = Budget(objective, None, 1, 9, promised)
    later = {"run": "20260103T030400-abcdef", "created": "2026-01-03T03:04:05.000000Z", "budget": budget}
    later |= {"forecast": None}
    return tuple(
        pipeline_record(text, "", measured(text, factor), **later) for text, factor in ((BEST, 0.5), (AOTI, 0.75))
    )


def rows_of(shown: str) -> dict[str, str]:
    """The lines of all tables by their first word."""
    return {line.split()[0]: line for line in reversed(shown.splitlines()) if line.strip()}


class TestSections:
    def test_the_table_of_a_run_after_what_to_deploy(self) -> None:
        shown = of_runs(*run_of_two(0.5), pipeline_record(AOTI, "", failed(AOTI)))
        head, _, _, verdict, *_ = shown.splitlines()
        assert head == "owl:200m, audio window 30, steps 4, Test CPU, 4 cores, 4 threads, random weights, seed 0"
        told = "2.00x as fast as eager [2.00, 2.00] (20 pairs of interleaved units, one process each)"
        mix = "owl:200m/wm=inductor[freezing]/bf16,image=openvino/bf16@cpu"
        assert verdict == f"Deploy best, {mix}: it is {told}."
        rows = rows_of(shown)
        assert re.search(r"ok +101\.05 \[100\.60, 101\.50\] +9\.90 +0\.40x", rows["eager"])
        assert re.search(r" \+24\.8%", rows["eager"])
        assert "2.00x [2.00, 2.00]" in rows["best"]
        assert f"\nbest: {BEST}\n" in shown
        assert "mix A: oom: needs 13 GiB, 4 are free" in shown
        assert "eager: a unit takes 101.05 ms, 81.00 [73.64, 89.10] were promised (+24.8%)" in shown
        assert "between programs explains 50% of the difference (+10.11 ms)" in shown

    def test_the_fastest_is_first_and_those_that_are_not_ranked_last(self) -> None:
        rows = named(stored(pipeline_record(AOTI, "", failed(AOTI)), *run_of_two(0.5)))
        assert [row.name for row in rows] == ["best", "eager", "mix A"]

    def test_p99_is_of_a_hundred_units(self) -> None:
        many = replace(measured(), units=units([{"denoise": 40.0 + number} for number in range(100)]))
        assert re.search(r" 138\.00 ", rows_of(of_runs(pipeline_record(made=many)))["eager"])
        assert "p99" not in of_runs(pipeline_record())

    def test_equal_mixes_are_not_decided(self) -> None:
        (section,) = pages.sections(stored(*run_of_two(1.0)))
        verdict = section.blocks[0]
        assert isinstance(verdict, Text)
        assert verdict.text.startswith("Not decided: ")
        assert verdict.tone == "open"
        assert "best against eager: no difference shown, 1.00x" in of_runs(*run_of_two(1.0))

    def test_the_fastest_of_another_run_is_not_decided_to_be_the_best(self) -> None:
        again = replace(pipeline_record(made=measured(factor=0.1)), created="2026-03-01T00:00:00.000000Z", run="second")
        (section,) = pages.sections(stored(*run_of_two(0.5), again))
        verdict = section.blocks[0]
        assert isinstance(verdict, Text)
        assert verdict.text.startswith("Not decided: eager is the fastest, but not shown to be faster")
        assert verdict.tone == "open"

    def test_an_unstable_mix_is_not_ranked_and_says_why(self) -> None:
        shown = of_runs(pipeline_record(), recompiled())
        assert "best: unstable: recompiled: wm.step" in shown
        assert "best: unit 5 compiled wm.step" in shown
        assert "as fast as eager" not in shown
        assert "Nothing to compare with: no mix that is ok took turns with eager." in shown

    def test_printed_shares_add_up(self) -> None:
        for entry in run_of_two(0.37):
            table = present(pages.phases_table([MixRow(stored(entry)[0], "")]))
            (place,) = (place for place, heading in enumerate(table.headings) if heading.text == "%")
            *shares, whole = (float(row[place].text) for row in table.rows if row[place].text)
            assert round(sum(shares), 1) == whole == 100.0

    def test_the_history_of_a_pipeline_tells_what_it_gained_in_turns(self) -> None:
        made = records(*run_of_two(0.5))
        (steps,) = (
            part
            for part in markdown.render(history.of_machine(made, made.machines()[0])).split("\n\n")
            if part.startswith("1. ")
        )
        eager, best = steps.splitlines()
        assert "wm=eager/fp32,image=eager/fp32**: ms a frame [95 %] 101.05 " in eager
        assert "**: 2.00x [2.00, 2.00] eager fp32 (101.05 to 50.52 ms); ms a frame [95 %] 50.52 " in best
        assert "error 1.0e-06" in best
        assert best.endswith(" [id-1]")
        assert f"\n\nDeploy {BEST}: it is 2.00x as fast as eager [2.00, 2.00] (20 pairs" in markdown.render(
            history.of_machine(made, made.machines()[0])
        )
        lines = markdown.render(history.of_all(made)).splitlines()
        (row,) = (line for line in lines if line.startswith("| owl:200m"))
        assert [cell.strip() for cell in row.split("|")][2:6] == ["101.05", "a mix, named below", "50.52", "2.00x"]
        (mix,) = (line for line in lines if line.startswith("- **owl:200m of "))
        assert mix.endswith("**: wm=inductor[freezing]/bf16,image=openvino/bf16")

    def test_json_has_the_figures_as_numbers(self) -> None:
        by_name = {row["name"]: row for row in pages.as_rows(stored(*run_of_two(0.5), recompiled()))}
        assert by_name["best"]["status"] == "unstable"
        first = by_name["eager"]
        assert first["forecast"]["ms"] == pytest.approx(81)
        assert first["promise_error"] > 0.2
        assert sum(line["thousandths"] for line in first["phases"]) == 1000


class TestTables:
    def test_the_newest_record_of_each_mix(self) -> None:
        old = replace(pipeline_record(made=measured(factor=3.0)), created="2026-01-01T00:00:00.000000Z", run="old")
        (table,) = pipeline_tables(stored(*run_of_two(), old))
        assert [row.name for row in table.rows] == ["best", "eager"]
        assert table.stale == ()

    def test_a_mix_is_held_against_the_eager_of_its_own_run_though_a_newer_one_replaced_it(self) -> None:
        first = [replace(each, created=f"2026-01-01T00:00:0{number}.000000Z", run="first")
                 for number, each in enumerate(run_of_two(0.25))]  # fmt: skip
        again = replace(pipeline_record(made=measured(factor=3.0)), created="2026-03-01T00:00:00.000000Z", run="second")
        (table,) = pipeline_tables(stored(*first, again))
        (best,) = (row for row in table.rows if row.name == "best")
        assert best.gain is not None
        assert best.gain.ratio == pytest.approx(4.0)
        assert best.against == "eager of 2026-01-01 00:00:00"

    def test_runs_of_a_budget_are_rows_only_where_nothing_else_is_current(self) -> None:
        both, confirmed = run_of_two(), run_of_budget()
        (table,) = pipeline_tables(stored(*both, *confirmed))
        assert [row.record for row in table.rows] == [both[1], both[0]]
        older = [replace(entry, instrument="0ther") for entry in both]
        (table,) = pipeline_tables(stored(*older, *confirmed))
        assert [row.record for row in table.rows] == [*confirmed]
        (table,) = pipeline_tables(stored(*confirmed))
        assert [row.record for row in table.rows] == [*confirmed]

    def test_a_budget_that_is_confirmed_again_is_the_newest(self) -> None:
        first = run_of_budget()[0]
        made = [replace(first, created=f"2026-01-0{day}T00:00:00.000000Z", run=f"{day}") for day in (4, 5, 6)]
        ((newest,),) = newest_budgets(stored(*made))
        assert newest.record == made[2]

    def test_a_budget_is_on_the_page_of_results_with_what_it_promised(self) -> None:
        found = chosen(records(*run_of_two(), *run_of_budget()))
        assert len(found.pipelines) == 4
        text = markdown.render(results.of_published(found))
        section = text.partition("## Budget of ")[2]
        (best, other) = run_of_budget()
        assert f"By mean,fps>=1, ship {best.mix.variants}: mean 50.52 ms a frame" in section
        assert "50.00 ms were promised (+1.0%)" in section
        assert re.findall(r"\*\*([AB])\*\*: (wm=.*)", section) == [("A", best.mix.variants), ("B", other.mix.variants)]
        assert [found.pipelines[place].id in section for place in (2, 3)] == [True, True]
        later = [replace(entry, instrument="0ther", created="2026-01-04T03:04:05.000000Z") for entry in run_of_two()]
        after = markdown.render(results.of_published(records(*run_of_budget(), *later)))
        assert "Budget of" not in after
        assert "it is 2.00x as fast as eager" in readme.render(found)

    def test_the_newest_record_of_a_role_has_its_name_also_where_an_older_mix_is_the_best_again(self) -> None:
        first, other = (pipeline_record(mix, "best", measured(mix)) for mix in (AOTI, BEST))
        runs = [replace(each, created=f"2026-01-0{day}T00:00:00.000000Z", run=f"{day}")
                for day, each in enumerate((first, other, first), 1)]  # fmt: skip
        (table,) = pipeline_tables(stored(*runs))
        assert [(row.name, row.record.created[:10]) for row in table.rows] == [
            ("best", "2026-01-03"),
            ("best of 2026-01-02 00:00:00", "2026-01-02"),
        ]

    def test_other_code_is_stale(self) -> None:
        early = "2026-01-01T00:00:00.000000Z"
        changes = ({"loop_hash": "other"}, {"instrument": "other"}, {"versions": {"torch": "2.12"}})
        wanted = (
            "another source of the pipeline",
            "other measuring code",
            "another version of torch (2.12, not 2.13.0)",
        )
        for change, reason in zip(changes, wanted, strict=True):
            old = pipeline_record(AOTI, "best", measured(AOTI), created=early, run="old", **change)
            (table,) = pipeline_tables(stored(*run_of_two(), old))
            assert [row.name for row in table.rows] == ["best", "eager"]
            assert [(row.name, row.stale) for row in table.stale] == [("best", f"measured with {reason}")]

    def test_other_subjects_and_machines_have_tables_of_their_own(self) -> None:
        other = replace(pipeline_record(), machine=replace(MACHINE, machine_class="f" * 12))
        assert len(pipeline_tables(stored(*run_of_two(), pipeline_record(subject_id="other"), other))) == 3

    def test_runs_of_another_host_stand_below_with_the_ratio_to_their_own_eager(self) -> None:
        here = replace(MACHINE, machine_class="f" * 12)
        there = replace(here, id="e" * 12)
        runs = [
            *(replace(each, machine=there, run="there") for each in run_of_two()),
            *(replace(each, machine=here, created=each.created.replace("2026", "2027")) for each in run_of_two()),
        ]
        (found,) = pipeline_tables(stored(*runs))
        assert [row.record.machine for row in (*found.rows, *found.stale)] == [here, here, there, there]
        assert [row.gain is not None for row in found.stale] == [True, False]
        (section,) = pages.sections(stored(*runs))
        text = markdown.render(Document("", (section,)))
        assert text.count("2.00x eager") == text.count("2.00x [2.00, 2.00]") == 1


class TestMarkdown:
    def test_pages_are_checked_and_cite_their_records(self, tmp_path: Path) -> None:
        names = [save(tmp_path, entry) for entry in run_of_two()]
        written = files.update(tmp_path)
        assert files.check(tmp_path) == []
        overview, *others = (path.read_text() for path in written)
        assert "| owl:200m " in overview
        for page_text in others:
            assert re.search("^##+ owl:200m", page_text, re.MULTILINE)
            assert "2.00x [2.00, 2.00]" in page_text
            assert all(f"/{name}.json\n" in page_text for name in names)
        (tmp_path / MACHINE.folder / "records" / f"{names[0]}.json").unlink()
        assert len(files.check(tmp_path)) == len(written)

    def test_a_superseded_run_is_not_shown(self, tmp_path: Path) -> None:
        names = [save(tmp_path, entry) for entry in run_of_two()]
        supersede(tmp_path, names[1], "another program ran")
        assert BEST not in "".join(dict(files.render(load_all(tmp_path))).values())


class TestPictures:
    def test_segments_of_a_bar_follow_each_other_and_end_at_the_unit(self) -> None:
        drawn = present(waterfall_figure(named(stored(*run_of_two()))))
        bars, ends = (layer["data"]["values"] for layer in drawn.spec["layer"])
        segments = [segment for segment in bars if segment["mix"] == "eager"]
        assert all(one["to"] == pytest.approx(after["from"], abs=1e-2) for one, after in pairwise(segments))
        assert segments[-1]["to"] == pytest.approx(101.05)
        assert [end["text"] for end in ends if end["mix"] == "eager"] == ["101.05 ms"]

    def test_units_keep_their_kinds_and_what_they_compiled(self) -> None:
        drawn = present(units_figure(named(stored(recompiled()))))
        points = drawn.spec["data"]["values"]
        assert [point["kind"] for point in points[:3]] == ["opening", "filling", "steady"]
        assert [point["fill"] for point in points[:3]] == [1, 0, 1], "hollow: filling"
        assert [(point["unit"], point["compiled"]) for point in points if point["kind"] == "moved"] == [(5, "wm.step")]


class TestCommands:
    @pytest.fixture
    def runs(self, tmp_path: Path) -> Path:
        save(tmp_path, record("eager", [1.0] * 20))
        for entry in run_of_two():
            save(tmp_path, entry)
        return tmp_path

    def test_show_prints_a_run_of_a_pipeline(self, runs: Path) -> None:
        kept = load_all(runs)
        ran = bakeoff("--runs", str(runs), "show", kept.pipelines[1].id, cwd=runs)
        assert ran.code == 0
        assert f"record: {kept.pipelines[1].id}" in ran.out
        assert "this mix is " in ran.out
        ran = bakeoff("--runs", str(runs), "show", kept.pipelines[0].id, "--json", cwd=runs)
        assert json.loads(ran.out)["record"]["kind"] == "pipeline"

    def test_table_prints_a_pipeline(self, runs: Path) -> None:
        command = ("--runs", str(runs), "table", "--machine", "all")
        ran = bakeoff(*command, "owl", cwd=runs)
        assert (ran.code, ran.err) == (0, "")
        assert "toy:tiny.world" not in ran.out
        assert ": it is 2.00x as fast as eager" in ran.out
        both = bakeoff(*command, "--json", cwd=runs)
        answer = json.loads(both.out)
        assert [row["name"] for row in answer["pipelines"]] == ["best", "eager"]
        assert len(answer["records"]) == 1
