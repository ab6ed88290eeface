"""What a sweep does before, beside and without its workers, which test_deaths.py and test_faulty_backends.py have."""

import os
import re
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from compile_once import COMPILED
from lab import FAST, Recorder, marked_folder, outcome, sweep
from shared_headers import share_headers

from bakeoff.machine import host, paths
from bakeoff.machine.locks import device_lock
from bakeoff.models.errors import BakeoffError
from bakeoff.plan.plan import Plan, make_plan
from bakeoff.plan.request import Request
from bakeoff.record.schema import Record
from bakeoff.record.store import Stored, load_all, save
from bakeoff.report.groups import newest
from bakeoff.sweeps import resume
from bakeoff.sweeps.context import shuffled
from bakeoff.sweeps.run import SweepResult, run_sweep

EAGER = "eager"


def test_a_component_that_raises_leaves_a_record_for_every_variant(tmp_path: Path) -> None:
    swept = sweep(Request("broken:RAISES", backends=(EAGER, "canaries:NAN"), dtypes=("fp32",), device="cpu"), tmp_path)
    for record in swept.records().values():
        assert record.status == "crashed"
        assert "in phase reference" in record.measurement.reason
        assert "this component never worked" in record.measurement.reason
    assert len(swept.done.stored) == 2


def test_rows_of_a_plan_are_added_to_one_sweep(tmp_path: Path) -> None:
    """Call by call, in the order that is given; a row that is given again is measured again, and counts."""
    request = Request("toy", backends=(EAGER, "torch.export"), dtypes=("fp32",), device="cpu", threads=1)
    request = replace(request, policy=FAST, final_s=0, ceilings=False)
    with marked_folder(tmp_path):
        plan = make_plan(request)
        eager, exported = plan.rows
        runs, progress = paths.runs_folder(), Recorder()
        for rows in ((eager,), (exported,), (eager,)):
            done = run_sweep(plan, runs, "", False, progress, rows=rows)
            assert not done.interrupted
        entries = load_all(runs).current
    assert len({entry.record.sweep for entry in entries}) == 1
    assert [entry.record.variant.backend for entry in entries] == [EAGER, "torch.export", EAGER]
    assert [entry.record.position for entry in entries] == [1, 2, 2]
    kept = {entry.record.variant.backend: entry.id for entry in newest(entries)}
    assert kept == {EAGER: entries[2].id, "torch.export": entries[1].id}


def test_a_baseline_that_is_unstable_is_measured_again_in_the_same_sweep(tmp_path: Path) -> None:
    """At its end, once, and no other row: eager of one sweep stood over rows of another."""
    request = Request("toy", backends=(EAGER, "torch.export"), dtypes=("fp32",), device="cpu")
    swept = sweep(replace(request, policy=replace(FAST, contention=-1.0)), tmp_path)
    entries = load_all(swept.runs).current
    assert {entry.record.status for entry in entries} == {"unstable"}
    assert [entry.record.variant.backend for entry in entries] == [EAGER, "torch.export", EAGER]
    assert len({entry.record.sweep for entry in entries}) == 1
    assert len(swept.done.stored) == 2


def test_a_component_that_contradicts_its_spec_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BakeoffError, match=r"\[\(1, 16, 31\)\]"):
        sweep(Request("broken:MISSHAPEN", backends=(EAGER,), dtypes=("fp32",), device="cpu"), tmp_path)
    assert list((tmp_path / "runs").rglob("*.json")) == []


def test_rows_after_an_edit_of_the_component_have_a_reference_of_their_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "edited.py").write_text(
        "from dataclasses import replace\n"
        "from bakeoff.models.toy.spec import SPEC\n"
        "SPEC = replace(SPEC, network='edited_network')\n"
    )
    network = folder / "edited_network.py"
    network.write_text("from bakeoff.models.toy.network import build\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)

    class Editing(Recorder):
        def result(self, record: Record) -> None:
            super().result(record)
            network.write_text(network.read_text() + "# another line\n")

    progress = Editing()
    backends = ("canaries:UNAVAILABLE", "canaries:BF16_ONLY", EAGER)
    request = Request("edited:SPEC", backends=backends, dtypes=("fp32",), device="cpu", policy=FAST, threads=1)
    plan = make_plan(replace(request, ceilings=False))
    done = run_sweep(plan, tmp_path / "runs", "", resume=False, progress=progress)
    assert [outcome(stored.record) for stored in done.stored] == ["unavailable", "unsupported", "ok"]
    assert progress.told.count(("event", "reference")) == 2 * 4, "the work, two references and a noise floor each"


def _created(entry: Stored) -> str:
    return entry.record.created


def test_rows_run_in_an_order_drawn_with_a_recorded_seed() -> None:
    plan = make_plan(Request("toy", device="cpu", processes=3))
    orders = {tuple(row.key for row in shuffled(plan.rows, seed)) for seed in range(20)}
    assert len(orders) == 20
    baselines = {row.key for row in plan.rows if row.baseline}
    first = {order[0] for order in orders}
    assert first == {key for key in baselines if key[-1] == 1}, "no baseline is always the first"
    compiled = {next(key for key in order if key not in baselines) for order in orders}
    assert len(compiled) > 2, "no variant is always the first of those that are compiled"
    for order in orders:
        assert set(order) == {row.key for row in plan.rows}
        assert [key in baselines for key in order[: len(order) // 3]] == sorted(
            (key in baselines for key in order[: len(order) // 3]), reverse=True
        )
        assert [key[-1] for key in order] == sorted(key[-1] for key in order)
    assert shuffled(plan.rows, 7) == shuffled(plan.rows, 7)


def test_what_cannot_fit_is_not_started(monkeypatch: pytest.MonkeyPatch, progress: Recorder, tmp_path: Path) -> None:
    monkeypatch.setattr(host, "available_bytes", lambda _device: 100 << 20)
    plan = make_plan(Request("toy", backends=(EAGER,), dtypes=("fp32",), device="cpu", ceilings=False))
    done = run_sweep(plan, tmp_path / "runs", "", resume=False, progress=progress)
    (record,) = (stored.record for stored in done.stored)
    assert record.status == "oom"
    assert re.search(r"\b10\d\d MiB.*\b100 MiB", record.measurement.reason), "needed and free"
    assert progress.phases(str(record.variant)) == []


class Waiting(Recorder):
    """Holds the device's lock until somebody waits for it; meanwhile memory is short and the host is busy."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.stack.enter_context(device_lock("cpu", print))
        self.alone = False
        monkeypatch.setattr(host, "available_bytes", lambda _device: 64 << 30 if self.alone else 100 << 20)
        monkeypatch.setattr(host, "load_average", lambda: 31.0)
        monkeypatch.setattr(host, "busy_cpus", lambda: 0.25 if self.alone else 31.0)

    def say(self, text: str) -> None:
        super().say(text)
        if "waiting for pid" in text:
            self.alone = True
            self.stack.close()


@pytest.mark.usefixtures("torchless")
def test_facts_of_the_host_are_read_when_a_sweep_is_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    progress = Waiting(monkeypatch)
    backends = ("canaries:BF16_ONLY", EAGER)
    plan = make_plan(Request("toy", backends=backends, dtypes=("fp32",), device="cpu", policy=FAST, ceilings=False))
    prechecks = [row.precheck.status for row in plan.rows if row.precheck is not None]
    assert prechecks == ["unsupported", "oom"], "when the plan was made memory was short"
    done = run_sweep(plan, tmp_path / "runs", "", resume=False, progress=progress)
    eager = done.stored[-1].record
    assert progress.alone
    assert (eager.status, eager.measurement.reason) == ("ok", "")
    assert eager.load_before == 0.25
    assert [finding.code for finding in eager.measurement.findings if finding.code == "busy-host"] == []


@pytest.mark.usefixtures("torchless")
def test_a_record_whose_last_fsync_fails_is_stored_once(
    monkeypatch: pytest.MonkeyPatch, progress: Recorder, tmp_path: Path
) -> None:
    """It lies in the folder by then, and the copy that the cache keeps is no second record as the sweep is resumed."""
    written: list[Path] = []

    def breaks(runs: Path, record: Record) -> str:
        name = save(runs, record)
        if record.variant.backend != EAGER and not written:
            written.append(runs)
            raise BakeoffError("the folder of the records: Input/output error", "not-writable")
        return name

    monkeypatch.setattr(resume, "save", breaks)
    with marked_folder(tmp_path):
        request = Request("toy", backends=(EAGER, "inductor[mode=default]"), dtypes=("fp32",), device="cpu", final_s=0)
        plan = make_plan(request)
        with pytest.raises(BakeoffError, match="Input/output error"):
            run_sweep(plan, paths.runs_folder(), "", resume=False, progress=progress)
        done = run_sweep(plan, paths.runs_folder(), "", resume=True, progress=progress)
        assert len(done.stored) == len(plan.rows)
        stored = [str(entry.record.variant) for entry in load_all(paths.runs_folder()).current]
    assert sorted(stored) == sorted(str(row.variant) for row in plan.rows)


@pytest.mark.usefixtures("torchless")
def test_a_complete_record_that_cannot_be_stored_is_stored_as_the_sweep_is_resumed(
    monkeypatch: pytest.MonkeyPatch, progress: Recorder, tmp_path: Path
) -> None:
    """It is not timed again."""

    def full(_runs: Path, _record: Record) -> str:
        raise BakeoffError("the folder of the records: No space left on device", "not-writable")

    def timed_again(*_given: object) -> None:
        raise AssertionError("the row is timed again")

    with marked_folder(tmp_path):
        plan = make_plan(Request("toy", backends=(EAGER,), dtypes=("fp32",), device="cpu", final_s=0))
        monkeypatch.setattr(resume, "save", full)
        with pytest.raises(BakeoffError, match="No space left"):
            run_sweep(plan, paths.runs_folder(), "", resume=False, progress=progress)
        assert list(load_all(paths.runs_folder()).current) == []
        monkeypatch.setattr(resume, "save", save)
        monkeypatch.setattr("bakeoff.sweeps.run.time_wave", timed_again)
        done = run_sweep(plan, paths.runs_folder(), "", resume=True, progress=progress)
        assert [entry.record.status for entry in done.stored] == ["ok"]
        assert len(load_all(paths.runs_folder()).current) == 1


@pytest.mark.timeout(900)
def test_inductor_compiles_one_graph_and_finds_it_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """torch's headers are precompiled once, by the first build of all tests that needs them, in a phase of its own."""
    headers = tmp_path / "compiled headers"
    headers.touch()
    monkeypatch.setenv(COMPILED, str(headers))
    policy = replace(FAST, build_deadline_s=300.0)
    request = Request("toy", backends=("inductor[]",), dtypes=("fp32",), device="cpu", policy=policy, threads=1)
    with marked_folder(tmp_path):
        share_headers(request.backends)
        progress = Recorder()
        plan = make_plan(replace(request, final_s=0, ceilings=False))
        done = run_sweep(plan, paths.runs_folder(), "", resume=False, progress=progress)
    for entry in done.stored:
        measurement = entry.record.measurement
        assert (measurement.status, measurement.reason, cache_state(entry.record)) == ("ok", "", "cold")
        assert str(entry.record.variant) == "toy:tiny.world/inductor/fp32@cpu"
        proof, build = measurement.proof, measurement.build
        assert proof is not None
        assert (proof.graphs, proof.graph_breaks, proof.recompiles, proof.fell_back) == (1, 0, (), "")
        assert int(str(proof.facts["kernels_generated"])) >= 1
        assert build is not None
        assert {finding.code for finding in measurement.findings} <= {"busy-host", "contention", "warm-up"}
        assert "headers" in entry.record.phase_s
    assert headers.read_text().split().count("header") <= 1, "however many build without caches"
    compiled_before = {path.name for path in (tmp_path / "cache/compiled").rglob("*.so")}
    assert compiled_before

    later = sweep(request, tmp_path)
    (again,) = later.records().values()
    assert (outcome(again), cache_state(again)) == ("ok", "warm")
    assert again.measurement.build is not None
    assert again.measurement.build.warm_s is None
    assert again.measurement.proof is not None
    assert again.measurement.proof.facts["graph_cache_hits"] == 1
    assert {path.name for path in (tmp_path / "cache/compiled").rglob("*.so")} == compiled_before
    assert later.progress.told.count(("event", "reference")) == 1, "of the sweep's own values; the others are cached"
    assert again.measurement.parity is not None
    assert again.measurement.weights == done.stored[0].record.measurement.weights
    assert later.left_alive == ()
    assert len(load_all(tmp_path / "runs").current) == 2


@pytest.mark.usefixtures("torchless")
class TestProcesses:
    """By workers that draw, when they find nothing in their cache, how slow what they build is."""

    def plan(self, processes: int = 1) -> Plan:
        return make_plan(
            Request(
                "toy", backends=("inductor[]",), dtypes=("fp32",), device="cpu", policy=FAST, processes=processes,
                final_s=0.0, ceilings=False,
            )
        )  # fmt: skip

    def run(self, plan: Plan, resume: bool = False, progress: Recorder | None = None) -> SweepResult:
        return run_sweep(plan, paths.runs_folder(), "", resume, progress or Recorder())

    def test_resuming_takes_up_what_is_left(self) -> None:
        class Stopping(Recorder):
            def result(self, record: Record) -> None:
                super().result(record)
                if self.told.count(("result", "ok")) == 2:
                    raise KeyboardInterrupt

        plan = self.plan(3)
        first = self.run(plan, progress=Stopping())
        assert len(first.stored) == 2
        assert first.interrupted == (plan.rows[2].label,)
        with pytest.raises(BakeoffError, match="--resume"):
            self.run(self.plan(2), resume=True)
        done = self.run(plan, resume=True)
        assert {entry.id for entry in first.stored} < {entry.id for entry in done.stored}
        seeds = {entry.record.order_seed for entry in done.stored}
        assert len(seeds) == 1, "the order is that of the sweep that was interrupted"
        assert [entry.record.position for entry in sorted(done.stored, key=_created)] == [1, 2, 3]
        assert [cache_state(entry.record) for entry in done.stored] == ["cold", "warm", "warm"]
        assert (done.interrupted, len(load_all(paths.runs_folder()).current)) == ((), 3)

    def test_a_build_that_was_cut_off_begins_anew(self) -> None:
        plan = self.plan()
        folder = plan.rows[0].cache_folder
        folder.mkdir(parents=True)
        (folder / "slowness").write_text("0.001")
        (folder / "half.part").write_text("")
        done = self.run(plan)
        assert [cache_state(entry.record) for entry in done.stored] == ["cold"]
        assert not list(paths.cache_folder().rglob("half.part"))


def cache_state(record: Record) -> str:
    assert record.measurement.build is not None
    return record.measurement.build.cache
