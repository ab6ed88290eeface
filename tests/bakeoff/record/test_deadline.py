"""Viewers, percentiles and droop of sustained runs, against closed forms and simulations of random traces."""

import random
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

import pytest
from answers import present
from pipeline_records import measured, pipeline_record, units

from bakeoff.record.account import account
from bakeoff.record.deadline import (
    NEVER_NS,
    PERCENTILES,
    Figures,
    Stamp,
    Viewer,
    droop,
    figures,
    first_frames,
    percentile,
    starts_of,
    viewer_of,
)
from bakeoff.record.pipeline import Caches, PipelineRecord, Start, Sustained

MS = 1_000_000
HOW = Sustained(25.0, False, 1)


def view(times_ms: list[float], frames: int = 1, buffer: int = 1) -> Viewer:
    """What a viewer sees of units end to end."""
    viewer = Viewer(replace(HOW, buffer=buffer))
    for ms in times_ms:
        viewer.add(0, round(ms * MS), frames, 0)
    return viewer


def test_a_mix_that_is_faster_than_the_rate_is_never_late() -> None:
    seen = view([39.0] * 100)
    assert (seen.misses, seen.least_buffer_ns) == (0, 0)


@pytest.mark.parametrize("frames", [1, 3])
def test_a_mix_that_is_slower_than_the_rate_falls_behind_by_the_same_time_a_unit(frames: int) -> None:
    seen = view([42.0 * frames] * 100, frames)
    assert (len(seen.units), seen.misses, seen.least_buffer_ns) == (100, 99, 99 * 2 * frames * MS)


def test_one_slow_unit_makes_all_later_ones_late_if_nothing_catches_up() -> None:
    slow = [40.0] * 60 + [140.0] + [40.0] * 39
    seen = view(slow)
    assert (seen.misses, seen.least_buffer_ns) == (40, 100 * MS)
    assert view(slow, buffer=4).misses == 0, "three units more are 120 ms"
    assert view(slow, buffer=3).misses == 40


def test_one_slow_unit_is_one_late_unit_where_the_others_are_ahead() -> None:
    assert view([30.0] * 3 + [75.0] + [10.0] * 20).misses == 1


def random_trace(draw: random.Random) -> Viewer:
    """Units with gaps between them, a rate whose period is a whole number of nanoseconds, and a buffer."""
    count, now = draw.randrange(1, 40), draw.randrange(MS)
    viewer = Viewer(Sustained(draw.choice((16.0, 20.0, 25.0, 40.0, 50.0)), True, draw.randrange(1, count + 1)))
    for _ in range(count):
        started, wall = now + draw.choice((0, draw.randrange(20 * MS))), draw.randrange(1, 90 * MS)
        viewer.add(started, wall, draw.randrange(4), 0)
        now = started + wall
    return viewer


def late_units(seen: Viewer, period_ns: int, start_ns: int) -> int:
    """Play the frames one after the other from a start, and count the units that are not there in time."""
    late, now = 0, start_ns
    for stamp in seen.units:
        late += stamp.ready_ns > now
        now += stamp.frames * period_ns
    return late


def test_viewers_of_random_traces_see_what_a_playback_step_by_step_sees() -> None:
    draw = random.Random(4)
    for _ in range(1000):
        seen = random_trace(draw)
        period = int(1e9 / seen.how.fps)
        assert seen.misses == late_units(seen, period, seen.units[seen.how.buffer - 1].ready_ns)
        first = seen.units[0].ready_ns
        assert late_units(seen, period, first + seen.least_buffer_ns) == 0
        assert not seen.least_buffer_ns or late_units(seen, period, first + seen.least_buffer_ns - 1) > 0


def test_percentiles_of_random_times_are_the_least_times_that_enough_units_do_not_exceed() -> None:
    draw = random.Random(5)
    for _ in range(200):
        times = [draw.randrange(1, 10 ** draw.randrange(1, 10)) for _ in range(draw.randrange(1, 2500))]
        for name, (share, needs) in PERCENTILES.items():
            found = percentile(times, name)
            assert (found is None) == (len(times) < needs)
            if found is not None:
                ns, low, high = found
                assert ns in times
                assert sum(time < ns for time in times) < share * len(times) - 1e-9
                assert sum(time <= ns for time in times) >= share * len(times) - 1e-9
                assert low is None or low <= ns
                assert high is None or high >= ns


@pytest.mark.parametrize(("name", "fewest"), [("median", 1), ("p90", 10), ("p99", 100), ("p99.9", 1000)])
def test_a_percentile_takes_so_many_units_that_it_is_not_the_slowest_one(name: str, fewest: int) -> None:
    times = [*range(1, fewest), 10**6]
    found = present(percentile(times, name))
    assert found[0] == (fewest - 1 or 10**6)
    if fewest > 1:
        assert percentile(times[1:], name) is None


@pytest.mark.parametrize("name", PERCENTILES)
def test_intervals_of_percentiles_hold_the_true_value_in_19_of_20_runs(name: str) -> None:
    draw, held = random.Random(6), 0
    for _ in range(400):
        found = present(percentile([draw.randrange(10**6) for _ in range(1500)], name))
        low, high = found[1] or 0, 10**6 if found[2] is None else found[2]
        held += low <= PERCENTILES[name][0] * 10**6 <= high
    assert held >= 0.92 * 400


def test_droop_compares_the_last_minute_with_the_second() -> None:
    times = [2000.0] * 30 + [1000.0] * 60 + [1500.0] * 40 + [1100.0] * 60
    found = present(droop(view(times).units))
    assert found[:2] == (pytest.approx(1.1), pytest.approx(1.1))
    assert droop(view([1000.0] * 179).units) is None, "less than three minutes"
    assert droop(view([20_000.0] * 30).units) is None, "three units a minute"


def test_units_that_keep_up_from_the_start_on_do_not_if_their_last_third_does_not() -> None:
    def of(*times_ms: float, fps: float = 25.0) -> Figures:
        made = units([{"denoise": ms} for ms in times_ms], ["steady"] * len(times_ms))
        return present(figures(pipeline_record(made=measured(units=made), sustained=replace(HOW, fps=fps))))

    slower = [of(20.0, 20.0, 20.0, 20.0, 50.0, 50.0, fps=fps) for fps in (20.0, 25.0)]
    assert (round(slower[0].made_fps, 2), slower[0].last_third_fps) == (33.33, 20.0)
    assert [each.keeps_up for each in slower] == [True, False]
    assert of(20.0, 20.0, 50.0).last_third_fps == 20.0, "a third of one unit has no other to judge by"
    assert of(*[20.0] * 8, 900.0).last_third_fps == 50.0, "one slow unit is no trend"
    assert of(*[20.0] * 7, 900.0, 900.0).last_third_fps < 2.5


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


def stamps(record: PipelineRecord) -> list[Stamp]:
    viewer = viewer_of(record)
    return viewer.units if viewer is not None else []


def test_a_saturating_run_lies_end_to_end_from_the_first_steady_unit_with_openings() -> None:
    found = stamps(sustained())
    assert [stamp.ns / MS for stamp in found] == [40, 30, 90, 60, 40]
    assert [stamp.submit_ns / MS for stamp in found] == [0, 40, 75, 165, 225]
    made = present(figures(sustained()))
    assert (made.units, made.left_out, made.ns, made.slowest_ns) == (5, 2, 265 * MS, 90 * MS)
    assert made.made_fps == pytest.approx(5 / 0.265), "with the opening of the second session"
    assert made.last_third_fps == 25.0, "of the two last units: the opening is in neither, the slower one is left out"


def test_a_paced_run_lies_where_it_ran() -> None:
    assert [stamp.submit_ns / MS for stamp in stamps(sustained(paced=True))] == [400, 600, 800, 1000, 1200]


def test_a_run_that_was_not_sustained_or_never_steady_has_no_units_here() -> None:
    assert stamps(pipeline_record()) == []
    unsettled = measured(units=units(WALLS, ["filling"] * 7))
    assert figures(pipeline_record(made=unsettled, sustained=HOW)) is None


def test_the_account_of_folded_units_is_that_of_each_unit() -> None:
    record = sustained()
    each = present(record.measurement.units)
    spans = (1, 1, 2, 1, 1, 1)
    starts = [0, *accumulate(spans)]

    def fold(values: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sum(values[start:end]) for start, end in pairwise(starts))

    folded = replace(each, spans=spans, lines=tuple(replace(line, ns=fold(line.ns)) for line in each.lines))
    made = replace(record, measurement=replace(record.measurement, units=folded))
    assert account(made) == account(record)
    assert account(made) is not None


PARTS = {"import": 2000 * MS, "weights": 300 * MS, "compile": 1500 * MS, "opening": 90 * MS}


def started(times_ms: list[float], each: int = 1, **changes: Any) -> Start:
    """A process whose parts leave 10 ms before its first unit without a name."""
    units_ns = tuple(round(ms * MS) for ms in times_ms)
    wall_ns = sum(PARTS.values()) + 10 * MS + units_ns[0]
    return Start("none", wall_ns, PARTS, units_ns, **{"frames": (each,) * len(units_ns), **changes})


@pytest.mark.parametrize(
    ("times", "changes", "first_ms", "good_ms", "good", "late"),
    [
        ([30.0] * 20, {}, 3930, 3930, 0, ()),
        ([30.0, 900.0] + [30.0] * 18, {}, 3930, 4830, 1, (1,)),
        ([500.0] + [30.0] * 19, {}, 4400, 4400, 0, ()),
        ([30.0] * 5 + [41.0] + [30.0] * 14, {}, 3930, 3930 + 161, 5, (5,)),
        ([30.0] * 5 + [41.0] + [30.0] * 14, {"each": 2}, 3930, 3930, 0, ()),
        ([30.0] * 20, {"wrong": (0,)}, 3930, 3960, 1, ()),
        ([30.0] * 20, {"wrong": tuple(range(20))}, 3930, None, None, ()),
        ([30.0] * 14 + [41.0] + [30.0] * 5, {}, 3930, None, None, (14,)),
        ([41.0] * 20, {}, 3941, None, None, tuple(range(1, 20))),
        ([30.0] * 6, {}, 3930, None, None, ()),
        ([20.0] * 20, {"frames": (0, 1) * 10}, 3940, 3940, 1, ()),
        ([25.0] * 20, {"frames": (0, 1) * 10}, 3950, None, None, tuple(range(3, 20, 2))),
    ],
)
def test_a_good_frame_is_right_and_followed_by_units_in_time(
    times: list[float],
    changes: dict[str, Any],
    first_ms: float,
    good_ms: float | None,
    good: int | None,
    late: tuple[int, ...],
) -> None:
    """At 25 frames a second a unit of one frame has 40 ms, however fast those before it were."""
    found = present(first_frames(started(times, **changes), 25.0))
    assert (found.first_ns, found.good, found.late) == (first_ms * MS, good, late)
    assert found.good_ns == (NEVER_NS if good_ms is None else good_ms * MS)
    assert sum(found.parts_ns.values()) == (found.first_ns if good_ms is None else found.good_ns)
    assert found.parts_ns["rest"] == 10 * MS
    assert (found.parts_ns["compile"], found.parts_ns["filling"] == 0) == (1500 * MS, good_ms in (None, first_ms))


def test_starts_are_by_caches_the_earliest_good_frame_first_and_those_without_frames_are_none() -> None:
    slow, never, fast = ([ms] + [30.0] * 19 for ms in (700.0, 100.0, 50.0))
    starts = [started(slow), started([*never[:18], 90.0, 90.0]), replace(started(fast), caches="compiler")]
    record = pipeline_record(sustained=HOW, starts=(*starts, started(fast), Start("artifact", problem="no")))
    kinds: tuple[Caches, ...] = ("none", "compiler", "artifact")
    found = [[start.units_ns[0] // MS for start, _ in starts_of(record, caches)] for caches in kinds]
    assert found == [[50, 700, 100], [50], []]
