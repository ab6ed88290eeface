"""Ranks side by side, by records made by hand: rates, spreads, waits, the straggler and its cause, devices."""

from dataclasses import replace
from pathlib import Path

import pytest
from rank_records import DECODE, MS, curve, lockstep, on, parallel, record, total, watched, with_opening, write

from bakeoff.profile.ranks.aggregate import aggregate, scaling_of
from bakeoff.record.monitor import Monitored
from bakeoff.record.ranks import RanksReport, Spread
from bakeoff.record.session import RecordingCost, SessionRecord

SLOW_2 = (5, 5, 25, 5)


def spread(report: RanksReport, name: str) -> Spread:
    (found,) = [each for each in report.spreads if each.name == name]
    return found


def codes(report: RanksReport) -> list[str]:
    return [problem.code for problem in report.problems]


def of(folder: Path, *records: SessionRecord) -> RanksReport:
    return aggregate(write(folder, records))


def test_the_rank_that_waits_least_is_the_straggler_and_its_phase_the_cause(tmp_path: Path) -> None:
    report = of(tmp_path, *lockstep(SLOW_2))
    found = report.straggler
    assert found is not None
    assert (found.rank, found.found_by, found.cause) == (2, "least wait in collectives", "denoise")
    assert (found.margin_ns, found.excess_ns, found.share) == (20 * MS, 20 * MS, pytest.approx(1.0))
    assert "rank 2 is the straggler" in report.straggler_text
    assert "denoise explains 100%" in report.straggler_text
    assert [row.wait_ns for row in report.rows] == [20 * MS, 20 * MS, 0, 20 * MS]
    assert [row.waits for row in report.rows] == [{"all_reduce": ms * MS} for ms in (20, 20, 0, 20)]
    assert min(row.collectives["all_reduce"] for row in report.rows) == 1 * MS
    assert (report.problems, report.is_whole) == ((), True)


def test_a_collective_inside_a_phase_is_not_taken_for_its_work(tmp_path: Path) -> None:
    moved = []
    for made in lockstep(SLOW_2):
        inside = next(each for each in made.ranges if each.kind == "collective")
        ranges = [each for each in made.ranges if each.kind != "collective"]
        denoise = next(index for index, each in enumerate(ranges) if each.path == ("unit", "denoise"))
        ranges[denoise] = replace(ranges[denoise], total_ns=ranges[denoise].total_ns + inside.total_ns)
        moved.append(replace(made, ranges=(*ranges, replace(inside, path=("unit", "denoise", "all_reduce")))))
    report = of(tmp_path, *moved)
    assert report.straggler is not None
    assert (report.straggler.rank, report.straggler.cause) == (2, "denoise")
    assert report.rows[0].waits == {"denoise/all_reduce": 20 * MS}
    assert (spread(report, "phase.denoise").least, spread(report, "phase.denoise").greatest) == (5.0, 25.0)


def test_without_collectives_the_slowest_by_its_own_phases_is_the_straggler(tmp_path: Path) -> None:
    alone = [
        replace(made, ranges=tuple(each for each in made.ranges if each.kind != "collective"))
        for made in (record(rank, 25 if rank == 1 else 5, 0) for rank in range(4))
    ]
    report = of(tmp_path, *alone)
    assert report.straggler is not None
    assert (report.straggler.rank, report.straggler.found_by) == (1, "own time of phases")
    assert report.straggler.cause == "denoise"
    assert {row.wait_ns for row in report.rows} == {None}


def test_no_cause_is_named_where_two_phases_share_the_excess(tmp_path: Path) -> None:
    others = [record(rank, 5, wait_ms=16) for rank in (0, 1, 3)]
    report = of(tmp_path, *others, record(2, 15, decode_ms=DECODE + 6))
    assert report.straggler is not None
    assert (report.straggler.rank, report.straggler.cause, report.straggler.largest) == (2, "", "denoise")
    assert report.straggler.share == pytest.approx(10 / 16)
    assert "no one phase is the cause" in report.straggler_text


def test_ranks_of_equal_speed_have_no_straggler(tmp_path: Path) -> None:
    report = of(tmp_path / "equal", *lockstep((500, 501, 502, 500)))
    assert report.straggler is None
    assert "less than 5%" in report.straggler_text
    alone = of(tmp_path / "alone", *lockstep((500,)))
    assert alone.straggler is None
    assert "one rank alone" in alone.straggler_text


def test_a_phase_that_one_rank_alone_has_is_its_cause(tmp_path: Path) -> None:
    ranks = lockstep((5, 5, 5))
    ranges = tuple(
        replace(each, total_ns=each.total_ns + (0 if each.kind in ("phase", "step", "collective") else 100 * MS))
        for each in ranks[0].ranges
    )
    ranks[0] = replace(ranks[0], ranges=(*ranges, total(["unit", "encode"], "phase", 10, 100)))
    for rank in (1, 2):
        waited = tuple(
            replace(each, total_ns=each.total_ns + 100 * MS) if each.kind != "phase" and each.kind != "step" else each
            for each in ranks[rank].ranges
        )
        ranks[rank] = replace(ranks[rank], ranges=waited)
    report = of(tmp_path, *ranks)
    assert report.straggler is not None
    assert (report.straggler.rank, report.straggler.cause) == (0, "encode")
    assert spread(report, "phase.encode").count == 1


def test_one_video_by_all_ranks_has_the_rate_of_the_slowest(tmp_path: Path) -> None:
    uneven = [record(0, 5), record(1, 5), record(2, 25), record(3, 5)]
    report = of(tmp_path, *uneven)
    assert report.frames_per_s == pytest.approx(12 / 0.030)
    assert "at the pace of rank 2" in report.frames_text


def test_no_rank_is_called_slowest_where_all_wait_for_each_other(tmp_path: Path) -> None:
    """Units of rank 0 take 31 ms and those of rank 1, the straggler, 30."""
    report = of(tmp_path, record(0, 5, wait_ms=21, world=2), record(1, 25, world=2))
    assert report.straggler is not None
    assert report.straggler.rank == 1
    assert "rank 0" not in report.frames_text


@pytest.mark.parametrize(
    ("denoise_ms", "rank", "margin_ms"), [((5, 25), 1, 20), ((5, 25, 8), 1, 18.5), ((5, 8, 25, 6), 2, 19)]
)
def test_the_straggler_is_compared_with_the_others_alone(
    denoise_ms: tuple[int, ...], rank: int, margin_ms: float, tmp_path: Path
) -> None:
    """As short as on the others, its unit could be as short as theirs: what it costs is no less than that."""
    lock = of(tmp_path / "lock", *lockstep(denoise_ms)).straggler
    apart = [
        replace(made, ranges=tuple(each for each in made.ranges if each.kind != "collective"))
        for made in (record(at, ms, 0, world=len(denoise_ms)) for at, ms in enumerate(denoise_ms))
    ]
    alone = of(tmp_path / "alone", *apart).straggler
    for found in (lock, alone):
        assert found is not None
        assert (found.rank, found.cause, found.share) == (rank, "denoise", pytest.approx(1))
        assert (found.margin_ns, found.excess_ns) == (margin_ms * MS, margin_ms * MS)
        assert found.margin_ns >= (denoise_ms[rank] - sorted(denoise_ms)[-2]) * MS


def test_videos_of_each_rank_add_up(tmp_path: Path) -> None:
    ranks = parallel("data", [record(0, 5), record(1, 5), record(2, 25), record(3, 5)])
    report = of(tmp_path, *ranks)
    assert report.frames_per_s == pytest.approx(3 * 12 / 0.010 + 12 / 0.030)
    assert "sum over the 4 ranks" in report.frames_text


def test_a_rate_is_unknown_and_not_zero_where_nobody_counts_frames(tmp_path: Path) -> None:
    report = of(tmp_path, *lockstep((5, 5), frames=0))
    assert report.frames_per_s is None
    assert report.frames_text == "unknown: no rank counted frames"


def test_ranks_that_disagree_about_parallelism_have_no_rate(tmp_path: Path) -> None:
    ranks = lockstep((5, 5))
    report = of(tmp_path, ranks[0], *parallel("data", ranks[1:]))
    assert report.frames_per_s is None
    assert "others that each makes its own" in report.frames_text


def test_figures_are_the_union_over_ranks(tmp_path: Path) -> None:
    ranks = lockstep((5, 5, 5))
    ranks[1] = replace(
        ranks[1],
        series=(curve("queue", "user", 1, 3, unit="frames"), curve("unit", "user", 9)),
        ranges=(*ranks[1].ranges, total(["load"], "stage", 1, 2000)),
        before=(total(["import"], "stage", 1, 900),),
    )
    report = of(tmp_path, *ranks)
    for name, value in (("queue.mean", 2), ("queue.greatest", 3), ("stage.load", 2000), ("before.import", 900)):
        found = spread(report, name)
        assert (found.greatest, found.greatest_rank, found.count) == (value, 1, 1), name
    assert not [each.name for each in report.spreads if each.name.startswith("unit.")]


def test_a_rank_with_fewer_units_is_said_and_compared_by_unit(tmp_path: Path) -> None:
    ranks = [record(0, 5, units=10, world=3), record(1, 6, units=8, world=3), record(2, 7, units=10, world=3)]
    report = of(tmp_path, *ranks)
    (differs,) = report.problems
    assert (differs.code, differs.text) == ("differs", "rank 1: 8 units, where most ranks have 10")
    assert spread(report, "phase.denoise").median == 6, "a unit, not in sum"


def test_a_long_opening_unit_is_not_compared_with_steady_ones(tmp_path: Path) -> None:
    ranks = [with_opening(made, 9000 if made.rank and made.rank.rank == 1 else 5) for made in lockstep(SLOW_2)]
    report = of(tmp_path, *ranks)
    assert report.counted == "steady units"
    assert (spread(report, "phase.denoise").greatest, spread(report, "phase.denoise").greatest_rank) == (25, 2)
    assert report.straggler is not None
    assert report.straggler.rank == 2
    assert report.frames_per_s == pytest.approx(12 / 0.030)


def test_ranks_without_units_are_compared_by_whole_sessions(tmp_path: Path) -> None:
    ranks = [
        replace(
            record(rank, world=2),
            units=(),
            spans=(),
            ranges=(
                total((), "session", 1, 60 + took),
                total(["run"], "stage", 1, 50 + took),
            ),
        )
        for rank, took in enumerate((0, 100))
    ]
    report = of(tmp_path, *ranks)
    assert report.counted.startswith("whole sessions")
    assert report.straggler is not None
    assert (report.straggler.rank, report.straggler.cause) == (1, "run")
    assert [row.unit_ns for row in report.rows] == [None, None]


def test_phases_are_by_the_devices_clock_where_all_ranks_have_it(tmp_path: Path) -> None:
    def on_device(made: SessionRecord, denoise_ms: int) -> SessionRecord:
        times = {"denoise": denoise_ms, "all_reduce": 26 - denoise_ms, "decode": 3}
        ranges = tuple(
            replace(each, device_ns=10 * times[each.path[-1]] * MS) if each.path and each.path[-1] in times else each
            for each in made.ranges
        )
        return replace(made, ranges=ranges)

    # The host launches at once on all ranks and waits in decode; only the device shows who is slow.
    ranks = [on_device(record(rank, 5), 25 if rank == 2 else 5) for rank in range(4)]
    report = of(tmp_path / "all", *ranks)
    assert report.clock == "device"
    assert report.straggler is not None
    assert (report.straggler.rank, report.straggler.cause) == (2, "denoise")
    assert of(tmp_path / "some", *ranks[:3], record(3, 5)).clock == "host"


def test_memory_of_a_gpu_is_not_added_up_over_its_ranks(tmp_path: Path) -> None:
    ranks = [on(made, device="GPU-a" if index < 2 else "GPU-b") for index, made in enumerate(lockstep((5, 5, 5)))]
    ranks = [
        replace(made, monitored=watched(made.rank.device, mib, joules))
        for made, mib, joules in zip(ranks, (8000, 8200, 4000), (300, 310, 100), strict=True)
        if made.rank
    ]
    report = of(tmp_path, *ranks)
    memory = spread(report, "gpu.memory.greatest")
    assert (memory.least, memory.median, memory.greatest) == (4000, 8000, 8200)
    (shared,) = [problem for problem in report.problems if problem.code == "shared-device"]
    assert shared.text.startswith("ranks 0-1 share GPU-a")


def test_a_gpu_that_a_rank_only_sees_is_not_its_own(tmp_path: Path) -> None:
    first, second = (on(made, device=f"GPU-{index}") for index, made in enumerate(lockstep((5, 5))))
    both = Monitored(
        series=(*watched("GPU-0", 10, 1).series, *watched("GPU-1", 900, 1).series),
        energy=(*watched("GPU-0", 10, 1).energy, *watched("GPU-1", 900, 9).energy, *watched("GPU-2", 1, 5).energy),
    )
    report = of(tmp_path, replace(first, monitored=both), replace(second, monitored=watched("GPU-1", 900, 9)))
    assert (spread(report, "gpu.memory.greatest").least, spread(report, "gpu.memory.greatest").greatest) == (10, 900)


def test_a_rank_that_failed_is_said(tmp_path: Path) -> None:
    first, second = lockstep((5, 5))
    report = of(tmp_path, first, replace(second, status="failed: ValueError: no"))
    assert codes(report) == ["failed"]
    assert report.rows[1].status == "failed: ValueError: no"


def test_a_rank_that_left_out_phases_is_said(tmp_path: Path) -> None:
    first, second, third = lockstep((5, 5, 5))
    second = replace(second, cost=RecordingCost(400.0, 60, ("step",)))
    third = replace(third, cost=RecordingCost(400.0, 60, ("step", "phase")))
    (problem,) = of(tmp_path, first, second, third).problems
    assert (problem.code, problem.text[:36]) == ("dropped", "rank 2 left out ranges of kind phase")


def of_size(folder: Path, world: int, denoise_ms: int, **changes: object) -> RanksReport:
    """A run whose units take so many milliseconds and five besides."""
    made = (replace(record(rank, denoise_ms, world=world), **changes) for rank in range(world))  # type: ignore[arg-type]
    return of(folder / f"{world}-{denoise_ms}-{len(changes)}", *made)


def test_rates_of_several_sizes_are_put_in_order(tmp_path: Path) -> None:
    rates, notes = scaling_of([of_size(tmp_path, world, ms) for world, ms in ((4, 25), (1, 95), (2, 55))])
    assert (list(rates), notes) == ([1, 2, 4], ())
    assert list(rates.values()) == pytest.approx([120, 200, 400])


def test_runs_that_differ_in_more_than_their_size_are_left_out_of_scaling_and_said(tmp_path: Path) -> None:
    one, two = of_size(tmp_path, 1, 95), of_size(tmp_path, 2, 55)
    whole = write(tmp_path / "broken", [record(rank, 25, world=4) for rank in range(4)], leave_out=[3])
    others = (
        of_size(tmp_path, 4, 25, tags={"batch": 2}),
        of_size(tmp_path, 3, 25, name="other"),
        aggregate(whole),
        of(tmp_path / "frames", *(record(rank, 25, frames=9, world=5) for rank in range(5))),
        replace(of_size(tmp_path, 8, 25), frames_per_s=None),
        of_size(tmp_path, 2, 45),
    )
    rates, notes = scaling_of([one, two, *others])
    assert list(rates) == [1, 2]
    assert [note.partition("left out of scaling, ")[2] for note in notes] == [
        "its tags is {'batch': 2}, not {}",
        "its name is 'other', not 'toy'",
        "not all its ranks could be read",
        "a unit has 9 frames, not 12",
        "frames a second are unknown",
        "another run has 2 ranks too",
    ]
    assert scaling_of([one])[0] == scaling_of([])[0] == {}
