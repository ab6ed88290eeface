"""The command `bakeoff session aggregate`: what it prints, its JSON, and its exit codes."""

import json
from pathlib import Path

from rank_records import lockstep, record, write
from typer.testing import CliRunner, Result

from bakeoff.cli import app
from bakeoff.models.errors import BakeoffError

SLOW_2 = (5, 5, 25, 5)


def called(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["session", "aggregate", *map(str, arguments)])


def test_json_is_nothing_but_the_reports(tmp_path: Path) -> None:
    done = called(write(tmp_path, lockstep(SLOW_2)), "--json")
    held = json.loads(done.stdout)
    (run,) = held["runs"]
    assert (run["straggler"]["rank"], run["straggler"]["cause"]) == (2, "denoise")
    assert held["scaling"] == {"frames_per_s": {}, "notes": []}
    assert [spread["greatest"] for spread in run["spreads"] if spread["name"] == "phase.denoise"] == [25.0]


def test_a_rank_that_is_missing_fails(tmp_path: Path) -> None:
    """Two ranks of three said "missing: rank 2 of 3 has no file" and ended with 0, so that no script saw it."""
    done = called(write(tmp_path, lockstep(SLOW_2), leave_out=[1]))
    assert done.exit_code == 1
    assert "missing: rank 1 of 4 has no file" in done.stdout
    assert "1 of 4 ranks are missing or unreadable [check-failed]" in done.stderr
    assert called(write(tmp_path / "whole", lockstep(SLOW_2))).exit_code == 0


def test_a_folder_without_ranks_is_bad_input(tmp_path: Path) -> None:
    done = called(tmp_path)
    assert isinstance(done.exception, BakeoffError)
    assert done.exception.code == "no-record"
    empty = called("")
    assert isinstance(empty.exception, BakeoffError)
    assert str(empty.exception).startswith("DIR is empty")


def test_pages_are_written_beside_the_ranks(tmp_path: Path) -> None:
    folders = [
        write(tmp_path / str(world), [record(rank, ms, world=world) for rank in range(world)])
        for world, ms in ((1, 95), (2, 55))
    ]
    done = called(*folders, "--html")
    assert done.exit_code == 0, done.output
    for folder in folders:
        assert f"wrote {folder / 'ranks.html'}" in done.stdout
        assert "<h2>Scaling</h2>" in (folder / "ranks.html").read_text()
    assert called(*folders).stdout == called(*folders).stdout, "a page is no rank's file"
