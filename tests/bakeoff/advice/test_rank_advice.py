"""Each rule for ranks fires on its numbers and on nothing else."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rank_records import lockstep, parallel, record, total, write

from bakeoff.advice.evidence import Advice
from bakeoff.advice.ranks import RULES, advise_ranks
from bakeoff.profile.ranks.aggregate import aggregate
from bakeoff.profile.ranks.scaling import scaling_of
from bakeoff.record.ranks import RanksReport
from bakeoff.record.session import SessionRecord


def run(folder: Path, records: Sequence[SessionRecord]) -> RanksReport:
    return aggregate(write(folder, records))


def worlds(folder: Path, denoise_ms: dict[int, int]) -> list[RanksReport]:
    """Runs of so many ranks, whose unit takes 5 ms more than its denoise."""
    return [
        run(folder / str(world), [record(rank, ms, world=world) for rank in range(world)])
        for world, ms in denoise_ms.items()
    ]


def of(reports: Sequence[RanksReport], place: int) -> tuple[Advice, ...]:
    return advise_ranks(reports[place], scaling_of(reports))


def test_equal_ranks_have_no_advice(tmp_path: Path) -> None:
    assert advise_ranks(run(tmp_path, lockstep((5, 5, 5, 5)))) == ()
    assert advise_ranks(run(tmp_path / "one", [record(world=1)])) == ()


def test_a_straggler_and_the_phase_that_makes_it_one(tmp_path: Path) -> None:
    (found,) = advise_ranks(run(tmp_path, lockstep((5, 5, 25, 5))))
    assert (found.code, found.where, found.strength) == ("straggler", "rank 2", "strong")
    assert found.gain_ms == pytest.approx(20)
    assert found.evidence == (
        "it waits 20.00 ms a unit less in collectives than the median of the others; "
        "denoise has 100% of the 20.00 ms that it works longer"
    )
    assert found.says.startswith("make denoise there as short as on the others")


def test_a_straggler_without_one_phase_as_the_cause(tmp_path: Path) -> None:
    """Denoise and decode of rank 1 take 5 ms longer each."""
    ranks = [record(0, 5, 10, world=3), record(1, 10, 0, world=3, decode_ms=8), record(2, 5, 10, world=3)]
    (found,) = advise_ranks(run(tmp_path, ranks))
    assert (found.where, found.gain_ms) == ("rank 1", pytest.approx(10))
    assert "has 50% of the 10.00 ms" in found.evidence
    assert found.says.startswith("all its phases are longer")


def test_a_straggler_where_nothing_is_collective(tmp_path: Path) -> None:
    ranks = [
        record(
            rank,
            ms,
            world=3,
            ranges=(
                total((), "session", 1, 10 * (ms + 5) + 7),
                total(["unit"], "unit", 10, 10 * (ms + 5)),
                total(["unit", "denoise"], "phase", 10, 10 * ms),
            ),
        )
        for rank, ms in enumerate((5, 5, 9))
    ]
    (found,) = advise_ranks(run(tmp_path, parallel("data", ranks)))
    assert (found.where, found.gain_ms) == ("rank 2", pytest.approx(4))
    assert found.evidence.startswith("its phases take 4.00 ms a unit longer than the median of the others")


def test_what_could_gain_less_than_a_twentieth_of_a_unit_is_left_out(tmp_path: Path) -> None:
    assert advise_ranks(run(tmp_path, lockstep((100, 100, 104, 100)))) == ()
    assert advise_ranks(run(tmp_path / "more", lockstep((100, 100, 110, 100))))


def test_ranks_that_scale_well_are_not_told(tmp_path: Path) -> None:
    assert of(worlds(tmp_path, {1: 95, 2: 45}), 1) == ()


def test_scaling_loss_with_two_sizes(tmp_path: Path) -> None:
    reports = worlds(tmp_path, {1: 95, 2: 55})
    (found,) = of(reports, 1)
    assert (found.code, found.strength) == ("scaling-loss", "notice")
    assert found.gain_ms == pytest.approx(10)  # 60 ms a unit, 100 / 2 at full efficiency
    assert found.evidence == (
        "2 ranks are 1.67 times as fast as 1, 83% of 2 times; serial share 0.20; 1.00 ms a unit in collectives"
    )
    assert "a third size" in found.says
    assert of(reports, 0) == ()


@pytest.mark.parametrize(("of_four", "says"), [(35, "does not grow"), (45, "grows (0.20 at 2 ranks, 0.33 at 4)")])
def test_a_third_size_tells_a_serial_part_from_communication(of_four: int, says: str, tmp_path: Path) -> None:
    (found,) = of(worlds(tmp_path, {1: 95, 2: 55, 4: of_four}), 2)
    assert says in found.says


def test_of_data_parallel_ranks_the_rates_add_up(tmp_path: Path) -> None:
    reports = [
        run(tmp_path / str(world), parallel("data", [record(rank, ms, world=world) for rank in range(world)]))
        for world, ms in ((1, 35), (2, 45))
    ]
    (found,) = of(reports, 1)
    assert found.gain_ms == pytest.approx(10)  # 50 ms a unit of each rank instead of 40


def test_a_run_without_other_sizes_or_units_is_not_told(tmp_path: Path) -> None:
    assert of(worlds(tmp_path, {2: 55}), 0) == ()
    bare = run(tmp_path / "bare", [replace(record(rank, world=2), units=(), spans=()) for rank in range(2)])
    assert advise_ranks(bare) == ()


def test_every_rule_is_tested_here() -> None:
    assert [rule.__name__ for rule in RULES] == ["straggler", "scaling_loss"]
