"""Sweeps with a time limit, by workers that measure nothing: what runs, what is left out, and how it goes on."""

import functools
import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from lab import FAST, Recorder, left_alive, marked_folder, outcome
from records import record
from typer.testing import CliRunner, Result

from bakeoff.cli import app
from bakeoff.cli.ended import resume_command
from bakeoff.machine import build_cache, paths
from bakeoff.machine.identity import this_machine
from bakeoff.plan import request as requests
from bakeoff.plan.plan import Plan, make_plan
from bakeoff.plan.request import Request
from bakeoff.process import supervisor
from bakeoff.process.supervisor import Event
from bakeoff.record.schema import Record
from bakeoff.record.store import Stored, load_all, save
from bakeoff.report import notes
from bakeoff.report.document import Document
from bakeoff.report.pages import record as record_page
from bakeoff.report.render import terminal
from bakeoff.sweeps import compare, time_limit
from bakeoff.sweeps import run as running
from bakeoff.sweeps.progress import Running
from bakeoff.sweeps.run import SweepResult, run_sweep
from bakeoff.sweeps.time_limit import OutOfTime

HOUR = 3600.0
BACKENDS = ("openvino[]", "inductor[]", "eager", "inductor[freezing]")


@pytest.fixture(autouse=True)
def _one_pair(torchless: None, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001
    monkeypatch.setattr(compare, "MOST_PAIRS", 1)  # of the processes of a final


def plan_of(time_limit_s: float, *backends: str, **asked: Any) -> Plan:
    defaults: dict[str, Any] = {"dtypes": ("fp32",), "device": "cpu", "threads": 1, "policy": FAST, "ceilings": False}
    asked = {**defaults, "final_s": 0.0, **asked}
    return make_plan(Request("toy", backends=backends or BACKENDS, time_limit_s=time_limit_s, **asked))


def known(backend: str, ms: float, wall_s: float) -> None:
    """Put a record of this machine among the records of the user."""
    made = record(backend, [ms] * 20, machine=this_machine("cpu"), wall_s=wall_s, sweep="earlier", threads=1)
    save(paths.runs_folder(), replace(made, note=backend))


def know_all(**wall_s: float) -> None:
    """Eager is the slowest row, frozen inductor the fastest; each takes a minute unless it is given."""
    for backend, ms in (("eager", 100), ("openvino", 50), ("inductor", 30), ("inductor[freezing]", 20)):
        known(backend, ms, wall_s.get(backend, wall_s.get(backend.partition("[")[0], 60.0)))


def run(plan: Plan, progress: Recorder | None = None, resume: bool = False) -> SweepResult:
    return run_sweep(plan, paths.runs_folder(), "", resume, progress or Recorder())


def ran(done: SweepResult) -> list[str]:
    """Backends in the order in which they ran."""
    return [entry.record.variant.backend for entry in sorted(done.stored, key=lambda entry: entry.record.created)]


def left_out(done: SweepResult) -> list[str]:
    assert done.out_of_time is not None
    return [row.label.split("/")[1] for row in done.out_of_time.left_out]


class Alarm(Recorder):
    """The time is up when `when` is true of something that runs and of the phase that it enters."""

    def __init__(self, when: Callable[[str, str], bool], number: int = signal.SIGALRM) -> None:
        super().__init__()
        self.when, self.number = when, number

    def start(self, position: int, total: int, what: str) -> Running:
        return Ringing(self, super().start(position, total, what), what)


@dataclass
class Ringing:
    """A Running of an Alarm."""

    alarm: Alarm
    running: Running
    what: str

    def event(self, event: Event) -> None:
        self.running.event(event)
        if self.alarm.when(self.what, event.phase):
            os.kill(os.getpid(), self.alarm.number)

    def finish(self, status: str = "", text: str = "") -> None:
        self.running.finish(status, text)


def in_the_turn_of(backend: str, number: int = signal.SIGALRM) -> Alarm:
    return Alarm(lambda what, phase: f"/{backend}/" in what and phase == "warm-up", number)


class TestRows:
    def test_run_in_the_order_of_what_they_tell_and_then_the_final(self) -> None:
        know_all()
        done = run(plan_of(HOUR, final_s=0.1))
        assert ran(done) == ["eager", "inductor[freezing]", "inductor", "openvino"]
        assert (len(done.finals), done.out_of_time) == (1, None)
        stored = sorted(done.stored, key=lambda entry: entry.record.created)
        assert [entry.record.position for entry in stored] == [1, 2, 3, 4]
        assert {entry.record.order_seed for entry in stored} == {None}
        shown = terminal.render(record_page.document(stored[1]))
        assert "\nposition: 2\n" in shown
        assert "order seed" not in shown, "by what they were likely to tell"

    def test_that_do_not_fit_are_passed_over_and_run_when_the_sweep_goes_on(self) -> None:
        know_all(**{"inductor": 5 * HOUR, "inductor[freezing]": 2 * HOUR})
        progress = Recorder()
        first = run(plan_of(HOUR), progress)
        assert progress.expected
        assert all(0 <= seconds <= HOUR for seconds in progress.expected if seconds is not None)
        assert ran(first) == ["eager", "openvino"]
        assert sorted(left_out(first)) == ["inductor", "inductor[freezing]"]
        assert first.out_of_time is not None
        assert first.out_of_time.used_s < HOUR
        assert sorted(row.expected_s for row in first.out_of_time.left_out) == [2 * HOUR, 5 * HOUR]
        assert first.interrupted == ()
        assert not json.loads((paths.cache_folder() / "sweeps" / f"{first.sweep}.json").read_bytes())["finished"]

        second = run(plan_of(3 * HOUR), resume=True)
        assert ran(second) == ["eager", "openvino", "inductor[freezing]"]
        assert left_out(second) == ["inductor"]

        again = run(plan_of(0.0), resume=True)
        assert {first.sweep, second.sweep} == {again.sweep}
        assert again.out_of_time is None
        assert ran(again) == ["eager", "openvino", "inductor[freezing]", "inductor"]
        assert {entry.id for entry in first.stored} < {entry.id for entry in second.stored}
        assert {entry.id for entry in second.stored} < {entry.id for entry in again.stored}
        by_time = sorted(again.stored, key=lambda entry: entry.record.created)
        assert [entry.record.position for entry in by_time] == [1, 2, 3, 4]
        seeds = [entry.record.order_seed for entry in by_time]
        assert seeds[:3] == [None] * 3
        assert seeds[3] is not None
        mine = [entry for entry in load_all(paths.runs_folder()).current if entry.record.sweep == first.sweep]
        assert len(mine) == 4
        with pytest.raises(Exception, match="no unfinished run"):
            run(plan_of(0.0), resume=True)

    def test_that_cannot_run_are_recorded_in_any_time(self) -> None:
        know_all()
        done = run(plan_of(1.0, "eager", "canaries:BF16_ONLY"))
        assert [entry.record.status for entry in done.stored] == ["unsupported"]
        assert left_out(done) == ["eager"]


class TestTheEnd:
    def test_stops_what_runs_and_keeps_what_is_done(self, tmp_path: Path) -> None:
        with marked_folder(tmp_path / "own") as marker:
            know_all(openvino=2 * HOUR)
            before = signal.getsignal(signal.SIGALRM)
            first = run(plan_of(HOUR), in_the_turn_of("inductor[freezing]"))
            assert signal.getsignal(signal.SIGALRM) == before
            left_s, _ = signal.getitimer(signal.ITIMER_REAL)
            assert left_s < HOUR / 2, "another timer, of this test itself, may run"
            assert left_alive(marker) == []
            assert ran(first) == ["eager"]
            assert first.interrupted == ()
            assert first.out_of_time is not None
            assert {row.label.split("/")[1]: row.begun for row in first.out_of_time.left_out} == {
                "openvino": False, "inductor": True, "inductor[freezing]": True,
            }, "both inductors were built beside each other"  # fmt: skip
            assert len(load_all(paths.runs_folder()).current) == 4 + 1
            again = run(plan_of(9 * HOUR), resume=True)
            assert sorted(ran(again)[1:]) == ["inductor", "inductor[freezing]", "openvino"]
            assert [outcome(entry.record) for entry in again.stored] == ["ok"] * 4
            assert len(load_all(paths.runs_folder()).current) == 4 + 4

    def test_while_a_row_is_saved_loses_none_that_was_measured(self) -> None:
        know_all(openvino=2 * HOUR)

        class Saving(Recorder):
            def result(self, record: Record) -> None:
                super().result(record)
                if record.variant.backend == "inductor":
                    os.kill(os.getpid(), signal.SIGALRM)

        done = run(plan_of(HOUR, final_s=0.1), Saving())
        assert ran(done) == ["eager", "inductor[freezing]", "inductor"]
        assert done.out_of_time is not None
        assert len(done.out_of_time.undecided) == 1, "its final was still to come"

    def test_comes_by_the_clock(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A worker that never ends is stopped when the limit and its grace are over."""
        monkeypatch.setenv("BAKEOFF_TEST_HOLDS", "4")
        for backend in ("eager", "openvino", "inductor", "inductor[freezing]"):
            known(backend, 10, 0.1)
        done = run(plan_of(3.0))
        assert done.stored == ()
        assert done.out_of_time is not None
        assert done.out_of_time.used_s >= 3.0
        assert any(row.begun for row in done.out_of_time.left_out)

    def test_does_not_come_while_a_worker_is_ended(self, monkeypatch: pytest.MonkeyPatch) -> None:
        know_all()
        read = supervisor._read_report

        def interrupted(*arguments: Any) -> Any:
            os.kill(os.getpid(), signal.SIGALRM)
            return read(*arguments)

        class Armed(Recorder):
            def event(self, event: Event) -> None:
                if event.phase == "latency":
                    monkeypatch.setattr(supervisor, "_read_report", interrupted)

        done = run(plan_of(HOUR), Armed())
        assert done.out_of_time is not None
        assert done.interrupted == ()

    def test_counts_from_the_start_of_the_command(self) -> None:
        know_all()
        plan = plan_of(HOUR)
        late = time.monotonic() - HOUR + 10
        done = run_sweep(plan, paths.runs_folder(), "", False, Recorder(), started=late)
        assert done.stored == ()
        assert len(left_out(done)) == 4


class Killed(Recorder):
    """The sweep is gone when all rows are timed."""

    def ranked(self, to_come: str) -> None:
        super().ranked(to_come)
        raise SystemError("killed")


class TestAKilledSweep:
    def test_has_stored_all_rows_and_goes_on_with_the_final(self) -> None:
        plan = plan_of(0.0, final_s=0.1)
        progress = Killed()
        with pytest.raises(SystemError):
            run(plan, progress)
        (said,) = [text for kind, text in progress.told if kind == "ranked"]
        assert said == "The rows are timed. Still to come: the final."
        stored = load_all(paths.runs_folder()).current
        assert len(stored) == 4
        again = Recorder()
        done = run(plan, again, resume=True)
        assert {entry.id for entry in done.stored} == {entry.id for entry in stored}
        assert ("event", "latency") not in again.told
        assert len(done.finals) == 1


class TestFinals:
    def test_are_left_out_and_run_when_the_sweep_goes_on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        know_all()
        monkeypatch.setattr(time_limit, "FINAL_S", 9 * HOUR)
        first = run(plan_of(HOUR, final_s=0.1))
        assert (len(first.stored), first.finals) == (4, ())
        assert first.out_of_time is not None
        assert first.out_of_time.left_out == ()
        (pair,) = first.out_of_time.undecided
        assert " fp32 and " in pair
        assert run(replace(plan_of(0.0, final_s=0.1)), resume=True).finals != ()

    def test_have_their_time_kept(self) -> None:
        """Of 100 s rows are expected to take 60 each, and 60 are kept for the final."""
        know_all()
        done = run(plan_of(100.0, final_s=0.1))
        assert ran(done) == ["eager", "inductor[freezing]"]
        assert [entry.record.rounds != () for entry in done.finals] == [True]
        assert sorted(left_out(done)) == ["inductor", "openvino"]
        assert done.out_of_time is not None
        assert done.out_of_time.undecided == ()

    def test_are_between_the_two_best_when_the_sweep_goes_on(self) -> None:
        know_all(inductor=2 * HOUR)
        first = run(plan_of(HOUR, final_s=0.1))
        assert (len(first.stored), len(first.finals)) == (2, 1)
        folder = next(row for row in plan_of(HOUR).rows if row.variant.backend == "inductor").cache_folder
        folder.mkdir(parents=True)
        (folder / "slowness").write_text("0.5")
        build_cache.mark_finished(folder)
        second = run(plan_of(0.0, final_s=0.1), resume=True)
        (final,) = second.finals
        assert "inductor" in {side.variant.backend for side in (final.record.a, final.record.b)}
        with pytest.raises(Exception, match="no unfinished run"):
            run(plan_of(0.0, final_s=0.1), resume=True)

    def test_are_not_run_twice_where_the_best_stay_the_best(self) -> None:
        know_all(openvino=2 * HOUR)
        first = run(plan_of(HOUR, final_s=0.1))
        assert (len(first.stored), len(first.finals)) == (3, 1)
        assert first.out_of_time is not None
        assert first.out_of_time.undecided == ()
        again = run(plan_of(HOUR, final_s=0.1), resume=True)
        assert [entry.id for entry in again.finals] == [entry.id for entry in first.finals] != []


def test_rows_that_are_built_are_timed_before_the_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A built row waited for another build until both were stopped, and the sweep had one row of seven."""
    know_all()
    known("aoti", 40, 60.0)
    monkeypatch.setenv("BAKEOFF_TEST_HANGS", "aoti")
    monkeypatch.setattr(running, "_turn_s", lambda _record: HOUR)
    backends, policy = ("eager", "inductor[]", "aoti[]"), replace(FAST, build_deadline_s=5.0)
    done = run(plan_of(HOUR, *backends, policy=policy))
    assert sorted(ran(done)) == ["eager", "inductor"]
    assert done.out_of_time is not None
    assert [(row.begun, "aoti" in row.label) for row in done.out_of_time.left_out] == [(True, True)]
    monkeypatch.delenv("BAKEOFF_TEST_HANGS")
    assert ran(run(plan_of(0.0, *backends, policy=policy), resume=True))[-1] == "aoti"


class TestText:
    def said(self, what: OutOfTime, stored: Sequence[Stored] = ()) -> list[str]:
        return terminal.render(Document("", notes.out_of_time(what, stored, "bakeoff sweep wm --resume"))).splitlines()

    @pytest.mark.parametrize(
        ("typed", "said"),
        [
            (["sweep", "wm", "--time-limit", "3m"], "bakeoff sweep wm --resume"),
            (["sweep", "wm", "--time-limit=3m", "--dtype", "fp32"], "bakeoff sweep wm --dtype fp32 --resume"),
            (["sweep", "wm", "--resume", "--time-limit", "3m"], "bakeoff sweep wm --resume"),
            (["sweep", "wm", "--objective", "p99<=33ms"], "bakeoff sweep wm --objective 'p99<=33ms' --resume"),
        ],
    )
    def test_command_to_go_on_is_the_one_that_was_typed(
        self, monkeypatch: pytest.MonkeyPatch, typed: list[str], said: str
    ) -> None:
        monkeypatch.delenv("MAKELEVEL", raising=False)
        assert resume_command(typed) == said
        monkeypatch.setenv("MAKELEVEL", "1")
        assert "make sweep RESUME=1" in resume_command(typed)


class TestCommand:
    @pytest.fixture(autouse=True)
    def _fast(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(requests, "Request", functools.partial(Request, policy=FAST, ceilings=False))
        monkeypatch.setattr("sys.argv", ["bakeoff", "sweep", "toy", "--time-limit", "1h"])
        monkeypatch.delenv("MAKELEVEL", raising=False)

    def sweep(self, *options: str, backends: Sequence[str] = BACKENDS) -> Result:
        asked = ["sweep", "toy", "--device", "cpu", "--dtype", "fp32", "--threads", "1", "--no-final"]
        asked += [word for backend in backends for word in ("--backends", backend)]
        return CliRunner().invoke(app, [*asked, *options])

    def test_prints_the_table_and_what_is_missing(self) -> None:
        know_all(inductor=2 * HOUR)
        ended = self.sweep("--time-limit", "1h", "--strict")
        assert ended.exit_code == 1, ended.output
        assert "2 of 4 rows recorded" in ended.stdout
        assert "2 of 4 variants measured in" in ended.stdout
        assert "To go on:\n\nbakeoff sweep toy --resume\n" in ended.stdout
        assert "eager fp32" in ended.stdout
        assert self.sweep("--time-limit", "1h", "--strict", backends=("eager",)).exit_code == 0
