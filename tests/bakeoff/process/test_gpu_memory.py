"""Device memory of a worker as its parent polls it, with GPUs made up for the test."""

import os
import subprocess
import sys
from collections.abc import Iterator
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
from fake_nvml import FakeGpu, FakeNvml, NVMLError_GpuIsLost, running, whole_gpu

from bakeoff.process import watch
from bakeoff.process.phases import PHASES
from bakeoff.process.watch import OF_DEVICE, OF_PROCESS, GpuMeter, metering
from bakeoff.record.schema import Memory
from bakeoff.sweeps.assemble import with_gpu_peaks

UUID = "11111111-0000-0000-0000-000000000000"
MIB = 1 << 20


@pytest.fixture
def child() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process.pid
    process.communicate()


def used(*mebibytes: int) -> list[Any]:
    return [SimpleNamespace(total=0, free=0, used=size * MIB) for size in mebibytes]


def listed(pid: int, *mebibytes: int | None) -> list[Any]:
    return [[running(pid, size and size * MIB), running(1, 9000 * MIB)] for size in mebibytes]


def metered(monkeypatch: pytest.MonkeyPatch, gpu: FakeGpu, polls: int = 3) -> GpuMeter:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml([gpu]))
    with metering(gpu.uuid) as meter:
        for _ in range(polls):
            meter.poll("memory", os.getpid())
    return meter


def test_a_peak_between_two_levels_is_seen(monkeypatch: pytest.MonkeyPatch, child: int) -> None:
    """As of a workspace that is taken and given back within a call."""
    peaks = metered(monkeypatch, whole_gpu(UUID, ComputeRunningProcesses=listed(child, 500, 2500, 500))).peaks()
    assert peaks is not None
    assert (peaks.bytes_of, peaks.meter) == ({"memory": 2500 * MIB}, OF_PROCESS)


@pytest.mark.parametrize("hidden", ["pid", "size"])
def test_where_processes_are_hidden_the_whole_gpu_counts_and_is_said(
    monkeypatch: pytest.MonkeyPatch, child: int, hidden: str
) -> None:
    processes = listed(4711, 500) if hidden == "pid" else listed(child, None)
    gpu = whole_gpu(UUID, ComputeRunningProcesses=processes, MemoryInfo=used(1000, 1500, 3500, 1500))
    peaks = metered(monkeypatch, gpu).peaks()
    assert peaks is not None
    assert (peaks.bytes_of, peaks.meter) == ({"memory": 2500 * MIB}, OF_DEVICE)


def test_a_gpu_that_is_lost_keeps_the_peak_so_far(monkeypatch: pytest.MonkeyPatch, child: int) -> None:
    lost = NVMLError_GpuIsLost()
    gpu = whole_gpu(UUID, ComputeRunningProcesses=[*listed(child, 800), lost], MemoryInfo=[*used(100, 900), lost])
    peaks = metered(monkeypatch, gpu).peaks()
    assert peaks is not None
    assert peaks.bytes_of == {"memory": 800 * MIB}


def test_nothing_is_polled_while_calls_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml([whole_gpu(UUID)]))
    with metering(f"GPU-{UUID}") as meter:
        phases = ("build", "warm-up", "latency", "throughput", "memory")
        assert [phase for phase in phases if meter.pause_s(phase) == 0] == ["build", "memory"]
        assert {phase for phase in PHASES if meter.pause_s(phase) == 0} == set(watch.POLLED_S)
    with metering("") as meter:
        assert meter.pause_s("build") == inf


def test_a_build_is_polled_ten_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its compiler times kernels; the memory phase has nothing to disturb."""
    now = [1000.0]
    monkeypatch.setattr(watch, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml([whole_gpu(UUID)]))
    polls = {"build": 0, "memory": 0}
    with metering(f"GPU-{UUID}") as meter:
        for phase in polls:
            for _ in range(1000):
                now[0] += 0.001
                if meter.pause_s(phase) <= 0:
                    meter.poll(phase, os.getpid())
                    polls[phase] += 1
    assert 8 <= polls["build"] <= 10
    assert 90 <= polls["memory"] <= 100


def test_a_record_has_the_peaks_and_what_they_leave_unexplained(monkeypatch: pytest.MonkeyPatch, child: int) -> None:
    read = Memory(1, 1, reserved_peak_bytes=400 * MIB, device_peak_bytes=500 * MIB, context_bytes=300 * MIB)
    peaks = metered(monkeypatch, whole_gpu(UUID, ComputeRunningProcesses=listed(child, 500, 2500, 500))).peaks()
    memory = with_gpu_peaks(read, peaks)
    assert memory.device_peak_bytes == 2500 * MIB
    assert memory.unexplained_bytes == 1800 * MIB
    assert memory.device_meter == f"peak {OF_PROCESS}"
    assert with_gpu_peaks(read, None) == read
