"""`bakeoff rollout` as it is typed, around workers that compute nothing."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from lab import TORCHLESS, marked_folder
from typer.testing import CliRunner

from bakeoff.cli import app
from bakeoff.machine import paths
from bakeoff.models.errors import BakeoffError
from bakeoff.pipeline import plan
from bakeoff.process import supervisor
from bakeoff.record.store import load_all

ROLLOUT = ("rollout", "loops:Small", "--device", "cpu", "--threads", "1", "--units", "9", "--json")
MIXES = ("--mix", "eager", "--mix", "wm=eager/bf16,image=eager/bf16")


@pytest.fixture(autouse=True)
def _lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(supervisor, "WORKER", TORCHLESS)
    with marked_folder(tmp_path):
        yield


def typed(*arguments: str) -> Any:
    return CliRunner().invoke(app, arguments)


def test_each_mix_has_a_record_without_times_that_no_table_of_mixes_shows() -> None:
    done = typed(*ROLLOUT, *MIXES)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    records = load_all(paths.runs_folder())
    assert {entry.id for entry in records.rollouts} == set(found["records"])
    assert len(records.rollouts) == 2
    assert not records.pipelines
    for entry in records.rollouts:
        made = entry.record.measurement
        assert (entry.record.how, entry.record.status, made.units) == ("rollout", "ok", None)
        assert made.parity is not None
        assert len(made.parity.units) == 10
    assert [one["outputs"]["frame"]["error"] for one in found["rollouts"]] == [0.01, 0.01]
    assert found["rollouts"][0]["free"]["frame"]["standing"] == "with eager"
    results = next(paths.runs_folder().glob("*/RESULTS.md")).read_text()
    assert "9 units within limits, at most 10% of one (frame, after opening)" in results
    assert "say nothing about the picture" in results
    history = next(paths.runs_folder().glob("*/OPTIMIZATION_HISTORY.md")).read_text()
    assert history.count("stays right: 9 units within limits") == 2
    tables = json.loads(typed("table", "--json").stdout)
    assert ({one["record"] for one in tables["rollouts"]}, tables["pipelines"]) == (set(found["records"]), [])
    shown = typed("show", found["records"][0])
    assert "stays right: 9 units within limits" in shown.output
    assert "Each unit from the reference's state, and running free for 9 frames" in shown.output
    assert shown.output.count("free below 30 dB") == 2, "one table, and its column explained"


def interrupted_at(number: int, function: Any) -> Any:
    """The function, whose call of this number is interrupted."""
    calls = iter(range(number))

    def call(*arguments: Any, **more: Any) -> Any:
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return function(*arguments, **more)

    return call


@pytest.mark.parametrize(
    ("place", "records"),
    [("bakeoff.pipeline.session.run_job", 0), ("bakeoff.pipeline.run._measure", 1)],
    ids=["second references", "second mix"],
)
def test_an_interrupted_rollout_goes_on_where_it_was(place: str, records: int) -> None:
    module, _, name = place.rpartition(".")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, interrupted_at(1, getattr(import_module(module), name)))
        done = typed(*ROLLOUT, *MIXES)
    assert done.exit_code == 130
    assert "the same command with --resume runs them" in done.stderr
    assert len(load_all(paths.runs_folder()).rollouts) == records
    folder = next(path for path in (paths.cache_folder() / "references").glob("loop-*") if path.is_dir())
    before = (folder / "reference.json").stat().st_mtime_ns
    again = typed(*ROLLOUT, *MIXES, "--resume")
    assert again.exit_code == 0, again.output
    assert len(load_all(paths.runs_folder()).rollouts) == 2
    assert (folder / "reference.json").stat().st_mtime_ns == before, "what was made is used again"


def test_a_disk_that_is_too_small_is_told_with_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    planned = json.loads(typed(*ROLLOUT, "--mix", "eager", "--dry-run").stdout)
    assert planned["reference_bytes"] == 10 * 8 << 20
    usage = shutil._ntuple_diskusage(1 << 40, 1 << 39, 50 << 20)  # type: ignore[attr-defined]
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage)
    done = typed(*ROLLOUT, "--mix", "eager")
    assert isinstance(done.exception, BakeoffError)
    assert "the reference of 9 frames takes 80 MiB in" in str(done.exception)
    assert "which has 50 MiB free; give fewer --units, or set BAKEOFF_CACHE" in str(done.exception)
    assert not load_all(paths.runs_folder()).rollouts


def test_a_loop_without_a_reference_or_units_for_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    made = plan.described_loop
    for change, text in (
        ({"draws": True}, "its units draw random numbers by themselves"),
        ({"max_units": 8}, "--units 9: a session of small has 8; give at most that"),
    ):
        monkeypatch.setattr(plan, "described_loop", lambda *asked, change=change: replace(made(*asked), **change))
        done = typed(*ROLLOUT, "--mix", "eager")
        assert isinstance(done.exception, BakeoffError)
        assert text in str(done.exception)
