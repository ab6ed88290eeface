"""Whose CPU time is whose: the process's own, that of processes it started, and that of others."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the worker's side")

from bakeoff.machine import cgroups
from bakeoff.machine.processes import DRIVER, global_name, used_cpu_s
from bakeoff.process.jobs import MeasureJob, Subject
from bakeoff.record.policy import Policy
from bakeoff.record.schema import Clock, Samples
from bakeoff.worker.clocks import cpu_usage
from bakeoff.worker.clocks.cpu_usage import CpuUsage
from bakeoff.worker.clocks.timing import Timing
from bakeoff.worker.status import is_contended, timing_alarms

CPUS = sorted(os.sched_getaffinity(0))
SPIN = "import time\nend = time.monotonic() + float(__import__('sys').argv[1])\nwhile time.monotonic() < end: pass"
MEASURE = """
import os, subprocess, sys, time
from bakeoff.worker.clocks.cpu_usage import measure_cpu_usage
from bakeoff.process import guard
guard.prctl(guard.PR_SET_CHILD_SUBREAPER, 1)
spin, how = sys.argv[1:]
with measure_cpu_usage() as usage:
    if how == "child":
        subprocess.run([sys.executable, "-c", spin, "0.6"], check=True)
    elif how == "orphan":
        subprocess.run(["sh", "-c", '"$0" -c "$1" 0.6 &', sys.executable, spin], check=True)
        time.sleep(0.9)
    elif how == "idle":
        time.sleep(0.9)
    else:
        end = time.monotonic() + 0.6
        while time.monotonic() < end:
            pass
found = usage()
print(found.own_cores, found.helper_cores, found.other_share)
"""


def measured(how: str) -> tuple[float, float, float]:
    """Own cores, those of helpers among them, and the share of others, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, SPIN, how], capture_output=True, text=True, check=True, timeout=60
    )
    own, helper, other = map(float, done.stdout.split())
    return own, helper, other


@pytest.fixture
def spinner() -> Iterator[None]:
    """Another process, on the last CPU."""
    spin = subprocess.Popen(["taskset", "-c", str(CPUS[-1]), sys.executable, "-c", SPIN, "60"])
    yield
    spin.kill()
    spin.wait()


@pytest.mark.parametrize("how", ["child", "orphan"])
def test_what_a_started_process_computes_counts_as_own(how: str) -> None:
    own, helper, _ = measured(how)
    assert helper > 0.15
    assert own >= helper


def test_a_process_alone_has_no_helpers() -> None:
    own, helper, _ = measured("itself")
    assert helper < 0.05 < own


@pytest.mark.usefixtures("spinner")
def test_other_processes_are_counted() -> None:
    own, helper, other = measured("idle")
    assert own < 0.3
    assert helper < 0.05
    assert other > 0.3 / len(CPUS)


def metered(monkeypatch: pytest.MonkeyPatch, *readings: tuple[float | None, ...]) -> CpuUsage:
    """The usage over intervals that begin and end with these readings."""
    told = [cpu_usage._CpuTimes(*reading, None) for reading in readings]  # type: ignore[arg-type]
    monkeypatch.setattr(cpu_usage, "_read", lambda _cpus: told.pop(0))
    meter = cpu_usage.CpuMeter()
    assert meter.usage() == CpuUsage(), "nothing was measured"
    for _ in readings[::2]:
        with meter.interval():
            pass
    return meter.usage()


def test_a_meter_adds_up_intervals_and_leaves_out_what_is_between(monkeypatch: pytest.MonkeyPatch) -> None:
    cpus = len(CPUS)
    usage = metered(
        monkeypatch,
        (0.0, 0.0, 0.0, 0.0, 0.0),
        (1.0, 1.0 + 0.2 * cpus, 1.0, 0.0, 0.1),
        (100.0, 90.0 * cpus, 50.0, 0.0, 40.0),  # another mix ran
        (103.0, 90.0 * cpus + 3.0, 53.0, 0.0, 40.1),
    )
    assert usage.other_share == pytest.approx(0.2 / 4)
    assert usage.own_cores == pytest.approx(1.0)
    assert usage.waited_share == pytest.approx(0.2 / 4)


def test_a_driver_on_this_machine_is_metered_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process drives itself here, and is one of another machine then."""
    monkeypatch.setenv(DRIVER, global_name(os.getpid()))
    with cpu_usage.measure_cpu_usage() as usage:
        until = time.process_time() + 0.1
        while time.process_time() < until:
            pass
    assert usage().driver_s == pytest.approx(0.1, abs=0.05)
    assert usage().facts()["driver_cpu_s"] == round(usage().driver_s or 0, 3)
    monkeypatch.setenv(DRIVER, f"another-boot/1/{os.getpid()}")
    with cpu_usage.measure_cpu_usage() as usage:
        pass
    assert usage().driver_s is None
    assert "driver_cpu_s" not in usage().facts()


def test_only_the_affinity_masks_cpus_are_looked_at(tmp_path: Path) -> None:
    """By their numbers: /proc/stat leaves out those that are offline. Columns are in ticks of 10 ms."""
    stat = tmp_path / "stat"
    stat.write_text(
        "cpu  9 9 9 9 9 9 9 9 9 9\n"
        "cpu0 100 10 20 5000 700 1 2 3 0 0\n"
        "cpu2 1000 0 0 5000 0 0 0 0 500 0\n"
        "cpu12 7 7 7 7 7 7 7 7 7 7\n"
    )
    assert used_cpu_s({0}, str(stat)) == pytest.approx(1.36)
    assert used_cpu_s({1, 2}, str(stat)) == pytest.approx(10.0)


@pytest.mark.parametrize(("quota", "contention"), [(None, 0.25), (4.0, 0.25), (2.0, 0.05)])
def test_in_a_group_with_a_quota_only_waiting_counts(
    monkeypatch: pytest.MonkeyPatch, quota: float | None, contention: float
) -> None:
    """10 s on 4 CPUs: 5 s of its own, 5 s of a helper, 10 s of others, and 0.5 s of waiting."""
    monkeypatch.setattr(cgroups, "cpu_quota", lambda: quota)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1, 2, 3})
    usage = metered(monkeypatch, (0, 0, 0, 0, 1.0), (10, 20, 5, 5, 1.5))
    assert usage == CpuUsage(0.25, 1.0, 0.5, 0.05, contention)
    assert usage.facts() == {"other_cpu_share": 0.25, "cores_busy": 1.0, "helper_cores": 0.5, "cpu_pressure": 0.05}
    unknown = metered(monkeypatch, (0, 0, 0, 0, None), (10, 20, 5, 5, None))
    assert (unknown.contention, unknown.waited_share) == (0.25, None)
    assert "cpu_pressure" not in unknown.facts()


@pytest.mark.parametrize(("device", "contended"), [("cpu", True), ("cuda", False)])
def test_on_a_gpu_contention_never_unranks_a_row(device: str, contended: bool) -> None:
    subject = Subject("toy", "tiny", "world", 1, 0, 0, "", device, 1)  # type: ignore[arg-type]
    job = MeasureJob(subject, "v", (), "fp32", Policy(), "", "")
    assert is_contended(CpuUsage(other_share=0.3, contention=0.3), job) == contended
    assert not is_contended(CpuUsage(other_share=0.3, contention=0.1), job)


@pytest.mark.parametrize(("cores", "codes"), [(1.2, []), (1.3, ["threads"])])
def test_cores_of_started_processes_count_against_the_threads(cores: float, codes: list[str]) -> None:
    clock = Clock(Samples([1]))
    timing = Timing(clock, clock, (), (), (), CpuUsage(own_cores=cores, helper_cores=cores), (), 1, 1.0)
    subject = Subject("toy", "tiny", "world", 1, 0, 0, "", "cpu", 1)
    job = MeasureJob(subject, "v", (), "fp32", Policy(), "", "")
    assert [alarm.code for alarm in timing_alarms(timing, 1.0, 0, (), job)] == codes
