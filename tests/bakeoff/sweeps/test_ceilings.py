"""Ceilings are measured once for a machine, kept among its records, and the best of all sets counts.

A sweep measures those of its rows' dtypes, and none before its first row.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ceilings import CEILINGS
from lab import Recorder, marked_folder
from typer.testing import CliRunner

from bakeoff.cli import app
from bakeoff.live import read_swept
from bakeoff.machine import host
from bakeoff.machine.floors import Ceiling
from bakeoff.plan.plan import make_plan
from bakeoff.plan.request import Request
from bakeoff.process.jobs import CeilingsJob, CeilingsResult, CountJob
from bakeoff.process.supervisor import Outcome, run_job
from bakeoff.record.floor import is_above
from bakeoff.record.schema import Record
from bakeoff.record.store import load_all
from bakeoff.report.groups import tables
from bakeoff.sweeps import describe as measuring
from bakeoff.sweeps.describe import known_ceilings
from bakeoff.sweeps.run import run_sweep

TWICE = tuple(replace(entry, best=2 * entry.best) for entry in CEILINGS)
BOTH = ("fp32", "bf16")
LOW = tuple(replace(entry, best=entry.best / 1e9) for entry in CEILINGS)
"""So low that the floor of any call is above seconds."""
HALF = tuple(replace(entry, best=entry.best / 2) for entry in CEILINGS)


class Worker:
    """In place of the worker: a set of ceilings for each call, as told."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.ceilings: tuple[Ceiling, ...] = CEILINGS
        self.sets: list[tuple[Ceiling, ...]] = []
        """Those of the first calls, in place of `ceilings`."""
        self.others = 0.0
        self.kind: Any = "result"

    @property
    def calls(self) -> int:
        return len(self.asked)

    def run(self, job: CeilingsJob | CountJob, *arguments: Any) -> Outcome:
        if not isinstance(job, CeilingsJob):
            return run_job(job, *arguments)
        self.asked.append(job.dtypes)
        if self.kind != "result":
            return Outcome(self.kind, reason="why")
        self.ceilings = self.sets.pop(0) if self.sets else self.ceilings
        return Outcome("result", value=CeilingsResult(self.measured(job.dtypes), self.others))

    def measured(self, dtypes: tuple[str, ...]) -> tuple[Ceiling, ...]:
        return tuple(entry for entry in self.ceilings if entry.kind in ("copy", "read") or entry.dtype in dtypes)


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Worker:
    made = Worker()
    monkeypatch.setattr(measuring, "run_job", made.run)
    return made


def known(
    folder: Path, again: bool = False, threads: int = 2, dtypes: tuple[str, ...] | None = BOTH
) -> tuple[Ceiling, ...]:
    return known_ceilings("cpu", threads, folder / "runs", folder / "cache", Recorder(), again, dtypes)


def test_measured_once_and_kept_as_a_record(tmp_path: Path, worker: Worker) -> None:
    assert known(tmp_path) == known(tmp_path) == CEILINGS
    assert worker.calls == 1
    (kept,) = load_all(tmp_path / "runs").ceilings
    assert (kept.record.ceilings, kept.record.threads, kept.record.other_cpu_share) == (CEILINGS, 2, 0.0)
    assert not (tmp_path / "cache" / "ceilings").exists()
    known(tmp_path, threads=1)
    assert worker.calls == 2


def test_again_adds_a_set_and_the_best_counts(tmp_path: Path, worker: Worker) -> None:
    known(tmp_path)
    worker.ceilings = HALF
    assert known(tmp_path, again=True) == CEILINGS
    worker.ceilings = TWICE
    assert known(tmp_path, again=True) == known(tmp_path) == TWICE
    assert (worker.calls, len(load_all(tmp_path / "runs").ceilings)) == (3, 3)


def test_a_busy_host_is_measured_again(tmp_path: Path, worker: Worker) -> None:
    worker.others = 0.5
    known(tmp_path)
    worker.others = 0.0
    known(tmp_path)
    known(tmp_path)
    assert worker.calls == 2


@pytest.mark.parametrize("change", ["torch", "machine"])
def test_another_torch_or_machine_is_measured(
    tmp_path: Path, worker: Worker, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    known(tmp_path)
    worker.ceilings = HALF
    if change == "torch":
        versions = {**host.read_versions(), "torch": "9.9"}
        monkeypatch.setattr(host, "read_versions", lambda: versions)
    else:
        other = replace(measuring.this_machine("cpu"), machine_class="another")
        monkeypatch.setattr(measuring, "this_machine", lambda _device: other)
    assert known(tmp_path) == (CEILINGS if change == "torch" else HALF)
    assert worker.calls == 2


@pytest.mark.usefixtures("worker")
def test_what_cannot_be_stored_is_used(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / measuring.this_machine("cpu").folder).write_text("no folder")
    assert known(tmp_path) == CEILINGS


def test_only_dtypes_that_are_asked_for_and_not_known_are_measured(tmp_path: Path, worker: Worker) -> None:
    assert known(tmp_path, dtypes=()) == ()
    assert {entry.dtype for entry in known(tmp_path, dtypes=("fp32", "fp8"))} == {"fp32"}
    assert known(tmp_path, dtypes=("bf16", "fp32")) == CEILINGS
    assert known(tmp_path, dtypes=("fp32",)) == CEILINGS
    known(tmp_path, dtypes=None)
    assert worker.asked == [("fp32",), ("bf16",), ("fp16", "int8")]


@pytest.mark.usefixtures("torchless")
class TestInASweep:
    """By a worker that measures nothing."""

    def told(self, folder: Path, *backends: str, time_limit_s: float = 0.0) -> list[str]:
        """What was started and finished, once the model was described."""
        progress = Recorder()
        asked = Request("toy", backends=backends, dtypes=("fp32", "bf16"), device="cpu", threads=1, final_s=0)
        plan = make_plan(replace(asked, presets=("tiny",), workloads=("world",), time_limit_s=time_limit_s))
        with marked_folder(folder):
            self.records = [entry.record for entry in run_sweep(plan, folder / "runs", "", False, progress).stored]
        self.said = [what for kind, what in progress.told if kind == "say" and "floor" in what]
        told = [what.split(" ")[0].split("/")[-2:][0] for kind, what in progress.told if kind in ("start", "result")]
        return told[told[:1] == ["describing"] :]

    def test_they_come_first_where_they_are_not_known(self, tmp_path: Path) -> None:
        told = self.told(tmp_path, "eager", "torch.export[]")
        assert told == ["ceilings", *["eager"] * 2, "ok", "ok", *["torch.export"] * 2, "ok", "ok"]
        assert "ceilings" not in self.told(tmp_path, "eager")
        assert [{entry.dtype for entry in record.ceilings} for record in self.records] == [set(BOTH)] * 2

    def test_a_row_above_its_floor_has_them_measured_again_once_a_dtype_before_it_is_stored(
        self, tmp_path: Path, worker: Worker
    ) -> None:
        """Measured too low at first: each row is decided by the better set, as pages show it."""
        worker.sets = [LOW, CEILINGS, CEILINGS]
        told = self.told(tmp_path, "eager", "torch.export[]")
        assert [place for place, what in enumerate(told) if what == "ceilings"] == [0, 3, 5]
        assert [set(dtypes) for dtypes in worker.asked[1:]] in ([{"fp32"}, {"bf16"}], [{"bf16"}, {"fp32"}])
        assert worker.asked[0] == BOTH
        assert [said.split(": ")[1].split(".")[0].split(" ")[0] for said in self.said] == ["eager", "eager"]
        assert {record.status for record in self.records} == {"ok"}
        assert len(load_all(tmp_path / "runs").ceilings) == 3
        assert [self.shown(tmp_path, record) for record in self.records] == [False] * 4
        assert "ceilings" not in self.told(tmp_path, "eager")

    def test_what_stays_above_is_marked(self, tmp_path: Path, worker: Worker) -> None:
        worker.ceilings = LOW
        self.told(tmp_path, "eager")
        assert worker.calls == 3
        assert [self.shown(tmp_path, record) for record in self.records] == [True] * 2

    def test_a_time_limit_has_no_time_for_that(self, tmp_path: Path, worker: Worker) -> None:
        worker.ceilings = LOW
        known(tmp_path, threads=1)
        self.told(tmp_path, "eager", time_limit_s=600)
        assert (worker.calls, self.said) == (1, [])

    def shown(self, folder: Path, made: Record) -> bool:
        """Whether tables mark the row."""
        (table,) = tables(load_all(folder / "runs").current[:1], load_all(folder / "runs").ceilings)
        return is_above(made, table.ceilings)

    @pytest.mark.parametrize("second", [CEILINGS, LOW])
    def test_the_printed_table_is_of_the_sets_measured_after_its_rows(
        self, tmp_path: Path, worker: Worker, second: tuple[Ceiling, ...]
    ) -> None:
        worker.sets = [LOW, second]
        asked = ["sweep", "toy", "--backends", "eager", "--dtype", "fp32", "--threads", "1", "--no-final"]
        with marked_folder(tmp_path):
            told = CliRunner().invoke(app, asked)
        assert told.exit_code == 0, told.output
        assert "Above 100 % of the floor: eager fp32." in told.stderr
        records = load_all(tmp_path / "runs")
        *_, entry = records.current  # a baseline that is below its floor is timed again
        again = read_swept({"sweep": "", "records": [entry.id], "finals": []}, tmp_path / "runs").table()
        for text in (told.stdout, again):
            assert "floor ms: " in text
            assert ("% !" in text) == (second is LOW)
