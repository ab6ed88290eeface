"""A profile of the toy pipeline with real workers: eager, and a mix with an engine that shows nothing of itself."""

import gzip
import json
from pathlib import Path

import pytest
from lab import FAST, Recorder, marked_folder, processes_with

pytest.importorskip("torch", reason="workers need it")
pytest.importorskip("openvino")

from bakeoff.machine import paths
from bakeoff.pipeline.plan import make_pipeline_plan
from bakeoff.pipeline.request import PipelineRequest, ProfileOptions
from bakeoff.pipeline.run import Done, run_pipeline
from bakeoff.record.store import load_all
from bakeoff.report.html import profile as html
from bakeoff.report.profiles import ProfileReport, reports_of
from bakeoff.report.text import profile as text

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("profiles")


@pytest.fixture(scope="module")
def done(folder: Path) -> Done:
    request = PipelineRequest(
        "toy",
        mixes=("eager", "stream=openvino/fp32"),
        device="cpu",
        units=3,
        threads=1,
        policy=FAST,
        profile=ProfileOptions(level=5, units=2, memory=True, compiler=True),
    )
    with marked_folder(folder) as marker:
        plan = make_pipeline_plan(request, paths.runs_folder())
        found = run_pipeline(plan, paths.runs_folder(), "", False, Recorder())
        assert list(processes_with(marker)) == []
    return found


@pytest.fixture(scope="module")
def reports(done: Done, folder: Path) -> dict[str, ProfileReport]:
    made = reports_of(done.stored, load_all(folder / "runs"))
    return {report.role or "other": report for report in made}


def test_both_mixes_are_measured_as_without_a_profile(done: Done) -> None:
    for entry in done.stored:
        record = entry.record
        assert (record.status, record.measurement.reason) == ("ok", "")
        assert record.how == "interleaved"
        assert record.measurement.units is not None
        assert len(record.measurement.opened_ns) == 1


def test_each_line_says_who_told_what_is_inside(reports: dict[str, ProfileReport]) -> None:
    told = {role: {line.name: line.told_by for line in report.lines} for role, report in reports.items()}
    assert told["eager"]["denoise"] == told["eager"]["decode"] == "torch.profiler"
    assert told["other"]["denoise"] == "torch.profiler"
    assert told["other"]["decode"] == "OpenVINO"
    assert reports["other"].own_kernels
    assert sum(row.thousandths for row in reports["other"].own_kernels) == 1000


def test_shares_and_busy_and_idle_time_add_up(reports: dict[str, ProfileReport]) -> None:
    for report in reports.values():
        assert sum(line.share for line in report.lines) == 1000
        assert report.hidden_ms == 0
        assert report.busy_ms + report.idle_ms == pytest.approx(report.unit_ms)
        assert sum(row.thousandths for row in report.operators) == 1000
        assert report.compiled == ()
        assert report.stamps_ms is not None


def test_parts_of_networks_are_of_eager_slots_alone(reports: dict[str, ProfileReport]) -> None:
    assert {part.slot for part in reports["eager"].parts} == {"world", "stream"}
    assert {part.slot for part in reports["other"].parts} == {"world"}
    assert reports["eager"].hidden == ()
    (said,) = reports["other"].hidden
    assert "stream" in said
    assert "not visible" in said


def test_traces_open_as_json_and_are_those_of_the_records(done: Done, folder: Path) -> None:
    for entry in done.stored:
        profile = entry.record.measurement.profile
        assert profile is not None
        assert profile.trace is not None
        (path,) = folder.rglob(Path(profile.trace.path).name)
        assert path.stat().st_size == profile.trace.bytes
        events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        assert {"unit", "denoise", "call"} <= {event.get("name") for event in events if event.get("pid") == "bakeoff"}
        assert profile.note == "no program of this mix is compiled by torch, so there is no compiler's log"


def test_pages_and_terminal_show_the_same(folder: Path, reports: dict[str, ProfileReport]) -> None:
    runs = folder / "runs"
    written = html.update(runs, load_all(runs))
    assert len(written) == 2
    shown = text.render(list(reports.values()))
    for report in reports.values():
        assert f"{report.unit_ms:.3f}" in shown
        page = next(path for path in written if path.stem == report.record)
        assert f"{report.unit_ms:.2f} ms a frame" in page.read_text()
