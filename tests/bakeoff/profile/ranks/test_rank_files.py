"""Files of ranks that are missing, torn, foreign, duplicate or hostile: each is said, and the others count."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from rank_records import STARTED, encoded, lockstep, on, record, write

from bakeoff.models.errors import BakeoffError
from bakeoff.profile.ranks.aggregate import aggregate
from bakeoff.record.ranks import Problem, RanksReport

SLOW_2 = (5, 5, 25, 5)


def of(report: RanksReport, code: str) -> list[Problem]:
    return [problem for problem in report.problems if problem.code == code]


def test_a_missing_rank_and_a_torn_file_are_named_and_the_rest_counts(tmp_path: Path) -> None:
    write(tmp_path, lockstep(SLOW_2), leave_out=[1])
    torn = tmp_path / "rank-00003.session.json"
    torn.write_bytes(torn.read_bytes()[:-100])
    report = aggregate(tmp_path)
    assert (report.missing, report.unreadable, report.is_whole) == ((1,), ("rank-00003.session.json",), False)
    assert of(report, "missing")[0].text.startswith("rank 1 of 4 has no file")
    assert of(report, "unreadable")[0].text.startswith("rank-00003.session.json is no ")
    assert [row.rank for row in report.rows] == [0, 2]
    assert report.straggler is not None
    assert (report.straggler.rank, report.straggler.cause) == (2, "denoise")


def test_files_of_another_run_are_foreign(tmp_path: Path) -> None:
    write(tmp_path, lockstep(SLOW_2))
    other = on(record(4, world=8), group="another")
    (tmp_path / "rank-00004.session.json").write_bytes(encoded(other))
    report = aggregate(tmp_path)
    assert (report.group, len(report.rows)) == ("run-1", 4)
    assert [each.text for each in of(report, "left-out")] == ["rank-00004.session.json is of run another, not of run-1"]
    assert report.is_whole


def test_of_two_files_of_one_rank_the_one_named_after_it_counts(tmp_path: Path) -> None:
    write(tmp_path, lockstep(SLOW_2))
    stray = replace(record(2, 5), started_wall_ns=STARTED + 10**9)
    (tmp_path / "rank-00007.session.json").write_bytes(encoded(stray))
    report = aggregate(tmp_path)
    assert [each.text for each in of(report, "left-out")] == [
        "rank-00007.session.json is a second file of rank 2; rank-00002.session.json counts"
    ]
    assert [row.file for row in report.rows if row.rank == 2] == ["rank-00002.session.json"]


HOSTILE = {
    "nothing": b"",
    "NaN": encoded(record(3)).replace(b'"ns":', b'"ns":NaN,"old":', 1),
    "beyond 64 bits": encoded(record(3)).replace(b'"ns":', b'"ns":99999999999999999999,"old":', 1),
    "another schema": encoded(replace(record(3), schema=99)),
    "a huge world": encoded(on(record(3), world=10**15)),
    "a rank outside": encoded(on(record(3), rank=4)),
    "a negative rank": encoded(on(record(3), rank=-1)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_one_sentence_and_the_others_count(tmp_path: Path, name: str) -> None:
    write(tmp_path, lockstep(SLOW_2), leave_out=[3])
    (tmp_path / "rank-00003.session.json").write_bytes(HOSTILE[name])
    report = aggregate(tmp_path)
    assert report.unreadable == ("rank-00003.session.json",)
    assert (report.missing, [row.rank for row in report.rows]) == ((), [0, 1, 2])
    (problem,) = report.problems
    assert problem.text.startswith("rank-00003.session.json ")
    assert "\n" not in problem.text
    assert len(problem.text) < 400
    assert report.straggler is not None


def test_links_pipes_and_folders_are_not_read(tmp_path: Path) -> None:
    write(tmp_path, lockstep((5, 5)))
    (tmp_path / "rank-00002.session.json").symlink_to("rank-00001.session.json")
    os.mkfifo(tmp_path / "rank-00003.session.json")
    (tmp_path / "rank-00004.session.json").mkdir()
    report = aggregate(tmp_path)
    assert len(report.unreadable) == 3
    assert [problem.text.split(" ", 1)[1] for problem in of(report, "unreadable")] == [
        "is a link, which is not followed; left out",
        "cannot be read: it is not a regular file; left out",
        "cannot be read: it is not a regular file; left out",
    ]


def test_a_folder_without_ranks_says_where_there_are_some(tmp_path: Path) -> None:
    write(tmp_path / "toy-run-1", lockstep((5, 5)))
    with pytest.raises(BakeoffError, match=r"there are some in toy-run-1") as refused:
        aggregate(tmp_path)
    assert refused.value.code == "no-record"


@pytest.mark.parametrize("name", ["nowhere", "a\0b", "file"])
def test_a_folder_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BakeoffError) as refused:
        aggregate(tmp_path / name)
    assert refused.value.code == "not-readable"


def test_a_folder_of_which_nothing_can_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rank-00000.session.json").write_text("{")
    with pytest.raises(BakeoffError, match="none of 1 file in") as refused:
        aggregate(tmp_path)
    assert refused.value.code == "bad-record"
