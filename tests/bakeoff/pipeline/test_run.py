"""What a run of a pipeline does around its workers, which measure nothing here."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from lab import FAST, TORCHLESS, Recorder, left_alive, marked_folder

from bakeoff.machine import host, paths
from bakeoff.models.errors import BakeoffError
from bakeoff.pipeline.plan import PipelinePlan, make_pipeline_plan
from bakeoff.pipeline.request import PipelineRequest
from bakeoff.pipeline.run import PipelineResult, run_pipeline, stored_of
from bakeoff.pipeline.session import loop_reference_folder
from bakeoff.process import supervisor
from bakeoff.record.pipeline import PipelineRecord
from bakeoff.record.store import find, load_all
from bakeoff.sweeps.resume import begin, find_unfinished

pytestmark = pytest.mark.timeout(120)

OTHER = "image=inductor/fp32"
REQUEST = PipelineRequest(
    "loops:Small",
    mixes=("eager", OTHER),
    device="cpu",
    units=5,
    threads=1,
    policy=FAST,
)


@pytest.fixture(autouse=True)
def _lab(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "WORKER", TORCHLESS)


def run(
    folder: Path, faults: str = "", request: PipelineRequest = REQUEST, progress: Recorder | None = None
) -> tuple[PipelineResult, dict[str, PipelineRecord]]:
    """Run a request; the records by their roles, `other` for the mix that has none."""
    with marked_folder(folder) as marker, pytest.MonkeyPatch.context() as patch:
        patch.setenv("BAKEOFF_TEST_FAULTS", faults)
        plan = make_pipeline_plan(request, paths.runs_folder(), Recorder())
        done = run_pipeline(plan, paths.runs_folder(), "why", False, progress or Recorder())
        assert left_alive(marker) == []
        assert {entry.id for entry in done.stored} <= {entry.id for entry in load_all(paths.runs_folder()).pipelines}
    return done, {entry.record.role or "other": entry.record for entry in done.stored}


def test_mixes_take_turns_until_each_has_its_units(tmp_path: Path) -> None:
    done, records = run(tmp_path)
    assert done.interrupted == ()
    assert [record.status for record in records.values()] == ["ok", "ok"]
    for record in records.values():
        units = record.measurement.units
        assert units is not None
        first, turn = ("resuming", *["steady"] * 3), ("resuming", *["steady"] * 5)
        assert units.kinds == (*["filling"] * 2, "resuming", *first, *turn * 4), "5 and 25 ms, at first of cold units"
        assert (record.how, record.note, record.run) == ("interleaved", "why", done.run)
        assert record.calls == {"wm.world": 2, "image.picture": 1}
        assert (record.options, record.sizes) == ({"steps": 2}, {"steps": 2})
        assert [(program.slot, program.variant.workload) for program in record.measurement.programs] == [
            ("wm", "world"),
            ("image", "picture"),
        ]
        assert all(program.source is not None for program in record.measurement.programs)
    eager, other = records["eager"], records["other"]
    assert str(other.mix) == "small:tiny/wm=eager/fp32,image=inductor/fp32@cpu"
    assert eager.subject_id == other.subject_id
    assert eager.config_id != other.config_id
    assert find(tmp_path / "runs", done.stored[0].id).record == eager


def test_schedules_of_a_mix_take_turns_as_mixes_do(tmp_path: Path) -> None:
    request = replace(REQUEST, mixes=("eager",), threads=2, schedules=("sequential", "decode-behind"))
    with marked_folder(tmp_path):
        plan = make_pipeline_plan(request, paths.runs_folder(), Recorder())
        done = run_pipeline(plan, paths.runs_folder(), "", False, Recorder())
    records = [entry.record for entry in done.stored]
    assert [record.mix.schedule for record in records] == ["", "decode-behind:1+1"]
    assert {record.how for record in records} == {"interleaved"}
    assert {record.run for record in records} == {done.run}
    assert find(tmp_path / "runs", done.stored[1].id).record == records[1]


FAULTS = {
    "crash": ("image=inductor/fp32", "crashed", "SIGSEGV in phase unit"),
    "build": ("image=inductor[freezing]/fp32", "build_failed", "wm.world: no such operator"),
    "sum": ("wm=inductor/bf16", "unstable", "the lines of unit 0 add up to 4999993 ns, it took 5000000 ns"),
    "claims": ("wm=eager/bf16", "unstable", "the units of the report are not those that were announced turn by turn"),
    "unsettled": ("wm=inductor[freezing]/fp32", "unstable", "no steady unit: times did not settle within 44 units"),
}
"""By fault, the slot of the mix that has it, its status, and the reason."""
CANNOT_RUN = {
    "image=canaries:MISSING_LIBRARY/bf16": ("unavailable", "image: unavailable: "),
    "wm=canaries:BF16_ONLY/fp32": ("unsupported", "wm: unsupported: "),
}
"""By slot of a mix, its status and how the reason begins."""


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> PipelineResult:
    """One run of eager, of a mix with each fault and of those that cannot run here."""
    faults = " ".join(f"{fault}@{slot}" for fault, (slot, _, _) in FAULTS.items())
    mixes = ("eager", *(slot for slot, _, _ in FAULTS.values()), *CANNOT_RUN)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervisor, "WORKER", TORCHLESS)
        return run(tmp_path_factory.mktemp("faulty"), faults, replace(REQUEST, mixes=mixes))[0]


def test_what_goes_wrong_in_one_mix_is_its_status(faulty: PipelineResult) -> None:
    found = [(entry.record.status, entry.record.measurement.reason) for entry in faulty.stored[1:]]
    assert found[: len(FAULTS)] == [(status, reason) for _, status, reason in FAULTS.values()]
    for (status, reason), (expected, named) in zip(found[len(FAULTS) :], CANNOT_RUN.values(), strict=True):
        assert status == expected
        assert reason.startswith(named)


def test_the_others_go_on(faulty: PipelineResult) -> None:
    eager = faulty.stored[0].record
    assert eager.status == "ok"
    assert eager.measurement.units is not None
    assert len(eager.measurement.units.kinds) >= 40, "as long as any mix runs"


def test_a_mix_that_hangs_is_timed_out(tmp_path: Path) -> None:
    request = replace(REQUEST, policy=replace(REQUEST.policy, phase_deadline_s=2.0))
    _, records = run(tmp_path, "hang@inductor", request)
    assert (records["other"].status, records["eager"].status) == ("timeout", "ok")
    assert records["other"].measurement.reason == "unit took longer than 2 s"


def test_mixes_wait_for_each_other_to_end(tmp_path: Path) -> None:
    mixes = ("eager", OTHER, "wm=inductor/fp32")
    request = replace(REQUEST, mixes=mixes, policy=replace(REQUEST.policy, phase_deadline_s=1.2))
    done, _ = run(tmp_path, "judges@fp32", request)
    assert [entry.record.status for entry in done.stored] == ["ok"] * 3


def test_a_mix_that_is_not_idle_between_its_units_is_told(tmp_path: Path) -> None:
    _, records = run(tmp_path, "busy@inductor")
    for record in records.values():
        (finding,) = [finding for finding in record.measurement.findings if finding.code == "not-idle"]
        assert finding.text.startswith("wm=eager/fp32,image=inductor/fp32 took ")


def test_the_rounds_end_when_the_time_is_over(tmp_path: Path) -> None:
    request = replace(REQUEST, mixes=("eager",), units=100_000, minutes=0.02)
    _, records = run(tmp_path, request=request)
    assert (records["eager"].status, records["eager"].how) == ("ok", "alone")
    (finding,) = [one for one in records["eager"].measurement.findings if one.code == "few-units"]
    assert finding.text.endswith("of 100000 steady units: the rounds ended after 0.02 minutes")


def test_rounds_that_end_before_a_steady_unit_give_no_figures(tmp_path: Path) -> None:
    request = replace(REQUEST, mixes=("eager",), minutes=1e-9)
    _, records = run(tmp_path, "unsettled@eager", request)
    found = [one.text for one in records["eager"].measurement.findings if one.code == "few-units"]
    assert [text for text in found if text.startswith("0 of 5 steady units: the rounds ended after ")]
    assert records["eager"].status == "unstable"
    assert records["eager"].measurement.reason == "1 unit ran, and the windows are full after 2"
    codes = [one.code for one in records["eager"].measurement.findings]
    assert codes.index("few-units") < codes.index("warm-up")


def test_mixes_that_do_not_fit_together_run_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_pipeline_plan(REQUEST, tmp_path, Recorder())
    monkeypatch.setattr(host, "available_bytes", lambda _device: plan.mixes[0].memory.device * 3 // 2)
    progress = Recorder()
    _, records = run(tmp_path, progress=progress)
    assert {(record.status, record.how) for record in records.values()} == {("ok", "in turn")}
    assert ("say", "The mixes do not fit in memory at once; they run in turn.") in progress.told


def built(folder: Path) -> list[str]:
    return sorted(path.read_text() for path in (folder / "cache/compiled").glob("*/*/built"))


def test_caches_and_references_serve_the_next_run_unless_a_file_changed(tmp_path: Path) -> None:
    progress = Recorder()
    run(tmp_path)
    assert built(tmp_path) == ["once"] * 4
    run(tmp_path, progress=progress)
    assert built(tmp_path) == ["onceagain"] * 4
    assert ("event", "loop reference") not in progress.told
    with marked_folder(tmp_path):
        folder = loop_reference_folder(make_pipeline_plan(REQUEST, paths.runs_folder(), Recorder()))
    assert json.loads((folder / "reference.json").read_text()) == 2
    floors = folder / "floor-image=fp32,wm=fp32.json", folder / "floor-image=fp32,wm=bf16.json"
    assert [floor.exists() for floor in floors] == [True, False]
    run(tmp_path, request=replace(REQUEST, mixes=("wm=eager/bf16",)), progress=progress)
    assert ("event", "loop reference") in progress.told
    assert [floor.exists() for floor in floors] == [True, True], "another mix adds its dtypes"
    (folder / "reference.json").write_text("9")
    run(tmp_path, progress=(progress := Recorder()))
    assert ("event", "loop reference") in progress.told
    assert json.loads((folder / "reference.json").read_text()) == 2


class Interrupted(Recorder):
    """Ctrl-C when mixes have taken a few turns."""

    def event(self, event: supervisor.Event) -> None:
        super().event(event)
        if self.told.count(("event", "rounds")) == 4:
            raise KeyboardInterrupt


def plan_and_run(folder: Path, resume: bool, progress: Recorder, request: PipelineRequest = REQUEST) -> PipelineResult:
    with marked_folder(folder) as marker:
        plan = make_pipeline_plan(request, paths.runs_folder(), Recorder())
        done = run_pipeline(plan, paths.runs_folder(), "", resume, progress)
        assert left_alive(marker) == []
    return done


def test_ctrl_c_keeps_what_is_complete_and_resume_runs_the_rest(tmp_path: Path) -> None:
    request = replace(REQUEST, mixes=("eager", OTHER, "image=canaries:MISSING_LIBRARY/bf16"))
    done = plan_and_run(tmp_path, False, Interrupted(), request)
    assert [entry.record.status for entry in done.stored] == ["unavailable"]
    assert done.interrupted == ("eager", "wm=eager/fp32,image=inductor/fp32")
    again = plan_and_run(tmp_path, True, Recorder(), request)
    assert again.run == done.run
    assert [entry.record.status for entry in again.stored] == ["ok", "ok", "unavailable"]
    assert len(load_all(tmp_path / "runs").pipelines) == 3
    with pytest.raises(BakeoffError, match="no unfinished run of pipeline small") as raised:
        plan_and_run(tmp_path, True, Recorder(), request)
    assert raised.value.code == "nothing-to-resume"


def test_a_run_of_another_plan_is_not_resumed(tmp_path: Path) -> None:
    with marked_folder(tmp_path):
        runs, cache = paths.runs_folder(), paths.cache_folder()

        def plan(request: PipelineRequest) -> PipelinePlan:
            return make_pipeline_plan(request, runs, Recorder())

        state = begin(plan(REQUEST).key, "pipeline small", runs, cache)
        assert find_unfinished(plan(REQUEST).key, "pipeline small", runs, cache) == state
        assert stored_of(state, runs) == {}
        with pytest.raises(BakeoffError, match="the unfinished run had another plan"):
            find_unfinished(plan(replace(REQUEST, units=6)).key, "pipeline small", runs, cache)
