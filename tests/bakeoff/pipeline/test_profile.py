"""The toy pipeline with real workers, from the request to records and profiles: eager, and a mix with an engine that
shows nothing of itself."""

import gzip
import json
from pathlib import Path

import pytest
from lab import FAST, Recorder, left_alive, marked_folder

pytest.importorskip("torch", reason="workers need it")
pytest.importorskip("openvino")

from bakeoff.machine import paths
from bakeoff.pipeline.plan import make_pipeline_plan
from bakeoff.pipeline.request import PipelineRequest
from bakeoff.pipeline.run import PipelineResult, run_pipeline
from bakeoff.process.jobs import ProfileOptions
from bakeoff.record.store import load_all
from bakeoff.report.pages import profile as page

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("profiles")


@pytest.fixture(scope="module")
def done(folder: Path) -> PipelineResult:
    request = PipelineRequest(
        "toy_loops:Toy",
        mixes=("eager", "stream=openvino/fp32"),
        device="cpu",
        units=3,
        threads=1,
        policy=FAST,
        profile=ProfileOptions(level=5, units=2, memory=True, compiler=True),
    )
    with marked_folder(folder) as marker:
        plan = make_pipeline_plan(request, paths.runs_folder(), Recorder())
        found = run_pipeline(plan, paths.runs_folder(), "", False, Recorder())
        assert left_alive(marker) == []
    return found


@pytest.fixture(scope="module")
def profiles(done: PipelineResult, folder: Path) -> dict[str, page.Profiled]:
    records = load_all(folder / "runs")
    found = [page.profiled(entry, records) for entry in done.stored]
    return {one.record.role or "other": one for one in found if one is not None}


def test_both_mixes_are_right_and_measured_in_turns_as_without_a_profile(done: PipelineResult) -> None:
    for entry in done.stored:
        record, measured = entry.record, entry.record.measurement
        assert (record.status, measured.reason) == ("ok", "")
        assert record.how == "interleaved"
        assert len(measured.opened_ns) == 1
        assert measured.parity is not None
        assert measured.parity.passed
        assert len(measured.parity.units) > 1
        for program in measured.programs:
            assert program.parity is not None
            assert program.parity.passed


def test_each_line_says_who_told_what_is_inside(profiles: dict[str, page.Profiled]) -> None:
    told = {role: {row.phase.name: row.told_by for row in one.table.rows} for role, one in profiles.items()}
    assert told["eager"]["denoise"] == told["eager"]["decode"] == "torch.profiler"
    assert told["other"]["denoise"] == "torch.profiler"
    assert told["other"]["decode"] == "OpenVINO"
    own = page.rankings(profiles["other"])["own_kernels"]
    assert sum(row.thousandths for row in own) == 1000


def test_shares_and_busy_and_idle_time_add_up(profiles: dict[str, page.Profiled]) -> None:
    for one in profiles.values():
        assert sum(row.phase.thousandths for row in one.table.rows) == 1000
        assert one.table.hidden_ms == 0
        assert one.table.busy_ms + one.table.idle_ms == pytest.approx(one.table.unit_ms)
        assert sum(row.thousandths for row in page.rankings(one)["operators"]) == 1000
        assert one.profile.compiled == ()
        assert page.derived(one)["stamps_ms"] is not None


def test_parts_of_networks_are_of_eager_slots_alone(profiles: dict[str, page.Profiled]) -> None:
    assert {part.slot for part in profiles["eager"].profile.parts} == {"world", "stream"}
    assert {part.slot for part in profiles["other"].profile.parts} == {"world"}
    assert page.derived(profiles["eager"])["hidden"] == []
    (said,) = page.hidden(profiles["other"])
    assert "stream" in said
    assert "not visible" in said


def test_traces_open_as_json_and_are_those_of_the_records(done: PipelineResult, folder: Path) -> None:
    for entry in done.stored:
        profile = entry.record.measurement.profile
        assert profile is not None
        assert profile.trace is not None
        (path,) = folder.rglob(Path(profile.trace.path).name)
        assert path.stat().st_size == profile.trace.bytes
        events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        assert {"unit", "denoise", "call"} <= {event.get("name") for event in events if event.get("pid") == "bakeoff"}
        assert profile.note == "no program of this mix is compiled by torch, so there is no compiler's log"
