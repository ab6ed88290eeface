"""A real monitor process: what it reports, what it costs, and when it ends."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from forked_workers import SERVERS
from lab import wait_until
from monitors import series_of

from bakeoff.monitor import client
from bakeoff.monitor.client import Monitor
from bakeoff.monitor.request import CpuQuantity, GpuQuantity, MonitorRequest

UUID = "GPU-11111111-0000-0000-0000-000000000000"
GPU: tuple[GpuQuantity, ...] = ("memory", "busy", "sm_active", "temperature", "power", "clocks", "throttle")
CPU: tuple[CpuQuantity, ...] = ("process", "memory", "load", "energy")
FAKE_DRIVER = f"""
import time
from fake_nvml import FakeNvml, whole_gpu
_gpu = whole_gpu("{UUID[4:]}", TotalEnergyConsumption=lambda: round(time.monotonic() * 500_000))
_library = FakeNvml([_gpu])
def __getattr__(name):
    return getattr(_library, name)
"""
PARENT = """
import os, signal, sys, threading, time
from bakeoff.monitor.client import Monitor
from bakeoff.monitor.request import MonitorRequest

request = MonitorRequest(os.getpid(), (), (), ("process", "load"), 0.5, 0.1, 100)
"""


def request(
    gpu_interval_s: float = 0.1, cpu_interval_s: float = 0.1, devices: tuple[str, ...] = (), raw: str = ""
) -> MonitorRequest:
    return MonitorRequest(os.getpid(), devices, GPU, CPU, gpu_interval_s, cpu_interval_s, 2_000, raw)


@pytest.fixture(autouse=True, scope="module")
def _without_fork_server() -> None:
    """A monitor watches all that this process has started."""
    for server in SERVERS:
        server.stop()


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A made-up GPU for processes that are started."""
    (tmp_path / "pynvml.py").write_text(FAKE_DRIVER)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]]))


@pytest.fixture
def monitor() -> Iterator[Monitor]:
    """Of this process, without a GPU."""
    started = Monitor.start(request(), ready_s=30)
    yield started
    started.stop()


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_this_process_is_watched(monitor: Monitor) -> None:
    begun_s, work_until = time.monotonic(), time.process_time() + 0.4
    while time.process_time() < work_until:
        pass
    report = monitor.stop()
    on_average = 100 * 0.4 / (time.monotonic() - begun_s)
    assert {series.name for series in report.series} == {"cpu.process", "cpu.process_memory", "cpu.memory", "cpu.load"}
    busy = series_of(report, "cpu.process")
    assert busy.greatest is not None
    assert 0.7 * on_average < busy.greatest < 900, "percent of one core"
    memory = series_of(report, "cpu.process_memory")
    assert memory.mean == pytest.approx(psutil.Process().memory_info().rss / 2**20, rel=0.3)
    assert report.cost is not None
    assert report.cost.asked_s == {"cpu": 0.1}
    assert report.cost.samples >= 3
    assert report.cost.cpu_ns > 0
    for series in report.series:
        times = [point.t_ns for point in series.points]
        assert times == sorted(times)
        assert 0 <= times[-1] <= report.cost.wall_ns
    assert not is_running(monitor.pid)


def test_times_are_from_a_start_that_may_be_given(monitor: Monitor) -> None:
    wait_until(lambda: monitor.latest().get("cpu.process") is not None, "a rate")
    start_ns = monitor.start_ns - 100_000_000_000
    points = series_of(monitor.stop(start_ns), "cpu.load").points
    assert points[0].t_ns == pytest.approx(100_000_000_000, rel=0.2)
    assert series_of(monitor.stop(), "cpu.load").points[0].t_ns == 0, "a sample before the start is at it"


def test_the_latest_values_can_be_asked_for_while_it_runs(monitor: Monitor) -> None:
    wait_until(lambda: "cpu.process" in monitor.latest(), "a rate")
    latest = monitor.latest()
    assert set(latest) == {"cpu.process", "cpu.process_memory", "cpu.memory", "cpu.load"}
    assert latest["cpu.process_memory"] > 1
    monitor.stop()
    assert monitor.latest() == {}


@pytest.mark.usefixtures("driver")
def test_a_gpu_is_watched_from_the_first_sample_on() -> None:
    """Also when it is stopped at once. 500 W by the counter and by the integral."""
    monitor = Monitor.start(request(gpu_interval_s=0.05, devices=(UUID,)), ready_s=30)
    first = monitor.latest()
    assert (first["gpu.power"], first["gpu.temperature"], first["gpu.memory"]) == (500, 50, 1024)
    time.sleep(1.5)
    report = monitor.stop()
    assert {series.unit for series in report.series if series.source == UUID} == {"MiB", "%", "C", "W", "MHz"}
    (energy,) = (each for each in report.energy if each.device == UUID)
    assert energy.counter_mj == pytest.approx(energy.integral_mj, rel=0.05)
    assert energy.counter_mj is not None
    assert energy.counter_mj > 700_000
    at_once = Monitor.start(request(devices=(UUID,)), ready_s=30).stop()
    assert series_of(at_once, "gpu.power").count >= 2


def test_it_is_no_part_of_what_it_watches(monitor: Monitor) -> None:
    assert monitor.pid in {child.pid for child in psutil.Process().children()}
    wait_until(lambda: "cpu.process_memory" in monitor.latest(), "a sample")
    memory = monitor.latest()["cpu.process_memory"]
    both = sum(process.memory_info().rss for process in (psutil.Process(), psutil.Process(monitor.pid))) / 2**20
    assert memory < both - 5


def test_a_monitor_that_is_killed_is_a_sentence(monitor: Monitor) -> None:
    os.kill(monitor.pid, signal.SIGKILL)
    assert monitor.latest() == {}
    report = monitor.stop()
    assert report.missing == ("what the monitor saw is lost: its process ended with code -9",)
    assert (report.series, report.cost) == ((), None)
    assert monitor.stop() == report


def test_a_monitor_that_hangs_is_a_sentence(monitor: Monitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_STOP_S", 0.5)
    os.kill(monitor.pid, signal.SIGSTOP)
    assert monitor.latest() == {}
    assert "was killed" in monitor.stop().missing[0]
    assert not is_running(monitor.pid)


def test_a_monitor_that_fails_to_load_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "COMMAND", ("-c", "import no_such_library"))
    monitor = Monitor.start(request(), ready_s=30)
    assert monitor.latest() == {}
    (missing,) = monitor.stop().missing
    assert "ModuleNotFoundError: No module named 'no_such_library'" in missing


def test_what_libraries_print_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pynvml.py").write_text('print("hello\\n{}\\n[1]", flush=True)\n' + FAKE_DRIVER)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]]))
    monitor = Monitor.start(request(devices=(UUID,)), ready_s=30)
    assert monitor.latest()["gpu.power"] == 500
    assert series_of(monitor.stop(), "gpu.power").mean == 500


def test_several_threads_may_use_it(monitor: Monitor) -> None:
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(len(monitor.latest()))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert min(found) >= 3
    assert monitor.stop().cost is not None


def test_its_process_loads_no_heavy_library() -> None:
    heavy = ("numpy", "torch", "scipy", "psutil", "pynvml", "vl_convert", "rich", "jinja2", "yaml")
    check = f"import sys, bakeoff.monitor.__main__; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def parent(script: str) -> "subprocess.Popen[str]":
    """A process with a monitor, in a process group of its own; its first line is the monitor's id."""
    return subprocess.Popen(
        [sys.executable, "-c", PARENT + script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def line_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.alone
@pytest.mark.parametrize("forked", [False, True], ids=["alone", "a fork holds its socket"])
def test_it_ends_within_a_second_when_its_parent_is_killed(forked: bool) -> None:
    fork = "child = os.fork()\nif child == 0: time.sleep(60)\n" if forked else "child = 0\n"
    script = (
        f"monitor = Monitor.start(request, ready_s=30)\n{fork}print(monitor.pid, child, flush=True)\ntime.sleep(60)"
    )
    with parent(script) as process:
        pid, child = (int(word) for word in line_of(process).split())
        try:
            assert is_running(pid)
            process.kill()
            killed = time.monotonic()
            wait_until(lambda: not is_running(pid), "the monitor to end", 10)
            assert time.monotonic() - killed < 1
        finally:
            if child:
                os.kill(child, signal.SIGKILL)


def test_ctrl_c_ends_neither_it_nor_its_report() -> None:
    """The whole foreground group gets the signal; the pipeline catches it and stops the monitor."""
    script = """
monitor = Monitor.start(request, ready_s=30)
try:
    print(monitor.pid, flush=True)  # the signal may come before this returns
    time.sleep(60)
except KeyboardInterrupt:
    time.sleep(0.3)
    print(monitor.stop().cost is not None, flush=True)
"""
    with parent(script) as process:
        line_of(process)
        os.killpg(process.pid, signal.SIGINT)
        assert line_of(process) == "True"


def test_a_forked_process_does_not_stop_it() -> None:
    script = """
monitor = Monitor.start(request, ready_s=30)
child = os.fork()
if child == 0:
    report = monitor.stop()
    os._exit(0 if report.cost is None and report.missing and monitor.latest() == {} else 1)
print(os.waitpid(child, 0)[1], monitor.stop().cost is not None, flush=True)
"""
    with parent(script) as process:
        assert line_of(process) == "0 True"


BARE = """
import os, time
from contextlib import suppress
while True:
    time.sleep(0.5)
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError), open(f"/proc/{name}/stat") as file:
            file.read()
"""


@pytest.mark.alone
@pytest.mark.usefixtures("driver")
def test_it_takes_less_than_half_a_percent_of_a_core() -> None:
    """At the intervals that sessions have by default, once it has started; its GPU is a made-up one.

    On a virtual machine that makes a process pay for each waking, no more than a loop that reads /proc as often.
    """
    monitor = Monitor.start(request(gpu_interval_s=0.5, cpu_interval_s=1.0, devices=(UUID,)), ready_s=30)
    bare = subprocess.Popen([sys.executable, "-c", BARE])
    processes = [psutil.Process(pid) for pid in (monitor.pid, bare.pid)]
    time.sleep(1.2)
    for _ in range(3):  # a CPU that others use takes longer for the same work
        before_s, started = [*map(cpu_s, processes)], time.monotonic()
        time.sleep(10)
        ran_s = time.monotonic() - started
        share, bare_share = ((cpu_s(process) - was) / ran_s for process, was in zip(processes, before_s, strict=True))
        if share < 0.005:
            break
    bare.kill()
    bare.wait()
    report = monitor.stop()
    assert report.cost is not None
    if bare_share < 0.005:
        assert report.cost.ran_s == {"gpu": 0.5, "cpu": 1.0}, "no interval was lengthened"
        assert series_of(report, "gpu.power").count >= 20
    assert share < max(0.005, bare_share)


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system
