"""Sweeps of several batch sizes: which rows there are, how they are told apart, and what a user sees of them."""

from pathlib import Path
from typing import Any

import pytest
from lab import FAST, Recorder, outcome
from records import bakeoff

from bakeoff.machine import host, paths
from bakeoff.models.errors import BakeoffError
from bakeoff.plan.plan import Plan, make_plan
from bakeoff.plan.request import Request
from bakeoff.record.objective import parse_objective
from bakeoff.record.policy import Policy
from bakeoff.record.schema import Record
from bakeoff.record.store import load_all
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


@pytest.mark.usefixtures("torchless")
class TestSweep:
    """By workers that measure nothing."""

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
