"""Viewers, percentiles, droop and energy of sustained runs, against closed forms and simulations of random traces."""

import random
from dataclasses import replace
from itertools import accumulate, pairwise

import pytest
from pipeline_records import measured, pipeline_record, units

from bakeoff.record.account import account
from bakeoff.record.deadline import (
    FEWEST_OF,
    Figures,
    FrameEnergy,
    Stamp,
    Timeline,
    droop,
    figures,
    last_third,
    longest_gap_ns,
    percentile,
    stamps,
    view,
)
from bakeoff.record.monitor import DeviceEnergy, MonitorCost, Monitored
from bakeoff.record.pipeline import PipelineRecord, Sustained

MS = 1_000_000
HOW = Sustained(25.0, False, 1)


def laid(times_ms: list[float], frames: int = 1) -> list[Stamp]:
    """Units end to end."""
    line = Timeline(paced=False)
    return [line.add(0, round(ms * MS), frames, 0) for ms in times_ms]


def test_a_mix_that_is_faster_than_the_rate_is_never_late() -> None:
    seen = view(laid([39.0] * 100), 25.0)
    assert (seen.misses, seen.stalls, seen.stalled_ns, seen.least_buffer_ns) == (0, 0, 0, 0)
    assert seen.latency_ns == MS * 99 / 2, "each unit waits 1 ms longer than the one before"


@pytest.mark.parametrize("frames", [1, 3])
def test_a_mix_that_is_slower_than_the_rate_falls_behind_by_the_same_time_a_unit(frames: int) -> None:
    seen = view(laid([42.0 * frames] * 100, frames), 25.0)
    behind = 2 * frames * MS
    assert (seen.units, seen.misses, seen.stalls) == (100, 99, 99)
    assert (seen.longest_stall_ns, seen.stalled_ns, seen.least_buffer_ns) == (behind, 99 * behind, 99 * behind)
    assert seen.latency_ns == 0


def test_one_slow_unit_stalls_once_and_makes_all_later_ones_late_if_nothing_catches_up() -> None:
    slow = laid([40.0] * 60 + [140.0] + [40.0] * 39)
    seen = view(slow, 25.0)
    assert (seen.misses, seen.stalls, seen.longest_stall_ns, seen.stalled_ns) == (40, 1, 100 * MS, 100 * MS)
    assert seen.least_buffer_ns == 100 * MS
    assert view(slow, 25.0, buffer=4).misses == 0, "three units more are 120 ms"
    assert view(slow, 25.0, buffer=3).misses == 40


def test_one_slow_unit_is_one_late_unit_where_the_others_are_ahead() -> None:
    seen = view(laid([30.0] * 3 + [75.0] + [10.0] * 20), 25.0)
    assert (seen.misses, seen.stalls, seen.longest_stall_ns) == (1, 1, 15 * MS)


def random_trace(draw: random.Random) -> tuple[list[Stamp], float, int]:
    """Units with gaps between them, a rate whose period is a whole number of nanoseconds, and a buffer."""
    now, found = draw.randrange(MS), []
    for _ in range(draw.randrange(1, 40)):
        submit = now + draw.choice((0, draw.randrange(20 * MS)))
        now = submit + draw.randrange(1, 90 * MS)
        found.append(Stamp(submit, now, draw.randrange(4)))
    return found, draw.choice((16.0, 20.0, 25.0, 40.0, 50.0)), draw.randrange(1, len(found) + 1)


def is_smooth(found: list[Stamp], period_ns: int, start_ns: int) -> bool:
    """Play the frames one after the other from a start: whether each unit is there when its first frame is shown."""
    now = start_ns
    for stamp in found:
        if stamp.ready_ns > now:
            return False
        now += stamp.frames * period_ns
    return True


def test_viewers_of_random_traces_see_what_a_playback_step_by_step_sees() -> None:
    draw = random.Random(4)
    for _ in range(1000):
        found, fps, buffer = random_trace(draw)
        seen, period = view(found, fps, buffer), int(1e9 / fps)
        start = found[buffer - 1].ready_ns
        shown, late, pauses = list[int](), 0, list[int]()
        deadline = clock = start
        for stamp in found:
            late += stamp.ready_ns > deadline
            pauses.append(max(clock, stamp.ready_ns) - clock)
            shown.append(clock := max(clock, stamp.ready_ns))
            deadline += stamp.frames * period
            clock += stamp.frames * period
        assert (seen.units, seen.misses) == (len(found), late)
        assert seen.stalls == sum(pause > 0 for pause in pauses)
        assert (seen.longest_stall_ns, seen.stalled_ns) == (max(pauses), sum(pauses))
        waited = [at - stamp.ready_ns for at, stamp in zip(shown, found, strict=True)]
        assert seen.latency_ns == round(sum(waited) / len(found))
        first = found[0].ready_ns
        assert is_smooth(found, period, first + seen.least_buffer_ns)
        assert not seen.least_buffer_ns or not is_smooth(found, period, first + seen.least_buffer_ns - 1)


@pytest.mark.parametrize(("fps", "buffer"), [(0.0, 1), (-1.0, 1), (24.0, 0), (24.0, 4)])
def test_a_viewer_without_a_rate_or_a_full_buffer_is_refused(fps: float, buffer: int) -> None:
    with pytest.raises(ValueError, match="3 units"):
        view(laid([1.0] * 3), fps, buffer)


def test_percentiles_of_random_times_are_the_least_times_that_enough_units_do_not_exceed() -> None:
    draw = random.Random(5)
    for _ in range(200):
        times = [draw.randrange(1, 10 ** draw.randrange(1, 10)) for _ in range(draw.randrange(1, 2500))]
        for share, needs in FEWEST_OF.items():
            found = percentile(times, share)
            assert found.needs == needs
            if len(times) < needs:
                assert (found.ns, found.low_ns, found.high_ns) == (None, None, None)
                continue
            assert found.ns in times
            assert sum(time < found.ns for time in times) < share * len(times) - 1e-9
            assert sum(time <= found.ns for time in times) >= share * len(times) - 1e-9
            assert found.low_ns is None or found.low_ns <= found.ns
            assert found.high_ns is None or found.high_ns >= found.ns


@pytest.mark.parametrize(("share", "fewest"), [(0.5, 1), (0.9, 10), (0.99, 100), (0.999, 1000)])
def test_a_percentile_takes_so_many_units_that_it_is_not_the_slowest_one(share: float, fewest: int) -> None:
    times = [*range(1, fewest), 10**6]
    assert percentile(times, share).ns == (fewest - 1 or 10**6)
    if fewest > 1:
        assert percentile(times[1:], share).ns is None


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99, 0.999])
def test_intervals_of_percentiles_hold_the_true_value_in_19_of_20_runs(share: float) -> None:
    draw, held = random.Random(6), 0
    for _ in range(400):
        found = percentile([draw.randrange(10**6) for _ in range(1500)], share)
        low, high = found.low_ns or 0, 10**6 if found.high_ns is None else found.high_ns
        held += low <= share * 10**6 <= high
    assert held >= 0.92 * 400


def test_droop_compares_the_last_minute_with_the_second() -> None:
    times = [2000.0] * 30 + [1000.0] * 60 + [1500.0] * 40 + [1100.0] * 60
    found = droop(laid(times))
    assert found is not None
    assert found.ratio == pytest.approx(1.1)
    assert found.low == pytest.approx(1.1)
    assert droop(laid([1000.0] * 179)) is None, "less than three minutes"
    assert droop(laid([20_000.0] * 30)) is None, "three units a minute"


@pytest.mark.parametrize(("count", "last"), [(1, 1), (2, 1), (3, 1), (5, 2), (6, 2), (180, 60)])
def test_a_run_of_any_length_has_a_last_third(count: int, last: int) -> None:
    assert [unit.ns for unit in last_third(laid([*range(1, count + 1)]))] == [
        place * MS for place in range(count - last + 1, count + 1)
    ]


def test_units_that_keep_up_from_the_start_on_do_not_if_their_last_third_does_not() -> None:
    def of(*times_ms: float) -> Figures:
        made = units([{"denoise": ms} for ms in times_ms], ["steady"] * len(times_ms))
        found = figures(pipeline_record(made=measured(units=made), sustained=HOW))
        assert found is not None
        return found

    slower = of(20.0, 20.0, 20.0, 20.0, 50.0, 50.0)
    assert (round(slower.busy_fps, 2), slower.last_third_fps) == (33.33, 20.0)
    assert [slower.keeps_up(fps) for fps in (20.0, 25.0)] == [True, False]
    assert of(20.0, 20.0, 50.0).last_third_fps == 20.0, "a third of one unit has no other to judge by"
    assert of(*[20.0] * 8, 900.0).last_third_fps == 50.0, "one slow unit is no trend"
    assert of(*[20.0] * 7, 900.0, 900.0).last_third_fps < 2.5


def test_the_longest_gap_is_between_the_ends_of_two_units() -> None:
    assert longest_gap_ns([Stamp(0, 10, 1), Stamp(50, 60, 1), Stamp(60, 65, 1)]) == 50
    assert longest_gap_ns([Stamp(0, 10, 1)]) == 0


WALLS = [{"denoise": ms} for ms in (300.0, 50.0, 40.0, 30.0, 90.0, 60.0, 40.0)]


def sustained(paced: bool = False, **changes: object) -> PipelineRecord:
    """Two units of warm-up, two steady ones, then a session of its own."""
    made = replace(
        units(WALLS, ["opening", "filling", "steady", "steady", "opening", "filling", "steady"]),
        started_ns=tuple(place * 200 * MS for place in range(7)),
        sessions=(0, 0, 0, 0, 1, 1, 1),
    )
    how = replace(HOW, paced=paced)
    measurement = measured(units=made, opened_ns=(9 * MS, 5 * MS))
    return pipeline_record(made=measurement, sustained=how, **changes)


def test_a_saturating_run_lies_end_to_end_from_the_first_steady_unit_with_openings() -> None:
    found = stamps(sustained())
    assert [stamp.ns / MS for stamp in found] == [40, 30, 90, 60, 40]
    assert [stamp.submit_ns / MS for stamp in found] == [0, 40, 75, 165, 225]
    made = figures(sustained())
    assert made is not None
    assert (made.units, made.left_out, made.ns) == (5, 2, 265 * MS)
    assert (made.reopened, made.reopened_ns) == (1, 5 * MS)
    assert made.last_third_fps == 25.0, "of the two last units: the opening is in neither, the slower one is left out"
    assert (made.slowest_ns, made.jitter_ns, made.longest_gap_ns) == (90 * MS, None, 95 * MS)


def test_a_paced_run_lies_where_it_ran() -> None:
    assert [stamp.submit_ns / MS for stamp in stamps(sustained(paced=True))] == [400, 600, 800, 1000, 1200]


def test_a_run_that_was_not_sustained_or_never_steady_has_no_units_here() -> None:
    assert stamps(pipeline_record()) == []
    unsettled = measured(units=units(WALLS, ["filling"] * 7))
    assert figures(pipeline_record(made=unsettled, sustained=HOW)) is None


def seen(mj: float | None, seconds: float) -> Monitored:
    cost = MonitorCost(round(seconds * 1e9), 0, 1, {}, {}, {})
    return Monitored(energy=(DeviceEnergy("package-0", mj, None),), cost=cost)


def energy(watched: Monitored | None, idle: Monitored | None) -> tuple[FrameEnergy, ...]:
    record = sustained(monitored=watched)
    found = figures(replace(record, sustained=replace(HOW, idle=idle)))
    assert found is not None
    return found.energy


def test_energy_a_frame_is_net_of_what_the_device_takes_when_idle_and_unknown_is_never_zero() -> None:
    (found,) = energy(seen(70_000.0, 2.0), seen(50_000.0, 10.0))
    assert (found.watts, found.joules_a_frame) == (35.0, 10.0), "seven units of a frame each"
    assert found.net_joules_a_frame == pytest.approx(10.0 * (1 - 5 / 35))
    assert energy(seen(70_000.0, 2.0), None) == (FrameEnergy("package-0", 35.0, 10.0, None),)
    assert energy(seen(None, 2.0), seen(None, 10.0)) == (FrameEnergy("package-0", None, None, None),)
    assert energy(None, None) == ()


def test_loops_that_fit_are_the_hosts_memory_over_the_peak() -> None:
    record = sustained()
    found = figures(record)
    assert found is not None
    memory = record.measurement.memory
    assert memory is not None
    assert memory.host_peak_bytes is not None
    assert found.loops_in_memory == record.host.memory_bytes // memory.host_peak_bytes


def test_the_account_of_folded_units_is_that_of_each_unit() -> None:
    record = sustained()
    each = record.measurement.units
    assert each is not None
    spans = (1, 1, 2, 1, 1, 1)
    starts = [0, *accumulate(spans)]

    def fold(values: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sum(values[start:end]) for start, end in pairwise(starts))

    folded = replace(each, spans=spans, lines=tuple(replace(line, ns=fold(line.ns)) for line in each.lines))
    made = replace(record, measurement=replace(record.measurement, units=folded))
    assert account(made) == account(record)
    assert account(made) is not None
