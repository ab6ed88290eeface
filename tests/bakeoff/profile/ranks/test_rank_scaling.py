"""Speed-up, efficiency and serial share from runs of several world sizes."""

from dataclasses import replace
from pathlib import Path

import pytest
from rank_records import record, write

from bakeoff.profile.ranks.aggregate import aggregate
from bakeoff.profile.ranks.scaling import scaling_of, serial_share
from bakeoff.record.ranks import RanksReport
from bakeoff.record.session import SessionRecord
from bakeoff.report.pages.ranks import document
from bakeoff.report.render import terminal


def run(folder: Path, world: int, denoise_ms: int, **changes: object) -> RanksReport:
    """Ranks whose units take so many milliseconds and five besides."""
    made: list[SessionRecord] = [
        replace(record(rank, denoise_ms, world=world), **changes)  # type: ignore[arg-type]
        for rank in range(world)
    ]
    return aggregate(write(folder / f"{world}-{denoise_ms}", made))


@pytest.mark.parametrize("share", [0.0, 0.05, 0.3, 1.0])
@pytest.mark.parametrize("ranks", [2, 8, 64])
def test_the_serial_share_of_amdahls_law_is_found_again(share: float, ranks: int) -> None:
    speedup = 1 / (share + (1 - share) / ranks)
    assert serial_share(speedup, ranks) == pytest.approx(share, abs=1e-12)


def test_two_sizes_give_speed_up_efficiency_and_serial_share(tmp_path: Path) -> None:
    found = scaling_of([run(tmp_path, 4, 25), run(tmp_path, 1, 95), run(tmp_path, 2, 55)])
    assert found is not None
    assert found.base_world == 1
    assert [point.world for point in found.points] == [1, 2, 4]
    assert [point.speedup for point in found.points] == pytest.approx([1, 100 / 60, 100 / 30])
    assert [point.efficiency for point in found.points] == pytest.approx([1, 100 / 120, 100 / 120])
    assert [point.serial_share for point in found.points] == [
        None,
        pytest.approx((0.6 - 0.5) / 0.5),
        pytest.approx((0.3 - 0.25) / 0.75),
    ]
    assert found.notes == ()


def test_without_a_run_of_one_rank_the_ratio_of_sizes_counts(tmp_path: Path) -> None:
    found = scaling_of([run(tmp_path, 2, 95), run(tmp_path, 4, 45)])
    assert found is not None
    assert (found.base_world, found.points[1].speedup) == (2, pytest.approx(2.0))
    assert (found.points[1].efficiency, found.points[1].serial_share) == (pytest.approx(1.0), pytest.approx(0.0))


def test_below_two_sizes_only_what_was_left_out_is_said(tmp_path: Path) -> None:
    assert scaling_of([]) is None
    assert scaling_of([run(tmp_path, 2, 95)]) is None
    runs = [run(tmp_path, 2, 95), run(tmp_path, 2, 45)]
    found = scaling_of(runs)
    assert found is not None
    assert found.points == ()
    assert "another run has 2 ranks too" in found.notes[0]
    page = document([(report, ()) for report in runs], found)
    assert "another run has 2 ranks too" in terminal.render(page)


def test_runs_of_another_configuration_are_left_out_and_said(tmp_path: Path) -> None:
    one, two = run(tmp_path, 1, 95), run(tmp_path, 2, 55)
    other = run(tmp_path, 4, 25, tags={"batch": 2})
    named = run(tmp_path, 3, 25, name="other")
    found = scaling_of([one, two, other, named])
    assert found is not None
    assert [point.world for point in found.points] == [1, 2]
    assert [note.split("left out of scaling, ")[1] for note in found.notes] == [
        "its tag 'batch' is 2, not None",
        "its session is 'other', not 'toy'",
    ]


def test_a_run_with_missing_ranks_or_no_rate_is_left_out(tmp_path: Path) -> None:
    one, two = run(tmp_path, 1, 95), run(tmp_path, 2, 55)
    broken = aggregate(write(tmp_path / "broken", [record(rank, 25, world=4) for rank in range(4)], leave_out=[3]))
    unknown = replace(run(tmp_path, 8, 25), frames_per_s=None)
    found = scaling_of([one, two, broken, unknown])
    assert found is not None
    assert [note.split("left out of scaling, ")[1] for note in found.notes] == [
        "not all its ranks could be read",
        "frames a second are unknown",
    ]


def test_other_versions_are_compared_and_said(tmp_path: Path) -> None:
    found = scaling_of([run(tmp_path, 1, 95), run(tmp_path, 2, 55, environment={"torch": "2.14.0"})])
    assert found is not None
    assert [note for note in found.notes if "torch" in note]
