"""Ceilings are measured once for a machine, kept among its records, and the best of all sets counts."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ceilings import CEILINGS
from lab import Recorder

from bakeoff.machine import host
from bakeoff.machine.floors import Ceiling
from bakeoff.process.jobs import CeilingsResult
from bakeoff.process.supervisor import Outcome
from bakeoff.record.store import load_all
from bakeoff.sweeps import ceilings as measuring
from bakeoff.sweeps.ceilings import known_ceilings

TWICE = tuple(replace(entry, best=2 * entry.best) for entry in CEILINGS)
HALF = tuple(replace(entry, best=entry.best / 2) for entry in CEILINGS)


class Worker:
    """In place of the worker: a set of ceilings for each call, as told."""

    def __init__(self) -> None:
        self.calls = 0
        self.ceilings: tuple[Ceiling, ...] = CEILINGS
        self.others = 0.0
        self.kind: Any = "result"

    def run(self, *_: Any) -> Outcome:
        self.calls += 1
        if self.kind != "result":
            return Outcome(self.kind, reason="why")
        return Outcome("result", value=CeilingsResult(self.ceilings, self.others))


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Worker:
    made = Worker()
    monkeypatch.setattr(measuring, "run_job", made.run)
    return made


def known(folder: Path, again: bool = False, threads: int = 2) -> tuple[Ceiling, ...]:
    return known_ceilings("cpu", threads, folder / "runs", folder / "cache", Recorder(), again)


def test_measured_once_and_kept_as_a_record(tmp_path: Path, worker: Worker) -> None:
    assert known(tmp_path) == known(tmp_path) == CEILINGS
    assert worker.calls == 1
    (kept,) = load_all(tmp_path / "runs").ceilings
    assert (kept.ceilings.ceilings, kept.ceilings.threads, kept.ceilings.other_cpu_share) == (CEILINGS, 2, 0.0)
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
        other = replace(measuring.this_machine("cpu"), id="another")
        monkeypatch.setattr(measuring, "this_machine", lambda _device: other)
    assert known(tmp_path) == (CEILINGS if change == "torch" else HALF)
    assert worker.calls == 2


def test_what_cannot_be_measured_is_unknown(tmp_path: Path, worker: Worker) -> None:
    worker.kind = "crashed"
    assert known(tmp_path) == ()
    assert load_all(tmp_path / "runs").ceilings == ()


@pytest.mark.usefixtures("worker")
def test_what_cannot_be_stored_is_used(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / measuring.this_machine("cpu").folder).write_text("no folder")
    assert known(tmp_path) == CEILINGS
