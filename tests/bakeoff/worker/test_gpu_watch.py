"""What is said of a GPU after calls were timed: what happened meanwhile, not what it does once it is idle."""

import os
import sys
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="the device is torch's")

import torch
from fake_nvml import FakeGpu, FakeNvml, NVMLError_GpuIsLost, NVMLError_NoPermission, running, whole_gpu

from bakeoff.worker import device
from bakeoff.worker.checks import memory
from bakeoff.worker.device import GpuState, foreign_processes, watching

UUID = "11111111-0000-0000-0000-000000000000"
PARENTS = {10: 1, 11: 1, 20: 2}
"""Processes and their parents: two workers of one comparison, and a process of somebody else."""


@pytest.fixture(autouse=True)
def _torch_names_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "device_uuid", lambda: UUID)


def watched(monkeypatch: pytest.MonkeyPatch, gpu: FakeGpu, readings: int = 3) -> GpuState:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml([gpu]))
    with watching("cuda") as watch:
        watch.begin()
        for _ in range(readings):
            watch.read()
        return watch.end()


def totals(*values: int) -> list[Any]:
    return [SimpleNamespace(violationTime=value) for value in values]


def test_throttling_in_the_window_is_found_though_the_gpu_is_idle_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    state = watched(monkeypatch, whole_gpu(UUID, CurrentClocksEventReasons=[0, 0x20, 0]))
    assert state.throttled == ("software thermal slowdown",)
    (alarm,) = state.alarms()
    assert alarm.code == "throttled"


def test_the_drivers_counters_find_what_no_reading_saw(monkeypatch: pytest.MonkeyPatch) -> None:
    hour_ns = 3600 * 10**9
    state = watched(monkeypatch, whole_gpu(UUID, ViolationStatus=totals(0, 0, hour_ns, hour_ns)))
    assert state.capped
    assert state.throttled
    assert state.facts["power_cap_ns"] == hour_ns
    assert state.facts["throttle_reasons"] == 0


def test_clocks_power_and_energy_are_of_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = whole_gpu(
        UUID,
        ClockInfo=[1000, 2619, 1400, 2619, 1200, 2619],
        PowerUsage=[300_000, 500_000, 400_000],
        TotalEnergyConsumption=[7_000_000, 7_002_500],
        Temperature=[50, 61, 55],
    )
    facts = watched(monkeypatch, gpu).facts
    assert (facts["sm_mhz"], facts["sm_mhz_low"], facts["sm_mhz_high"]) == (1200, 1000, 1400)
    assert facts["memory_mhz"] == 2619
    assert (facts["power_w"], facts["power_w_high"]) == (400.0, 500.0)
    assert facts["energy_j"] == 2.5
    assert facts["temperature_c"] == 61
    assert facts["gpu_readings"] == 3


@pytest.mark.parametrize(
    "refused",
    ["ClockInfo", "PowerUsage", "Temperature", "CurrentClocksEventReasons", "ViolationStatus", "TotalEnergyConsumption",
     "ComputeRunningProcesses"],
)  # fmt: skip
def test_one_refused_query_costs_its_own_facts_alone(monkeypatch: pytest.MonkeyPatch, refused: str) -> None:
    gpu = whole_gpu(UUID)
    everything = set(watched(monkeypatch, whole_gpu(UUID)).facts)
    del gpu.facts[refused]
    state = watched(monkeypatch, gpu)
    assert set(state.facts) < everything
    assert state.alarms() == []


def test_a_gpu_that_is_lost_in_the_window_keeps_what_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The row ends by what its calls say, not by what NVML says afterwards."""
    lost = NVMLError_GpuIsLost()
    gpu = whole_gpu(
        UUID,
        ClockInfo=[1000, 2619, lost],
        PowerUsage=[300_000, lost],
        Temperature=[50, lost],
        CurrentClocksEventReasons=[0x20, lost],
        ComputeRunningProcesses=[[], lost],
        TotalEnergyConsumption=[1, lost],
        ViolationStatus=[*totals(0, 0), lost],
    )
    state = watched(monkeypatch, gpu)
    assert (state.facts["sm_mhz"], state.facts["power_w"], state.facts["gpu_readings"]) == (1000, 300.0, 1)
    assert {"energy_j", "power_cap_ns", "thermal_ns"}.isdisjoint(state.facts)
    assert state.throttled == ("software thermal slowdown",)


def test_a_driver_that_hides_processes_accuses_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """As without permission, or where the ids are those of another namespace."""
    for told in (NVMLError_NoPermission(), [[running(4711), running(4712)]]):
        state = watched(monkeypatch, whole_gpu(UUID, ComputeRunningProcesses=told))
        assert state.other_processes == ()
        assert state.alarms() == []


def test_memory_of_a_process_falls_back_to_the_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where NVML does not list the process, refuses its memory, or does not know the device at all."""

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (70, 100))

    def device_bytes(*gpus: FakeGpu) -> tuple[int, bool]:
        monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(gpus))
        return memory.device_bytes()

    def listing(size: int | None) -> list[Any]:
        return [[running(os.getpid(), size)]]

    assert device_bytes(whole_gpu(UUID, ComputeRunningProcesses=listing(5))) == (5, True)
    assert device_bytes(whole_gpu(UUID, ComputeRunningProcesses=listing(None))) == (30, False)
    assert device_bytes(whole_gpu(UUID, ComputeRunningProcesses=NVMLError_NoPermission())) == (30, False)
    other = whole_gpu("22222222-0000-0000-0000-000000000000", ComputeRunningProcesses=listing(5))
    assert device_bytes(other) == (30, False)
    split = whole_gpu("22222222-0000-0000-0000-000000000000", ComputeRunningProcesses=listing(7))
    split.instances = (FakeGpu(f"MIG-{UUID}", {"ComputeRunningProcesses": listing(6)}),)
    assert device_bytes(split) == (6, True), "the instance's, not the whole GPU's"


def test_a_mig_instance_has_the_clocks_of_its_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    split = whole_gpu("22222222-0000-0000-0000-000000000000", ClockInfo=1755)
    split.instances = (FakeGpu(f"MIG-{UUID}", {"ComputeRunningProcesses": [[running(os.getpid())]]}),)
    facts = watched(monkeypatch, split).facts
    assert (facts["sm_mhz"], facts["processes"]) == (1755, 1)


def test_a_gpu_that_nvml_does_not_know_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert watched(monkeypatch, whole_gpu("another")) == GpuState()


def test_a_stranger_seen_once_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    own, stranger = running(os.getpid()), running(1)
    monkeypatch.setattr(device, "_parent_of_worker", lambda pid: {1: 0}.get(pid, 5))
    state = watched(monkeypatch, whole_gpu(UUID, ComputeRunningProcesses=[[own], [own, stranger], [own]]))
    assert state.other_processes == (1,)
    (alarm,) = state.alarms()
    assert alarm.code == "gpu-shared"


def test_a_cpu_is_not_watched() -> None:
    with watching("cpu") as watch:
        watch.begin()
        watch.read()
        assert watch.end() == GpuState()


def parent_of(pid: int) -> int:
    return PARENTS[pid]


def test_a_worker_alone() -> None:
    assert foreign_processes([10], 10, parent_of) == ()


def test_workers_of_one_comparison_are_not_foreign() -> None:
    assert foreign_processes([10, 11], 10, parent_of) == ()


def test_somebody_elses_process_is_foreign() -> None:
    assert foreign_processes([11, 20, 10], 10, parent_of) == (20,)


def test_nothing_is_known_where_a_container_has_its_own_process_ids() -> None:
    assert foreign_processes([4711, 4712], 10, parent_of) == ()
