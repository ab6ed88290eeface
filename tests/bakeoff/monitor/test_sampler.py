"""When samples are taken, what they may cost, and where they are kept."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from disk import largest_file
from fake_nvml import FakeNvml, whole_gpu
from monitors import SECOND, Clock, run, series_of

from bakeoff.monitor.nvml import GpuProbe
from bakeoff.monitor.request import Probe, Reading
from bakeoff.monitor.sampler import Group, RawFile, Sampler
from bakeoff.record.monitor import Monitored


@dataclass
class Counting:
    """A probe whose values are 1, 2, 3, and whose samples take some time."""

    clock: Clock
    cost_s: float = 0.0
    times_ns: list[int] = field(default_factory=list)

    def sample(self, now_ns: int) -> Iterator[Reading]:
        self.times_ns.append(now_ns)
        self.clock.pass_s(self.cost_s)
        yield Reading("cpu.load", "machine", float(len(self.times_ns)))

    def report(self) -> Monitored:
        return Monitored()


@dataclass
class Failing:
    """A probe that fails in a way that nobody foresaw, from one sample on."""

    good: int
    in_report: bool = False

    def sample(self, _now_ns: int) -> Iterable[Reading]:
        self.good -= 1
        if self.good < 0:
            raise LookupError("what now")
        return [Reading("cpu.memory", "machine", 5.0)]

    def report(self) -> Monitored:
        if self.in_report:
            raise ArithmeticError("nor this")
        return Monitored()


def sampler_of(clock: Clock, *probes: Probe, interval_s: float = 1.0, raw: RawFile | None = None) -> Sampler:
    return Sampler([Group("cpu", probes, interval_s)], 2_000, raw, clock, cpu_clock=lambda: 5_000)


def test_samples_do_not_drift_however_late_each_is() -> None:
    """Samples of 1 ms that begin 3 ms late, a thousand times."""
    clock = Clock()
    probe = Counting(clock, cost_s=0.001)
    report = run(sampler_of(clock, probe), clock, 1000, late_s=0.003)
    first_ns = probe.times_ns[0]
    assert len(probe.times_ns) == 1001
    for place, t_ns in enumerate(probe.times_ns[1:-1], start=1):
        assert t_ns - first_ns == place * SECOND + 3_000_000
    assert report.cost is not None
    assert report.cost.samples == 1001
    assert report.cost.wall_ns == pytest.approx(1000 * SECOND, rel=1e-4)


def test_times_that_were_missed_are_left_out() -> None:
    """One sample blocks for five intervals: the next one comes at its own time, and no burst follows."""
    clock = Clock(0)
    probe = Counting(clock)
    sampler = sampler_of(clock, probe)
    run_ns = []
    for block_s in (0.0, 5.4, 0.0, 0.0):
        probe.cost_s = block_s
        wait_ns = sampler.sample_due()
        assert wait_ns is not None
        run_ns.append(probe.times_ns[-1])
        clock.now_ns += wait_ns
    assert run_ns == [0, 1 * SECOND, 7 * SECOND, 8 * SECOND]


def test_a_query_of_5_ms_is_asked_less_often_than_every_100_ms() -> None:
    """Half a percent of the interval is what it may take: that is so at 1.6 s, and the report says so."""
    clock = Clock()

    def slow_power() -> int:
        clock.pass_s(0.005)
        return 100_000

    gpu = whole_gpu("11111111-0000-0000-0000-000000000000", PowerUsage=slow_power)
    probe = GpuProbe(FakeNvml([gpu]), [gpu.uuid], ["power"])
    report = run(Sampler([Group("gpu", [probe], 0.1)], 2_000, clock=clock), clock, 60)
    assert report.cost is not None
    assert report.cost.asked_s == {"gpu": 0.1}
    assert report.cost.ran_s == {"gpu": 1.6}
    assert report.cost.sample_ns["gpu"] == pytest.approx(5_000_000, rel=0.01)
    assert report.cost.note == (
        "gpu: one sample took 5 ms, which is more than 0.5% of the interval, so it was lengthened to 1.6 s"
    )
    assert report.cost.samples == 20 + 33 + 1, "four times five, then one in 1.6 s, and one at the end"
    assert series_of(report, "gpu.power").mean == 100


def test_a_cheap_query_and_a_single_slow_one_keep_the_interval() -> None:
    clock = Clock()
    probe = Counting(clock, cost_s=0.0004)
    sampler = sampler_of(clock, probe, interval_s=0.1)
    for place in range(100):
        probe.cost_s = 0.03 if place % 10 == 0 else 0.0004
        wait_ns = sampler.sample_due()
        assert wait_ns is not None
        clock.now_ns += wait_ns
    report = sampler.finish()
    assert report.cost is not None
    assert (report.cost.ran_s, report.cost.note) == ({"cpu": 0.1}, "")


def test_waiting_for_a_cpu_is_no_cost_where_cpu_time_is_what_counts() -> None:
    """Each sample takes 20 ms by the wall, of which it runs 1 ms."""
    clock = Clock()
    probe = Counting(clock, cost_s=0.02)
    group = Group("cpu", [probe], 1.0, cost_clock=lambda: len(probe.times_ns) * 1_000_000)
    report = run(Sampler([group], 2_000, clock=clock), clock, 30)
    assert report.cost is not None
    assert (report.cost.ran_s, report.cost.note) == ({"cpu": 1.0}, "")
    assert report.cost.sample_ns["cpu"] == pytest.approx(1_000_000, rel=0.01)
    assert len(probe.times_ns) == 31


def test_the_latest_values_are_those_of_the_first_device() -> None:
    clock = Clock()
    uuids = [f"GPU-{digit * 8}-0000-0000-0000-000000000000" for digit in "12"]
    library = FakeNvml([whole_gpu(uuid[4:], Temperature=40 + place) for place, uuid in enumerate(uuids)])
    sampler = Sampler([Group("gpu", [GpuProbe(library, uuids, ["temperature"])], 0.5)], 2_000, clock=clock)
    assert sampler.latest() == {}
    sampler.sample_due()
    assert sampler.latest() == {"gpu.temperature": 40, f"gpu.temperature@{uuids[1]}": 41}


def test_a_probe_that_fails_ends_alone() -> None:
    clock = Clock()
    probe = Counting(clock)
    report = run(sampler_of(clock, Failing(3), probe), clock, 10)
    assert series_of(report, "cpu.memory").count == 3
    assert series_of(report, "cpu.load").count == 11
    assert report.missing == ("Failing of group cpu ended: LookupError: what now",)
    assert report.cost is not None


def test_values_that_are_not_finite_are_left_out() -> None:
    clock = Clock()
    gpu = whole_gpu("11111111-0000-0000-0000-000000000000", GpmSmUtil=[1.0, 20.0, float("nan"), 30.0])
    probe = GpuProbe(FakeNvml([gpu]), [gpu.uuid], ["sm_active"])
    report = run(Sampler([Group("gpu", [probe], 0.5)], 2_000, clock=clock), clock, 1.5)
    assert series_of(report, "gpu.sm_active").mean == 25
    (missing,) = report.missing
    assert "not finite" in missing


def watched_with(path: Path) -> Monitored:
    clock = Clock()
    return run(sampler_of(clock, Counting(clock), Failing(999), raw=RawFile(str(path))), clock, 99)


def test_a_raw_file_has_every_value_of_every_sample(tmp_path: Path) -> None:
    path = tmp_path / "new" / "raw.jsonl"
    report = watched_with(path)
    head, *lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert set(head) == {"monotonic_ns", "wall_ns"}
    assert [line["value"] for line in lines[::2]] == list(range(1, 101))
    assert lines[2] == {"t_ns": 37_000_000 + SECOND, "name": "cpu.load", "source": "machine", "value": 2.0}
    assert [line["name"] for line in lines[1::2]] == ["cpu.memory"] * 100
    assert report.missing == ()


def test_a_full_disk_costs_the_raw_file_and_not_the_samples(tmp_path: Path) -> None:
    path = tmp_path / "raw.jsonl"
    with largest_file(1500):
        report = watched_with(path)
    assert series_of(report, "cpu.load").count == 100
    (missing,) = report.missing
    assert str(path) in missing
    assert "File too large" in missing
    whole = [json.loads(line) for line in path.read_text().splitlines()]
    assert 5 < len(whole) < 30, "whole lines, up to the limit"
