"""A sweep or a run of mixes with a monitor: what it watches, what records keep of it, and what happens without it."""

from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from lab import FAST, TORCHLESS, Recorder, Swept, check_sweep, left_alive, marked_folder, outcome, sweep
from stand_in_monitor import NOTHING, Factory

from bakeoff.machine import host, paths
from bakeoff.monitor import client
from bakeoff.pipeline.plan import make_pipeline_plan
from bakeoff.pipeline.request import PipelineRequest
from bakeoff.pipeline.run import run_pipeline
from bakeoff.plan.request import Request
from bakeoff.process import supervisor
from bakeoff.process.jobs import CeilingsJob, CeilingsResult
from bakeoff.process.supervisor import Deadlines, Launch, Outcome
from bakeoff.record.pipeline import PipelineRecord
from bakeoff.record.schema import Record
from bakeoff.record.store import load_all

pytestmark = pytest.mark.timeout(120)

REQUEST = Request("toy", backends=("eager",), dtypes=("fp32",), device="cpu", policy=FAST, monitor=True)


@pytest.fixture(autouse=True)
def _lab(torchless: None, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001
    monkeypatch.setattr(host, "present_load", lambda _waited: host.Load(0.0, 0.0))  # others run beside


@pytest.fixture
def monitors(monkeypatch: pytest.MonkeyPatch) -> Factory:
    made = Factory()
    monkeypatch.setattr(supervisor, "start_monitor", made)
    return made


def only(swept: Swept) -> Record:
    check_sweep(swept)
    (record,) = swept.records().values()
    return record


def test_a_record_keeps_what_a_monitor_saw_of_its_worker(monitors: Factory, tmp_path: Path) -> None:
    record = only(sweep(REQUEST, tmp_path))
    assert outcome(record) == "ok"
    (monitor,) = monitors.made
    assert monitor.stopped_ns
    assert not psutil.pid_exists(monitor.pid), "it is stopped when the worker has ended"
    seen, window = record.monitored, record.monitored_window_ns
    assert seen is not None
    assert window is not None
    assert seen.series[0].mean == 100.0
    assert 0 < window[0] < window[1] < monitor.stopped_ns - monitor.first_ns
    timed_s = sum(record.phase_s[phase] for phase in ("latency", "throughput"))
    assert (window[1] - window[0]) / 1e9 == pytest.approx(timed_s, abs=0.05)
    assert [finding.code for finding in record.measurement.findings] == []
    (kept,) = load_all(tmp_path / "runs").current
    assert kept.record == record


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


def run(folder: Path, script: str, timed: tuple[str, ...], gpu: str = "") -> Outcome:
    """How a worker ends that runs this script, in which `enter` announces a phase."""
    worker = folder / "worker.py"
    worker.write_text(
        "import os, sys, time\n"
        'def enter(phase): os.write(int(sys.argv[1]), b\'{"phase": "%s"}\\n\' % phase.encode())\n' + script
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervisor, "WORKER", (TORCHLESS[0], "-I", "-S", str(worker)))
        launch = Launch({}, Deadlines(30.0), folder / "row.log", gpu=gpu, timed=timed)
        return supervisor.run_job(CeilingsJob("cpu", 1, ()), CeilingsResult, launch)


def test_a_row_is_measured_where_no_monitor_can_be_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(client, "COMMAND", ("-c", "import no_such_library"))
    record = only(sweep(REQUEST, tmp_path))
    assert record.status == "ok"
    (finding,) = record.measurement.findings
    assert (finding.code, "no_such_library" in finding.text) == ("not-monitored", True)


def test_ctrl_c_while_a_monitor_starts_leaves_no_worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupted(_guard: int, _gpu: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(supervisor, "start_monitor", interrupted)
    before = set(psutil.Process().children())
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, "time.sleep(60)\n", ("latency",))
    assert set(psutil.Process().children()) <= before


def test_a_worker_that_dies_has_been_watched_until_then(monitors: Factory, tmp_path: Path) -> None:
    ended = run(tmp_path, "enter('import')\ntime.sleep(0.3)\nos._exit(7)\n", ("latency",))
    assert ended.kind == "crashed"
    assert len(monitors.made) == 1
    assert ended.watched.monitored is not None
    assert (ended.watched.window_ns, ended.watched.findings) == (None, ())


def test_a_real_monitor_sees_a_worker_and_leaves_out_that_it_has_ended(tmp_path: Path) -> None:
    busy = "enter('latency')\nend = time.monotonic() + 4\nwhile time.monotonic() < end:\n    pass\n"
    watched = run(tmp_path, busy, ("latency",)).watched
    seen, window = watched.monitored, watched.window_ns
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
    phases = ("import", "latency", "throughput", "latency", "memory", "fresh inputs")
    script = f"for phase in {phases}:\n    enter(phase)\n    time.sleep(0.2)\n"
    window = run(tmp_path, script, ("latency", "throughput"), "GPU-1").watched.window_ns
    assert window is not None
    assert (window[1] - window[0]) / 1e9 == pytest.approx(0.6, abs=0.1)
    assert monitors.made[0].gpu == "GPU-1"


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
        assert left_alive(marker) == []
    return [entry.record for entry in done.stored]
