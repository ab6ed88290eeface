"""A sweep or a run of mixes with a monitor: what it watches, what records keep of it, and what happens without it."""

import os
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from lab import FAST, TORCHLESS, Recorder, Swept, check_sweep, marked_folder, outcome, processes_with, sweep
from stand_in_monitor import NOTHING, Factory

from bakeoff.machine import host, paths
from bakeoff.pipeline.plan import make_pipeline_plan
from bakeoff.pipeline.request import PipelineRequest
from bakeoff.pipeline.run import run_pipeline
from bakeoff.plan.request import Request
from bakeoff.process import guard, supervisor
from bakeoff.process.jobs import CeilingsJob, CeilingsResult
from bakeoff.process.supervisor import Deadlines, Event, Launch
from bakeoff.record.pipeline import PipelineRecord
from bakeoff.record.schema import Record
from bakeoff.record.store import load_all
from bakeoff.sweeps import watch
from bakeoff.sweeps.watch import NOT_WATCHED, WorkerWatch, find_guard

pytestmark = pytest.mark.timeout(120)

REQUEST = Request("toy", backends=("eager",), dtypes=("fp32",), device="cpu", policy=FAST, monitor=True)


@pytest.fixture(autouse=True)
def _lab(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "WORKER", TORCHLESS)
    monkeypatch.setenv("BAKEOFF_TEST_SURE", "1")
    monkeypatch.setattr(host, "present_load", lambda _waited: 0.0)  # other tests run at the same time


@pytest.fixture
def monitors(monkeypatch: pytest.MonkeyPatch) -> Factory:
    made = Factory()
    monkeypatch.setattr(watch, "start_monitor", made)
    return made


def only(swept: Swept) -> Record:
    check_sweep(swept)
    (record,) = swept.records().values()
    return record


def test_a_record_keeps_what_a_monitor_saw_of_its_worker(monitors: Factory, tmp_path: Path) -> None:
    record = only(sweep(REQUEST, tmp_path))
    assert outcome(record) == "ok"
    (monitor,) = monitors.made
    assert guard.__file__ in monitor.commands[0], "the guard, which the worker and all that it starts are below"
    assert any(TORCHLESS[-1] in command for command in monitor.commands[1:])
    assert monitor.stopped_ns
    assert not psutil.pid_exists(monitor.pid), "it is stopped when the worker has ended"
    seen, window = record.monitored, record.monitored_window_ns
    assert seen is not None
    assert window is not None
    assert seen.series[0].mean == 100.0
    assert 0 < window[0] < window[1] < monitor.stopped_ns - monitor.started_ns
    timed_s = sum(record.phase_s[phase] for phase in ("latency", "throughput"))
    assert (window[1] - window[0]) / 1e9 == pytest.approx(timed_s, abs=0.05)
    assert [finding.code for finding in record.measurement.findings] == []
    (kept,) = load_all(tmp_path / "runs").current
    assert kept.record == record


def test_only_the_measuring_worker_is_watched(monitors: Factory, tmp_path: Path) -> None:
    swept = sweep(replace(REQUEST, policy=replace(FAST, trace=True)), tmp_path)
    assert {"reference", "trace"} <= set(swept.progress.phases(str(only(swept).variant)))
    assert len(monitors.made) == 1


def test_a_sweep_without_it_starts_none(monitors: Factory, tmp_path: Path) -> None:
    record = only(sweep(replace(REQUEST, monitor=False), tmp_path))
    assert monitors.made == []
    assert (record.monitored, record.monitored_window_ns, record.measurement.findings) == (None, None, ())


def test_a_row_is_measured_where_a_monitor_sees_nothing(monitors: Factory, tmp_path: Path) -> None:
    monitors.sees = False
    record = only(sweep(REQUEST, tmp_path))
    assert (record.status, record.monitored) == ("ok", NOTHING)
    (finding,) = record.measurement.findings
    assert finding.code == "not-monitored"
    assert finding.text == (
        "a monitor was asked for and saw nothing: NVML could not be loaded; psutil is not installed"
    )


def test_a_row_is_measured_where_no_monitor_can_be_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(watch, "find_guard", lambda _log: None)
    record = only(sweep(REQUEST, tmp_path))
    assert (record.status, record.monitored) == ("ok", None)
    assert [finding.code for finding in record.measurement.findings] == ["not-monitored"]


def test_a_worker_that_dies_has_been_watched_until_then(
    monitors: Factory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    dying = tmp_path / "dying.py"
    dying.write_text(
        'import os, sys, time\nos.write(int(sys.argv[1]), b\'{"phase": "import"}\\n\')\ntime.sleep(0.3)\nos._exit(7)\n'
    )
    monkeypatch.setattr(supervisor, "WORKER", (TORCHLESS[0], "-I", "-S", str(dying)))
    launch = Launch({}, Deadlines(30.0), tmp_path / "row.log")
    with WorkerWatch(launch, ("latency",), asked=True) as watched:
        outcome = supervisor.run_job(CeilingsJob("cpu", 1, ()), CeilingsResult, watched.launch)
    assert outcome.kind == "crashed"
    assert len(monitors.made) == 1
    assert watched.watched.monitored is not None
    assert (watched.watched.window_ns, watched.watched.findings) == (None, ())


def test_a_real_monitor_sees_a_worker_and_leaves_out_that_it_has_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    busy = tmp_path / "busy.py"
    busy.write_text(
        "import os, sys, time\n"
        'os.write(int(sys.argv[1]), b\'{"phase": "latency"}\\n\')\n'
        "end = time.monotonic() + 4\n"
        "while time.monotonic() < end:\n"
        "    pass\n"
    )
    monkeypatch.setattr(supervisor, "WORKER", (TORCHLESS[0], "-I", "-S", str(busy)))
    launch = Launch({}, Deadlines(30.0), tmp_path / "row.log")
    with WorkerWatch(launch, ("latency",), asked=True) as watched:
        supervisor.run_job(CeilingsJob("cpu", 1, ()), CeilingsResult, watched.launch)
    seen, window = watched.watched.monitored, watched.watched.window_ns
    assert seen is not None
    assert window is not None
    assert seen.missing == ()
    series = {each.name: each for each in seen.series}
    memory, cpu = series["cpu.process_memory"].greatest, series["cpu.process"].greatest
    assert memory is not None
    assert cpu is not None
    assert 5 < memory < 500, "MiB of two small processes"
    assert 10 < cpu < 150, "% of a core, which tests at the same time share"
    assert 3.5e9 < window[1] - window[0] < 20e9
    assert seen.cost is not None


def test_a_window_lasts_from_the_first_timed_phase_to_the_last(monitors: Factory, tmp_path: Path) -> None:
    told: list[str] = []
    launch = Launch({}, Deadlines(30.0), tmp_path / "row.log", lambda event: told.append(event.phase))
    with pytest.MonkeyPatch.context() as patch, WorkerWatch(launch, ("latency", "throughput"), asked=True) as watched:
        patch.setattr(watch, "find_guard", lambda _log: os.getpid())
        for phase in ("import", "latency", "throughput", "latency", "memory", "fresh inputs"):
            watched.launch.on_event(Event(phase))
            time.sleep(0.05)
    assert told == ["import", "latency", "throughput", "latency", "memory", "fresh inputs"]
    window = watched.watched.window_ns
    assert window is not None
    assert (window[1] - window[0]) / 1e9 == pytest.approx(0.15, abs=0.04)
    assert monitors.made[0].gpu == ""


def test_a_gpu_is_watched_by_its_uuid(monitors: Factory, tmp_path: Path) -> None:
    launch = Launch({}, Deadlines(30.0), tmp_path / "row.log", gpu="GPU-1")
    with pytest.MonkeyPatch.context() as patch, WorkerWatch(launch, (), asked=True) as watched:
        patch.setattr(watch, "find_guard", lambda _log: os.getpid())
        watched.launch.on_event(Event("import"))
    assert monitors.made[0].gpu == "GPU-1"


def test_a_watch_that_was_not_asked_for_changes_nothing(monitors: Factory, tmp_path: Path) -> None:
    launch = Launch({}, Deadlines(30.0), tmp_path / "row.log")
    with WorkerWatch(launch, ("latency",), asked=False) as watched:
        assert watched.launch is launch
    assert watched.watched == NOT_WATCHED
    assert monitors.made == []


def test_a_guard_is_known_by_the_log_of_its_worker(tmp_path: Path) -> None:
    assert find_guard(tmp_path / "nobody.log") is None


def test_each_mix_is_watched_apart(monitors: Factory, tmp_path: Path) -> None:
    request = PipelineRequest(
        "loops:Small",
        mixes=("eager", "image=inductor/fp32"),
        device="cpu",
        units=5,
        threads=1,
        policy=FAST,
        monitor=True,
    )
    found = mixes(tmp_path, request)
    assert len(monitors.made) == len({monitor.pid for monitor in monitors.made}) == 2
    for record in found:
        assert outcome(record) == "ok"
        assert record.monitored is not None
        window = record.monitored_window_ns
        assert window is not None
        assert window[1] - window[0] > 4 * 5_000_000, "the units of 5 ms after the first"
    monitors.made.clear()
    without = mixes(tmp_path, replace(request, monitor=False))
    assert monitors.made == []
    assert {record.monitored for record in without} == {None}


def mixes(folder: Path, request: PipelineRequest) -> list[PipelineRecord]:
    with marked_folder(folder) as marker:
        done = run_pipeline(
            make_pipeline_plan(request, paths.runs_folder(), Recorder()), paths.runs_folder(), "", False, Recorder()
        )
        assert list(processes_with(marker)) == []
    return [entry.record for entry in done.stored]
