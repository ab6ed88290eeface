"""What is said of GPUs that were watched: energy, throttling, which device, and what it did not tell."""

import sys
from types import SimpleNamespace

import pytest
from fake_nvml import FakeGpu, FakeNvml, NVMLError_GpuIsLost, whole_gpu
from monitors import SECOND, Clock, series_of, watch_gpus

from bakeoff.machine import gpus
from bakeoff.machine.gpus import nvml
from bakeoff.monitor.nvml import GpuProbe
from bakeoff.monitor.request import GpuQuantity
from bakeoff.record.monitor import DeviceEnergy

ONE, TWO, THREE, PART, OTHER_PART = (f"{digit * 8}-0000-0000-0000-000000000000" for digit in "12345")
UUID = f"GPU-{ONE}"
EVERYTHING: tuple[GpuQuantity, ...] = (
    "memory", "busy", "sm_active", "temperature", "power", "clocks", "throttle"
)  # fmt: skip
QUERIES = {
    "memory": {"MemoryInfo"},
    "busy": {"UtilizationRates"},
    "sm_active": {"GpmSmUtil"},
    "temperature": {"Temperature"},
    "power": {"PowerUsage", "TotalEnergyConsumption"},
    "clocks": {"ClockInfo"},
    "throttle": {"CurrentClocksEventReasons"},
}


def steady_gpu(clock: Clock, watts: float, period_s: float = 0.1, uuid: str = ONE) -> FakeGpu:
    """One that draws the same power all the time, and whose energy counter moves once in a period."""

    def counter_mj() -> int:
        steps = clock.now_ns // round(period_s * SECOND)
        return 7_000_000 + round(steps * period_s * watts * 1e3)

    return whole_gpu(uuid, PowerUsage=round(watts * 1e3), TotalEnergyConsumption=counter_mj)


def energy_of(gpu: FakeGpu, clock: Clock, seconds: float) -> DeviceEnergy:
    (energy,) = watch_gpus(clock, FakeNvml([gpu]), [UUID], ["power"], seconds).energy
    return energy


def test_five_minutes_at_100_watts_are_8_watt_hours_and_a_third() -> None:
    """By the counter, which moves every 100 ms, and by the integral of power."""
    clock = Clock()
    energy = energy_of(steady_gpu(clock, 100), clock, 300)
    assert energy.device == UUID
    assert energy.counter_mj is not None
    assert energy.integral_mj is not None
    assert energy.counter_mj / 3.6e6 == pytest.approx(8.33, rel=0.01)
    assert energy.integral_mj / 3.6e6 == pytest.approx(8.33, rel=0.01)
    assert energy.mj == energy.counter_mj
    assert energy.note == ""


def test_a_counter_does_not_tell_the_energy_of_less_than_its_period() -> None:
    clock = Clock()
    energy = energy_of(steady_gpu(clock, 100), clock, 0.04)
    assert energy.counter_mj is None
    assert energy.integral_mj == pytest.approx(4_000)
    assert energy.mj == energy.integral_mj
    assert "steps of 100 ms" in energy.note
    assert "40 ms" in energy.note


def test_a_counter_that_moves_seldom_is_found_out() -> None:
    """Every five seconds: nothing was seen of it in three, and twenty are known to a quarter."""
    clock = Clock(SECOND)
    assert energy_of(steady_gpu(clock, 100, period_s=5), clock, 3).note == "its counter did not move in 3 s"
    clock = Clock(SECOND)
    energy = energy_of(steady_gpu(clock, 100, period_s=5), clock, 20)
    assert energy.counter_mj == pytest.approx(2_000_000)
    assert "right to 22%: it moves in steps of 4.5 s" in energy.note


def test_a_counter_that_starts_again_is_unknown() -> None:
    clock = Clock()
    counter = [9_000_000, 9_050_000, 9_100_000, 20_000, 70_000, 9_900_000]
    energy = energy_of(whole_gpu(ONE, PowerUsage=100_000, TotalEnergyConsumption=counter), clock, 5)
    assert energy.counter_mj is None
    assert energy.integral_mj == pytest.approx(500_000)
    assert energy.note == "its counter was reset after 1.5 s"


def test_a_counter_and_an_integral_that_contradict_each_other_are_both_shown() -> None:
    """187 J against 327 J within five seconds, as in ml-energy/zeus#181."""
    clock = Clock()
    gpu = steady_gpu(clock, 187 / 5)
    gpu.facts["PowerUsage"] = round(327e3 / 5)
    energy = energy_of(gpu, clock, 5)
    assert energy.counter_mj == pytest.approx(187_000, rel=0.01)
    assert energy.integral_mj == pytest.approx(327_000, rel=0.01)
    assert energy.note == (
        "its counter says 187 J and the integral of its power 327 J, which differ by 43%: neither is reliable"
    )


def test_the_third_gpu_is_watched_where_it_alone_is_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever stands first in NVML's list, and whatever the others do."""
    library = FakeNvml([whole_gpu(uuid, Temperature=degrees) for uuid, degrees in ((ONE, 90), (TWO, 80), (THREE, 40))])
    monkeypatch.setitem(sys.modules, "pynvml", library)
    monkeypatch.setattr(gpus, "_told_by_driver", lambda: None)
    monkeypatch.setenv(gpus.VISIBLE, "2")
    devices = [str(facts["uuid"]) for facts in gpus.read_gpus()]
    assert devices == [f"GPU-{THREE}"]
    library.asked.clear()
    report = watch_gpus(Clock(), library, devices, EVERYTHING, 3)
    assert series_of(report, "gpu.temperature").greatest == 40
    assert {series.source for series in report.series} == {f"GPU-{THREE}"}
    assert {uuid for _, uuid in library.asked} == {f"GPU-{THREE}"}


@pytest.mark.parametrize("quantity", EVERYTHING)
def test_a_quantity_asks_for_itself_alone(quantity: GpuQuantity) -> None:
    library = FakeNvml([whole_gpu(ONE)])
    watch_gpus(Clock(), library, [UUID], [quantity], 3)
    assert {query for query, _ in library.asked} == QUERIES[quantity]


def test_values_have_the_units_that_their_series_say() -> None:
    used = SimpleNamespace(total=80 << 30, free=0, used=3 << 30)
    gpu = whole_gpu(ONE, MemoryInfo=used, PowerUsage=312_500, ClockInfo=1755, Temperature=61)
    report = watch_gpus(Clock(), FakeNvml([gpu]), [UUID], EVERYTHING, 3)
    told = {series.name: (series.mean, series.unit, series.source) for series in report.series}
    assert told == {
        "gpu.memory": (3 * 1024, "MiB", UUID),
        "gpu.busy": (37, "%", UUID),
        "gpu.sm_active": (12.5, "%", UUID),
        "gpu.temperature": (61, "C", UUID),
        "gpu.power": (312.5, "W", UUID),
        "gpu.clock": (1755, "MHz", UUID),
    }
    assert report.throttled == ()
    assert report.missing == ()


def test_sm_activity_is_of_the_time_since_the_sample_before() -> None:
    """So the first sample has none, and samples that follow each other within 100 ms have none of their own."""
    gpu = whole_gpu(ONE, GpmSmUtil=[99.0, 10.0, 20.0, 30.0])
    series = series_of(watch_gpus(Clock(), FakeNvml([gpu]), [UUID], ["sm_active"], 3, interval_s=1.0), "gpu.sm_active")
    assert (series.count, series.least, series.greatest) == (3, 10.0, 30.0)
    often = watch_gpus(Clock(), FakeNvml([whole_gpu(ONE)]), [UUID], ["sm_active"], 3, interval_s=0.05)
    assert series_of(often, "gpu.sm_active").count == 20


def test_reasons_for_lower_clocks_are_shares_of_samples() -> None:
    gpu = whole_gpu(ONE, CurrentClocksEventReasons=[0, 0x04, 0x04 | 0x40, 0x01, 0x01])
    report = watch_gpus(Clock(), FakeNvml([gpu]), [UUID], ["throttle"], 4.5)
    shares = {time.reason: time.share for time in report.throttled}
    assert shares == {"power cap": pytest.approx(0.2), "hardware thermal slowdown": pytest.approx(0.1)}


def test_a_mig_instance_has_its_own_memory_and_its_gpus_power() -> None:
    clock = Clock()
    memory = SimpleNamespace(total=10 << 30, free=9 << 30, used=1 << 30)
    split = steady_gpu(clock, 400)
    split.instances = tuple(
        FakeGpu(f"MIG-{uuid}", {"MemoryInfo": memory, "GpmSmUtil": 70.0, "GpuInstanceId": place})
        for place, uuid in enumerate((PART, OTHER_PART))
    )
    both = [instance.uuid for instance in split.instances]
    report = watch_gpus(clock, FakeNvml([split]), both, EVERYTHING, 10)
    for uuid in both:
        assert series_of(report, "gpu.memory", uuid).mean == 1024
        assert series_of(report, "gpu.sm_active", uuid).mean == 70
        assert series_of(report, "gpu.power", uuid).mean == 400
        told = [text for text in report.missing if text.startswith(f"{uuid} is a part of {UUID}")]
        assert len(told) == 1, "power, clocks and the like are of the whole GPU"
        assert f"gpu.busy of {uuid} is unknown: NVML says 'NVMLError_NotSupported'" in report.missing
    (energy,) = report.energy
    assert energy.device == UUID, "once, though two of its parts are watched"
    assert energy.mj == pytest.approx(4_000_000, rel=0.01)
    assert "whole GPU" in energy.note


def test_a_driver_that_dies_leaves_what_was_seen() -> None:
    clock = Clock()
    gpu = steady_gpu(clock, 100)
    dies_ns = clock.now_ns + 12 * SECOND
    lost = NVMLError_GpuIsLost()
    for name, value in tuple(gpu.facts.items()):
        gpu.facts[name] = lambda value=value: lost if clock.now_ns > dies_ns else value() if callable(value) else value
    report = watch_gpus(clock, FakeNvml([gpu]), [UUID], EVERYTHING, 60)
    assert series_of(report, "gpu.temperature").count == 25
    assert series_of(report, "gpu.memory").greatest == 1024
    (missing,) = report.missing
    assert "gpu.memory" in missing
    assert "gpu.power" in missing
    assert "unknown after 12.0 s: NVML says 'NVMLError_GpuIsLost'" in missing
    (energy,) = report.energy
    assert energy.mj == pytest.approx(1_200_000, rel=0.01)
    assert "of the first 12.0 s" in energy.note
    assert report.cost is not None


def test_a_question_that_is_sometimes_refused_is_asked_again() -> None:
    lost = NVMLError_GpuIsLost()
    gpu = whole_gpu(ONE, Temperature=[50, lost, lost, 51, 52])
    report = watch_gpus(Clock(), FakeNvml([gpu]), [UUID], ["temperature"], 4.5)
    assert series_of(report, "gpu.temperature").count == 8
    assert report.missing == ()


def test_a_device_that_nvml_does_not_know_is_said() -> None:
    report = watch_gpus(Clock(), FakeNvml([whole_gpu(ONE)]), [f"GPU-{TWO}", UUID], ["memory"], 2)
    assert [series.source for series in report.series] == [UUID]
    assert report.missing == (f"GPU-{TWO} was not watched: NVML knows no device of that UUID",)


def test_without_a_driver_there_is_a_sentence_and_no_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml([], driver=None))
    with nvml() as library:
        probe = GpuProbe(library, [UUID], EVERYTHING)
        assert list(probe.sample(0)) == []
    assert probe.report().missing == (f"{UUID} was not watched: no NVIDIA driver answers",)
