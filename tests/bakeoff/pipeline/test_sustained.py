"""Sustained runs: what is kept when they end, are interrupted or crash. Workers measure nothing here."""

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lab import FAST, TORCHLESS, Recorder, left_alive, marked_folder
from records import bakeoff

from bakeoff.machine import paths
from bakeoff.models.errors import BakeoffError
from bakeoff.pipeline import cold
from bakeoff.pipeline.plan import ExportedMix, MixPlan, estimate, make_pipeline_plan
from bakeoff.pipeline.request import PipelineRequest
from bakeoff.pipeline.run import PipelineResult, run_pipeline
from bakeoff.process import supervisor
from bakeoff.process.signals import ending_signals
from bakeoff.record.deadline import figures, first_frames
from bakeoff.record.pipeline import PipelineRecord, Start, Sustained
from bakeoff.record.store import load_all
from bakeoff.report.pages.plan import of_pipeline
from bakeoff.report.render import terminal

pytestmark = pytest.mark.timeout(120)

REQUEST = PipelineRequest(
    "loops:Small",
    mixes=("eager",),
    device="cpu",
    minutes=0.01,
    threads=1,
    policy=FAST,
    sustained=Sustained(0.0, False, 1),
)
TWO = replace(REQUEST, mixes=("eager", "image=inductor/fp32"))


@pytest.fixture(autouse=True)
def _lab(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "WORKER", TORCHLESS)


def run(
    folder: Path,
    request: PipelineRequest = REQUEST,
    faults: str = "",
    resume: bool = False,
    progress: Recorder | None = None,
) -> tuple[PipelineResult, dict[str, PipelineRecord]]:
    """Run a request; the records by their roles, `other` for the mix that has none."""
    with marked_folder(folder) as marker, pytest.MonkeyPatch.context() as patch:
        patch.setenv("BAKEOFF_TEST_FAULTS", faults)
        plan = make_pipeline_plan(request, paths.runs_folder(), Recorder())
        done = run_pipeline(plan, paths.runs_folder(), "", resume, progress or Recorder())
        assert left_alive(marker) == []
    return done, {entry.record.role or "other": entry.record for entry in done.stored}


def codes(record: PipelineRecord) -> list[str]:
    return [finding.code for finding in record.measurement.findings if finding.code != "busy-host"]


def test_mixes_run_one_after_the_other_for_the_time_and_stand_apart_from_other_runs(tmp_path: Path) -> None:
    done, records = run(tmp_path, replace(TWO, monitor=True))
    assert [(record.status, record.how) for record in records.values()] == [("ok", "in turn")] * 2
    for record in records.values():
        assert codes(record) == []
        assert record.sustained == Sustained(24.0, False, 1), "the rate of the loop"
        units, found = record.measurement.units, figures(record)
        assert units is not None
        assert found is not None
        assert (found.left_out, found.units) == (2, len(units.wall_ns) - 2)
        assert found.units >= 10
        assert record.monitored is not None
        assert record.monitored_window_ns is not None
        assert record.monitored_window_ns[1] > 0.6e9
    every = load_all(tmp_path / "runs")
    assert every.pipelines == ()
    assert {entry.id for entry in every.sustained} == {entry.id for entry in done.stored}


class Reading(Recorder):
    """Keeps what the live line says."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def event(self, event: supervisor.Event) -> None:
        super().event(event)
        self.lines += [event.detail] if event.phase == "rounds" else []


def test_a_live_line_says_rate_and_misses(tmp_path: Path) -> None:
    progress = Reading()
    run(tmp_path, replace(REQUEST, minutes=0.005), progress=progress)
    assert progress.lines[:2] == ["warming up"] * 2
    assert progress.lines[-1] == "200.00 fps, 0 late at 24"
    run(tmp_path, replace(REQUEST, minutes=0.005, sustained=Sustained(400.0, False, 1)), progress=progress)
    rate, _, late = progress.lines[-1].partition(", ")
    assert (rate, late[0] != "0", late.endswith(" late at 400")) == ("200.00 fps", True, True)


class Interrupting(Recorder):
    """Ctrl-C as soon as so many lines were shown of the units of a mix, and once more after so many others."""

    def __init__(self, *after: int) -> None:
        super().__init__()
        self.after = list(after)

    def event(self, event: supervisor.Event) -> None:
        super().event(event)
        if self.told.count(("event", "rounds")) in self.after[:1]:
            self.after.pop(0)
            signal.raise_signal(signal.SIGINT)


def test_ctrl_c_ends_a_mix_with_its_record_and_leaves_the_others(tmp_path: Path) -> None:
    done, records = run(tmp_path, replace(TWO, minutes=5.0), progress=Interrupting(20))
    assert len(records) == 1
    (record,) = records.values()
    assert (record.status, codes(record)) == ("ok", ["few-units"])
    (finding,) = [each for each in record.measurement.findings if each.code == "few-units"]
    assert finding.text.endswith(" of 5 minutes: the command was told to end")
    units = record.measurement.units
    assert units is not None
    assert 20 <= len(units.wall_ns) < 20_000, "of 50,000"
    assert len(done.interrupted) == 1


def test_resume_runs_the_mixes_that_were_left(tmp_path: Path) -> None:
    first, _ = run(tmp_path, TWO, progress=Interrupting(20))
    again, records = run(tmp_path, TWO, resume=True)
    assert (again.run, len(records), again.interrupted) == (first.run, 2, ())
    assert [codes(record) for record in records.values()].count(["few-units"]) == 1


def test_a_second_ctrl_c_ends_at_once_and_leaves_the_mix_to_resume(tmp_path: Path) -> None:
    request = replace(REQUEST, minutes=0.02)
    done, records = run(tmp_path, request, faults="hang@eager", progress=Hanging(10))
    assert (records, len(done.interrupted)) == ({}, 1)
    _, records = run(tmp_path, request, resume=True)
    assert (records["eager"].status, codes(records["eager"])) == ("ok", [])


class Hanging(Recorder):
    """Ctrl-C twice after so many units."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.units = units

    def event(self, event: supervisor.Event) -> None:
        super().event(event)
        if self.told.count(("event", "rounds")) == self.units:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)


def test_a_worker_that_dies_leaves_its_units(tmp_path: Path) -> None:
    _, records = run(tmp_path, faults="crash@eager")
    record = records["eager"]
    assert (record.status, record.measurement.reason) == ("crashed", "SIGSEGV in phase unit")
    assert record.measurement.units is not None
    assert len(record.measurement.units.wall_ns) == 10


def test_a_unit_that_hangs_is_a_timeout_although_those_before_it_took_longer_together(tmp_path: Path) -> None:
    policy = replace(FAST, phase_deadline_s=1.5)
    _, records = run(tmp_path, replace(REQUEST, minutes=0.04, policy=policy))
    assert records["eager"].status == "ok", "2.4 seconds of the phase `unit`, restarted by each unit"
    _, records = run(tmp_path, replace(REQUEST, policy=policy), faults="hang@eager")
    assert (records["eager"].status, records["eager"].measurement.reason) == ("timeout", "unit took longer than 2 s")
    assert figures(records["eager"]) is not None


def test_a_report_of_other_units_than_those_announced_is_not_ranked(tmp_path: Path) -> None:
    _, records = run(tmp_path, faults="claims@eager")
    assert records["eager"].status == "unstable"
    assert "announced turn by turn" in records["eager"].measurement.reason


@pytest.mark.parametrize(
    ("sustained", "text"),
    [
        (Sustained(0.05, False, 1), "0.05 frames a second: give 0.1 to 1000"),
        (Sustained(2000.0, True, 1), "2000 frames a second: give 0.1 to 1000"),
        (Sustained(24.0, True, 0), "--buffer 0: give 1 to 1000 units"),
    ],
)
def test_impossible_rates_and_buffers_are_refused(tmp_path: Path, sustained: Sustained, text: str) -> None:
    with pytest.raises(BakeoffError) as raised:
        make_pipeline_plan(replace(REQUEST, sustained=sustained), tmp_path, Recorder())
    assert str(raised.value) == text


def test_the_estimate_is_the_time_of_each_mix_and_not_a_number_of_units(tmp_path: Path) -> None:
    plan = make_pipeline_plan(replace(TWO, minutes=2.5), tmp_path, Recorder())
    found = estimate(plan, tmp_path)
    assert all(mix["seconds"] >= 150 for mix in found["mixes"])
    text = terminal.render(of_pipeline(found))
    assert "2 mixes one after the other, 2.5 minutes each after 2 units that fill windows, about" in text
    text = terminal.render(of_pipeline({**found, "mixes": found["mixes"][:1], "minutes": 1.0}))
    assert "1 mix, 1 minute after 2 units that fill windows, about" in text


def test_a_rate_of_zero_is_refused(tmp_path: Path) -> None:
    done = bakeoff("deadline", "owl", "--fps", "0", cwd=tmp_path)
    assert (done.code, "0 frames a second: give a rate above 0" in done.err) == (2, True)


NONE = ExportedMix(problem="it has none")
COLD = replace(REQUEST, mixes=("image=inductor/fp32",), cold=True)


def cold_run(
    folder: Path, request: PipelineRequest, faults: str = "", artifacts: ExportedMix = NONE, starts: int = 2
) -> tuple[MixPlan, dict[str, PipelineRecord]]:
    """Run a mix with these artifacts, started so many times with each kind of caches."""
    with marked_folder(folder) as marker, pytest.MonkeyPatch.context() as patch:
        patch.setattr(cold, "STARTS", starts)
        patch.setenv("BAKEOFF_TEST_FAULTS", faults)
        plan = make_pipeline_plan(request, paths.runs_folder(), Recorder())
        plan = replace(plan, artifacts={str(mix.mix): artifacts for mix in plan.mixes})
        done = run_pipeline(plan, paths.runs_folder(), "", False, Recorder())
        assert left_alive(marker) == []
    return plan.mixes[0], {entry.record.role or "other": entry.record for entry in done.stored}


def test_a_cold_run_starts_seven_processes_with_each_kind_of_caches_in_turns(tmp_path: Path) -> None:
    mix, records = cold_run(tmp_path, COLD, starts=cold.STARTS)
    record, built = records["other"], [(row.cache_folder / "built").read_text() for row in mix.rows.values()]
    assert (record.how, record.status, codes(record)) == ("cold", "ok", [])
    assert built == ["onceagain"] * 2, "a process without caches deletes them, the next one finds its own"
    refused, *starts = record.starts
    assert (refused.caches, refused.problem, refused.frames) == ("artifact", "it has none", ())
    assert [start.caches for start in starts] == ["none", "compiler"] * 7
    for start in starts:
        found = first_frames(start, 24.0)
        assert found is not None
        assert found.good == 0
        assert start.problem == ""
        assert set(start.parts_ns) == {"import", "weights", "load", "compile", "warm-up", "opening"}
        assert sum(found.parts_ns.values()) == found.first_ns == start.wall_ns
        assert min(start.parts_ns["import"], start.parts_ns["compile"]) > 0
        assert start.wall_ns > start.units_ns[0] == 5_000_000


def test_a_mix_that_keeps_no_caches_and_one_that_cannot_be_built_say_so(tmp_path: Path) -> None:
    _, records = cold_run(tmp_path / "eager", replace(COLD, mixes=("eager",)))
    assert [(start.caches, start.problem) for start in records["eager"].starts[:3]] == [
        ("compiler", "none of its backends keeps a cache"),
        ("artifact", "it has none"),
        ("none", ""),
    ]
    _, records = cold_run(tmp_path / "failed", COLD, "build@inductor")
    assert records["other"].status == "build_failed"
    assert [start.problem for start in records["other"].starts] == ["it has none", "wm.world: no such operator"]
    _, records = cold_run(tmp_path / "crashed", replace(COLD, minutes=0.1), "crash@inductor")
    assert records["other"].status == "crashed"
    starts = records["other"].starts[1:]
    assert {start.problem for start in starts} == {"SIGSEGV in phase unit"}
    assert not any((found := first_frames(start, 24.0)) and found.good is not None for start in starts)


def test_artifacts_that_do_not_start_end_no_other_start(tmp_path: Path) -> None:
    _, records = cold_run(
        tmp_path, COLD, "artifacts@inductor", ExportedMix({"wm.world": "gone"}, problem="no calls warm it up")
    )
    record = records["other"]
    assert (record.status, [start.caches for start in record.starts]) == (
        "ok",
        ["warmed", "artifact", *["none", "compiler"] * 2],
    )
    assert [start.problem for start in record.starts[:2]] == ["no calls warm it up", "wm.world: no such operator"]


def test_an_interrupted_cold_run_keeps_the_starts_that_were_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, calls = cold._start, list[object]()

    def interrupted(*of: Any) -> Start:
        calls.append(of)
        if len(calls) == 3:
            signal.raise_signal(signal.SIGINT)
        return made(*of)

    monkeypatch.setattr(cold, "_start", interrupted)
    with ending_signals():
        _, records = cold_run(tmp_path, COLD)
    record = records["other"]
    assert [start.caches for start in record.starts] == ["artifact", "none", "compiler", "none"]
    assert codes(record) == ["few-units"]


def test_a_cold_start_has_no_buffer_and_no_pace(tmp_path: Path) -> None:
    for sustained in (Sustained(24.0, True, 1), Sustained(24.0, False, 2)):
        with pytest.raises(BakeoffError, match="--cold shows the first frame as soon as it is there"):
            make_pipeline_plan(replace(COLD, sustained=sustained), tmp_path, Recorder())
