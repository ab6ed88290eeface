"""The command `bakeoff profile`: what it refuses before anything runs, and Nsight."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import typer
from profile_records import on_gpu, profiled, stored
from typer.testing import CliRunner

from bakeoff.cli import app, pipeline
from bakeoff.cli.pipeline import PipelineOptions, _new_folder, _nsight
from bakeoff.machine import paths
from bakeoff.models.errors import BakeoffError
from bakeoff.pipeline.request import PipelineRequest, check_counts
from bakeoff.process.jobs import ProfileOptions
from bakeoff.report.render import terminal


@pytest.mark.parametrize(
    ("asked", "option"),
    [
        (ProfileOptions(level=0), "--level 0"),
        (ProfileOptions(level=6), "--level 6"),
        (ProfileOptions(units=0), "--traced 0"),
        (ProfileOptions(units=100_000), "--traced 100000"),
    ],
)
def test_numbers_out_of_range_are_refused(asked: ProfileOptions, option: str) -> None:
    with pytest.raises(BakeoffError, match=option):
        check_counts(PipelineRequest("owl", profile=asked))


def test_a_folder_for_traces_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BakeoffError) as refused:
        _new_folder(str(tmp_path / "file" / "traces"))
    assert refused.value.code == "not-writable"
    assert _new_folder(None) is None
    made = _new_folder(str(tmp_path / "a" / "b"))
    assert made is not None
    assert made.is_dir()


@pytest.mark.parametrize("typed", [["--trace", "traces"], ["--trace", "traces", "--json"], []])
def test_traces_are_copied_before_the_page_says_so(
    typed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing was measured, the command ends as soon as the page is printed."""

    def run(options: PipelineOptions, render: Any, as_data: Any) -> None:
        entry = stored(profiled(on_gpu()))
        print(as_data([entry]) if options.as_json else terminal.render(render([entry])))
        raise typer.Exit(1)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pipeline, "run_mixes", run)
    kept = paths.cache_folder() / "traces" / "run" / "mix.json.gz"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"a trace")
    done = CliRunner().invoke(app, ["--runs", "runs", "profile", "owl", *typed])
    assert done.exit_code == 1, done.output
    copy = Path("traces", "mix.json.gz")
    assert copy.exists() is bool(typed)
    if "--json" not in typed:
        assert (
            f"Trace: {copy if typed else 'traces/run/mix.json.gz in the cache folder of the machine'}; open"
            in done.output
        )


WINDOWS = {"nsys": "--capture-range=cudaProfilerApi", "ncu": "--profile-from-start=off"}


@pytest.mark.parametrize(("tool", "window"), WINDOWS.items())
def test_without_nsight_the_exact_command_is_printed(
    tool: str, window: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    monkeypatch.setattr("sys.argv", ["bakeoff", "profile", "owl", "--nsight", tool, "--units", "5"])
    assert _nsight(tool) == 3
    said = capsys.readouterr()
    assert said.out.startswith(f"{tool} ")
    assert window in said.out
    assert said.out.rstrip().endswith("-m bakeoff profile owl --nsight=capture --units 5")
    assert "not on the path" in said.err


def test_with_nsight_it_runs_and_its_exit_code_is_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool, said = tmp_path / "nsys", tmp_path / "said"
    tool.write_text(f'#!/bin/sh\necho "$@" > {said}\nexit 7\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setattr("sys.argv", ["bakeoff", "profile", "owl", "--nsight=nsys"])
    assert _nsight("nsys") == 7
    assert said.read_text().split()[-2:] == ["owl", "--nsight=capture"]
