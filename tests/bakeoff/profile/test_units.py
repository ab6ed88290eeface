"""Units and steps of a session: rates, kinds, what is kept in full, and that memory stays flat."""

import gc
import random
import sys
import tracemalloc
from collections import Counter
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from recording import Clock, codes, make_profiler, opened, own_times, record_of

from bakeoff.profile.units import FIRST_UNITS, LAST_UNITS, MOST_PHASE_SERIES, MOST_STEPS
from bakeoff.record.account import rates


@pytest.mark.parametrize("seed", range(25))
def test_rates_are_exact_for_any_blocks_and_steps(seed: int, tmp_path: Path) -> None:
    chance, clock = random.Random(seed), Clock()
    steps, opening, frames = chance.randrange(1, 9), chance.randrange(0, 20), chance.randrange(1, 20)
    blocks, steady_ns = chance.randrange(2, 40), 0
    with opened(make_profiler(tmp_path, clock)) as session:
        for block in range(blocks):
            started = clock.ns
            with session.unit(frames=frames if block else opening, kind="steady" if block else "opening"):
                for index in range(steps):
                    with session.phase("denoise"), session.step(index):
                        clock.ns += chance.randrange(1, 10**8)
            steady_ns += clock.ns - started if block else 0
            clock.ns += chance.randrange(10**7)
    found = rates(record_of(session))
    assert found.fps == pytest.approx(float(Fraction((blocks - 1) * frames * 10**9, steady_ns)), rel=1e-15)
    assert found.bps == pytest.approx(float(Fraction((blocks - 1) * 10**9, steady_ns)), rel=1e-15)


def test_a_unit_that_torch_compiled_in_is_compiling_whatever_it_was_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames: Counter[str] = Counter()
    utils = SimpleNamespace(counters={"frames": frames})
    monkeypatch.delitem(sys.modules, "torch._dynamo.utils", raising=False)
    clock = Clock()
    with opened(make_profiler(tmp_path, clock)) as session:
        for index in range(6):
            with session.unit(frames=1):
                clock.ms(10)
                if index == 0:  # torch.compile imports it when it is first used
                    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", utils)
                if index in (0, 3):
                    frames["total"] += 1
                    clock.ms(1_000)
    record = record_of(session)
    assert {(each.kind, each.count) for each in record.units} == {("compiling", 2), ("steady", 4)}
    assert [unit.kind for unit in record.spans] == ["compiling", "steady", "steady", "compiling", "steady", "steady"]
    assert rates(record).fps == 100.0


def test_phases_by_unit_hold_their_steps_and_not_the_phases_within(tmp_path: Path) -> None:
    clock = Clock()
    with opened(make_profiler(tmp_path, clock)) as session, session.unit():
        clock.ns += 1
        with session.phase("denoise"):
            clock.ns += 10
            with session.step(0):
                clock.ns += 20
                with session.phase("wm"):
                    clock.ns += 40
            with session.collective("all_reduce"):
                clock.ns += 80
        with session.step(1):
            clock.ns += 160
    series = {each.name: [point.mean for point in each.points] for each in record_of(session).series}
    assert series == {
        "unit": [311],
        "phase.denoise": [30],
        "phase.wm": [40],
        "phase.all_reduce": [80],
        "phase.step": [160],
    }


def test_the_first_and_the_last_units_are_kept_in_full(tmp_path: Path) -> None:
    clock = Clock()
    with opened(make_profiler(tmp_path, clock)) as session:
        clock.ns += 1_000
        for _ in range(100):
            with session.unit(frames=2):
                clock.ns += 1
                with session.phase("a"), session.step(0):
                    clock.ns += 8
                clock.ns += 1
    spans = record_of(session).spans
    assert [unit.index for unit in spans] == [*range(FIRST_UNITS), *range(100 - LAST_UNITS, 100)]
    last = spans[-1]
    assert (last.start_ns, last.ns, last.frames) == (1_000 + 99 * 10, 10, 2)
    assert [(each.name, each.kind, each.depth, each.start_ns - last.start_ns, each.ns) for each in last.spans] == [
        ("a", "phase", 1, 1, 8),
        ("step", "step", 2, 1, 8),
    ]


def test_a_unit_within_a_unit_counts_once(tmp_path: Path) -> None:
    clock = Clock()
    with opened(make_profiler(tmp_path, clock)) as session:
        for _ in range(2):
            with session.unit(frames=3):
                clock.ns += 1
                with session.unit(frames=100), session.phase("a"):
                    clock.ns += 10
    record = record_of(session)
    (totals,) = record.units
    assert (totals.count, totals.frames, totals.wall_ns) == (2, 6, 22)
    assert own_times(record) == {(): 0, ("unit",): 2, ("unit", "unit"): 0, ("unit", "unit", "a"): 20}
    assert codes(record) == ["misused"]


@pytest.mark.parametrize("wrong", [-1, 1.5, float("nan"), "three", None, [3], 10**30])
def test_frames_that_are_no_amount_count_as_none_and_are_told(wrong: Any, tmp_path: Path) -> None:
    with opened(make_profiler(tmp_path, Clock())) as session, session.unit(frames=wrong):
        pass
    record = record_of(session)
    assert (record.units[0].count, record.units[0].frames) == (1, 0)
    assert codes(record) == ["misused"]
    assert "frames" in record.findings[0].text


def test_a_timestep_on_a_device_is_not_waited_for(tmp_path: Path) -> None:
    class OnDevice:
        device = "cuda:0"

        def __float__(self) -> float:
            raise AssertionError("read from the device")

    class OnHost(OnDevice):
        device = "cpu"

        def __float__(self) -> float:
            return 500.0

    with opened(make_profiler(tmp_path, Clock())) as session:
        for index, timestep in enumerate((OnDevice(), OnHost(), 250)):
            with session.step(index, timestep):  # type: ignore[arg-type]
                pass
    record = record_of(session)
    assert [step.timestep for step in record.steps] == [None, 500.0, 250.0]
    assert codes(record) == ["misused"]


def test_steps_and_series_without_end_do_not_fill_memory(tmp_path: Path) -> None:
    clock = Clock()
    with opened(make_profiler(tmp_path, clock)) as session, session.unit():
        for index in range(MOST_STEPS + 5):
            with session.step(index):
                clock.ms(10)  # in no time at all, recording would be dear, and drop its steps
        for index in range(MOST_PHASE_SERIES + 5):
            with session.phase(f"p{index}"):
                pass
    record = record_of(session)
    assert len(record.steps) == MOST_STEPS
    assert len(record.series) == 1 + MOST_PHASE_SERIES
    assert codes(record) == ["left-out"]
    texts = " ".join(finding.text for finding in record.findings)
    assert "step indices are kept" in texts
    assert f"{MOST_PHASE_SERIES} phases' times by unit are kept" in texts


def test_2000_units_take_no_more_memory_than_400(tmp_path: Path) -> None:
    clock = Clock()
    chance = random.Random(0)
    held = {}
    with opened(make_profiler(tmp_path, clock, max_data_points=200)) as session:
        tracemalloc.start()
        try:
            for unit in range(2_000):
                with session.unit(frames=3, latents=1):
                    with session.phase("denoise"):
                        for index in range(4):
                            with session.step(index, timestep=1000.0 - index):
                                clock.ns += chance.randrange(10**6, 2 * 10**6)
                    with session.phase("decode"):
                        clock.ns += chance.randrange(10**6, 2 * 10**6)
                session.sample("queue", unit % 7)
                if unit in (399, 1_999):
                    gc.collect()
                    held[unit] = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
    record = record_of(session)
    assert held[1_999] - held[399] < 40_000
    assert record.units[0].count == 2_000
    assert sum(own_times(record).values()) == record.ns
    names = ["unit", "phase.denoise", "phase.decode", "queue"]
    assert [(each.name, each.count) for each in record.series] == [(name, 2_000) for name in names]


def test_steps_without_an_index_are_counted_within_the_range_that_they_are_in(tmp_path: Path) -> None:
    clock = Clock()
    with opened(make_profiler(tmp_path, clock)) as session:
        for _ in range(2):
            with session.unit(frames=1):
                for timestep in (1000, 500):
                    with session.phase("denoise"):  # each has its own count
                        with session.step(timestep=timestep):
                            clock.ns += 10
                        with session.step(timestep=timestep):
                            clock.ns += 20
                with session.step():
                    clock.ns += 1
        for _ in range(3):
            with session.step():
                clock.ns += 2
        with session.step(7):
            pass
        again = session.step()
        with again:
            pass
        with again:  # which is told, and no further step
            pass
    steps = record_of(session).steps
    assert [(each.index, each.calls, each.ns) for each in steps] == [
        (0, 4 + 2 + 1, 40 + 2 + 2), (1, 4 + 1, 80 + 2), (2, 1, 2), (3, 1, 0), (7, 1, 0),
    ]  # fmt: skip
    assert codes(record_of(session)) == ["misused"]
