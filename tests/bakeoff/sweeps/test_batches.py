"""Sweeps of several batch sizes: which rows there are, how they are told apart, and what a user sees of them."""

import json
from pathlib import Path
from typing import Any

import pytest
from lab import FAST, TORCHLESS, Recorder, command_line, outcome
from records import bakeoff

from bakeoff.machine import host, paths
from bakeoff.models.errors import BakeoffError
from bakeoff.plan.dry_run import estimate
from bakeoff.plan.history import history_of
from bakeoff.plan.plan import Plan, make_plan
from bakeoff.plan.request import Request
from bakeoff.process import supervisor
from bakeoff.record.objective import parse_objective
from bakeoff.record.policy import Policy
from bakeoff.record.schema import Record
from bakeoff.record.store import load_all
from bakeoff.report.pages import plan as plan_page
from bakeoff.report.render import terminal
from bakeoff.sweeps.resume import key_of
from bakeoff.sweeps.run import run_sweep

THROUGHPUT = parse_objective("throughput")


def plan_of(*batches: int, **asked: Any) -> Plan:
    defaults: dict[str, Any] = {
        "backends": ("eager", "inductor[]"), "dtypes": ("fp32",), "device": "cpu", "threads": 1, "policy": FAST,
        "ceilings": False, "final_s": 0.0, "batches": batches or (1,),
    }  # fmt: skip
    return make_plan(Request("toy", **{**defaults, **asked}))


class TestPlan:
    def test_has_a_row_for_each_size(self) -> None:
        plan = plan_of(1, 2, 4, 2)
        assert [(row.variant.backend, row.subject.batch) for row in plan.rows] == [
            (backend, batch) for batch in (1, 2, 4) for backend in ("eager", "inductor")
        ]
        assert plan.rows[2].label == "toy:tiny.world/eager/fp32@cpu, batch 2"

    def test_nothing_of_two_sizes_is_mistaken_for_the_other(self) -> None:
        rows = plan_of(1, 2, 4).rows
        for facts in (
            {row.key for row in rows},
            {row.slug for row in rows},
            {row.config_id for row in rows},
            {row.cache_folder for row in rows},
        ):
            assert len(facts) == len(rows)
        assert [row.slug for row in plan_of(1).rows] == [row.slug for row in plan_of().rows]

    def test_is_another_one_for_another_objective_or_other_sizes(self) -> None:
        plans = [plan_of(), plan_of(1, 2), plan_of(1, 4), plan_of(objective=THROUGHPUT)]
        assert len({plan.key for plan in plans}) == len(plans)
        assert plan_of(1).key == plan_of().key

    @pytest.mark.parametrize(
        ("asked", "said"),
        [
            ({"batches": (1, 0)}, "--batch 0: a batch is at least 1"),
            ({"batches": (1, -2)}, "--batch -2"),
            ({"batches": tuple(range(1, 30))}, "give at most 20"),
        ],
    )
    def test_sizes_that_cannot_be_are_refused(self, asked: dict[str, Any], said: str) -> None:
        with pytest.raises(BakeoffError, match=said):
            make_plan(Request("toy", **asked))

    def test_a_component_that_takes_one_size_refuses_in_its_own_words(self) -> None:
        with pytest.raises(BakeoffError, match="fixed_batch was exported for a batch of 1") as refused:
            make_plan(Request("fixed_batch:SPEC", batches=(1, 2), device="cpu"))
        assert refused.value.code == "unsupported"
        assert len(make_plan(Request("fixed_batch:SPEC", backends=("eager",), device="cpu")).rows) > 0

    def test_a_percentile_gets_the_samples_that_its_interval_needs(self) -> None:
        assert plan_of(objective=parse_objective("p99<=33ms"), policy=Policy()).request.policy.min_samples == 368
        assert plan_of(objective=parse_objective("p95<=33ms"), policy=Policy()).request.policy.min_samples == 72
        assert plan_of(objective=THROUGHPUT, policy=Policy()).request.policy == Policy()

    def test_a_dry_run_shows_all_of_it(self) -> None:
        plan = plan_of(1, 2, objective=parse_objective("throughput,p99<=33ms"))
        lines = terminal.render(plan_page.document({"": estimate(plan, history_of(()))})).splitlines()
        assert "objective: throughput,p99<=33ms" in lines
        assert [line.split()[1] for line in lines if line.startswith("variant") or "/eager/" in line] == [
            "batch", "1", "2",
        ]  # fmt: skip
        once = terminal.render(plan_page.document({"": estimate(plan_of(), history_of(()))}))
        assert "batch" not in once


class TestSweep:
    """By workers that measure nothing."""

    @pytest.fixture(autouse=True)
    def _torchless(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(supervisor, "WORKER", TORCHLESS)
        monkeypatch.setattr(paths, "commit", lambda: ("", False))  # somebody may edit meanwhile
        monkeypatch.setenv("BAKEOFF_TEST_SURE", "1")

    def test_has_a_record_and_a_log_of_each_size_and_a_final_of_each(self, progress: Recorder) -> None:
        plan = plan_of(1, 2, final_s=0.1, objective=THROUGHPUT)
        done = run_sweep(plan, paths.runs_folder(), "", resume=False, progress=progress)
        assert [key_of(entry.record) for entry in done.stored] == [row.key for row in plan.rows]
        assert [entry.record.batch for entry in done.stored] == [1, 1, 2, 2]
        assert len({entry.record.log for entry in done.stored}) == 4
        assert sorted(entry.record.position for entry in done.stored) == [1, 2, 3, 4]
        assert {entry.record.objective for entry in done.stored} == {THROUGHPUT}
        assert sorted(final.record.a.batch for final in done.finals) == [1, 2]
        assert {final.record.objective for final in done.finals} == {THROUGHPUT}
        told = {finding.code for final in done.finals for finding in final.record.findings}
        assert told <= {"off-rows"}, "eager is one of the two"
        assert load_all(paths.runs_folder()).problems == ()

    def test_a_final_gets_eager_where_the_sweep_has_none(self, progress: Recorder) -> None:
        plan = plan_of(1, final_s=0.1, backends=("inductor[]", "inductor[freezing]"))
        done = run_sweep(plan, paths.runs_folder(), "", resume=False, progress=progress)
        (final,) = done.finals
        assert final.record.baseline is not None
        assert (final.record.baseline.variant.backend, final.record.baseline.position) == ("eager", 0)
        assert len(done.stored) == 2

    def test_is_resumed_where_it_ended(self) -> None:
        class Stopping(Recorder):
            def result(self, record: Record) -> None:
                super().result(record)
                if sum(kind == "result" for kind, _ in self.told) == 2:
                    raise KeyboardInterrupt

        plan = plan_of(1, 2, objective=THROUGHPUT)
        first = run_sweep(plan, paths.runs_folder(), "", resume=False, progress=Stopping())
        assert (len(first.stored), len(first.interrupted)) == (2, 2)
        with pytest.raises(BakeoffError, match="another plan"):
            run_sweep(plan_of(1, 2), paths.runs_folder(), "", resume=True, progress=Recorder())
        progress = Recorder()
        again = run_sweep(plan, paths.runs_folder(), "", resume=True, progress=progress)
        told = [kind for kind, _ in progress.told if kind in ("start", "result")]
        assert (told[:3], told.count("result")) == (["result", "result", "start"], 4), "earlier rows are shown first"
        first_s, *_, last_s = progress.expected
        assert first_s
        assert last_s == 0.0
        assert again.sweep == first.sweep
        assert [entry.record.batch for entry in again.stored] == [1, 1, 2, 2]
        assert {entry.id for entry in first.stored} < {entry.id for entry in again.stored}

    def test_a_size_that_does_not_fit_is_a_row(self, monkeypatch: pytest.MonkeyPatch, progress: Recorder) -> None:
        small, large = plan_of(1, 100_000, backends=("eager",)).rows
        between = (small.memory.device + large.memory.device) // 2
        monkeypatch.setattr(host, "available_bytes", lambda _device: between)
        plan = plan_of(1, 100_000, backends=("eager",))
        done = run_sweep(plan, paths.runs_folder(), "", resume=False, progress=progress)
        assert [outcome(entry.record) for entry in done.stored] == ["ok", "oom"]


@pytest.mark.timeout(600)
def test_a_real_sweep_of_two_sizes_with_an_objective(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the command line to the table, the curve and the pages."""
    for name, folder in (("BAKEOFF_CACHE", "cache"), ("BAKEOFF_RUNS", "runs"), ("BAKEOFF_LOCKS", "locks")):
        monkeypatch.setenv(name, str(tmp_path / folder))
    arguments = [
        "sweep", "toy", "--workload", "picture", "--backends", "eager", "--dtype", "fp32", "--device", "cpu",
        "--threads", "1", "--batch", "1,2", "--objective", "throughput,memory<=64GiB",
    ]  # fmt: skip
    with command_line(arguments) as process:
        out, err = process.communicate(timeout=500)
    assert process.returncode == 0, err
    assert "[1/2] eager fp32, batch " in err
    records = load_all(tmp_path / "runs")
    found = {entry.record.batch: entry.record for entry in records.current}
    assert sorted(found) == [1, 2]
    assert {str(made.objective) for made in found.values()} == {"throughput,memory<=64GiB"}
    assert found[2].flops == 2 * found[1].flops
    assert "toy:tiny.picture (toy), batch 1, " in out
    assert "toy:tiny.picture (toy), batch 2, " in out
    assert "Batch curve: toy:tiny.picture" in out
    if all(made.status == "ok" for made in found.values()):  # else this machine was too busy
        assert out.count("Objective throughput,memory<=64GiB: Nothing to compare with: eager fp32 (") == 2
        assert "eager fp32 is not saturated" in out or "eager fp32 saturates at batch 1" in out
    assert "Batch curve" in next((tmp_path / "runs").rglob("RESULTS.md")).read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--objective", "fast"], "--objective 'fast': 'fast' is neither a goal nor a limit; give latency or"),
        (["--objective", ""], "--objective is empty"),
        (["--batch", "1,two"], "--batch 'two': give whole numbers"),
        (["--batch", "1,-2"], "--batch '-2': give whole numbers"),
        (["--batch", ""], "--batch is empty"),
        (["--batch", "0"], "--batch 0: a batch is at least 1"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(tmp_path: Path, arguments: list[str], said: str) -> None:
    ran = bakeoff("sweep", "toy", "--backends", "eager", "--device", "cpu", *arguments, "--dry-run", cwd=tmp_path)
    assert (ran.code, len(ran.said)) == (2, 1), ran.err
    assert said in ran.said[0]


def test_the_command_says_what_it_will_do(tmp_path: Path) -> None:
    asked = ("sweep", "toy", "--backends", "eager", "--dtype", "fp32", "--device", "cpu", "--batch", "1,4")
    ran = bakeoff(*asked, "--objective", "p99<=33ms", "--dry-run", "--json", cwd=tmp_path)
    found = json.loads(ran.out)
    assert (found["objective"], found["batches"]) == ("latency,p99<=33ms", [1, 4])
    assert [line["batch"] for line in found["lines"]] == [1, 4]
