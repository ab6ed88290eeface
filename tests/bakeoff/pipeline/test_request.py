"""What can be asked of a pipeline's run, and how each mistake is answered."""

from dataclasses import replace
from pathlib import Path

import pytest
from lab import Recorder, describe_here

from bakeoff.backends import resolve_backend
from bakeoff.models.component import Preset
from bakeoff.models.errors import BakeoffError
from bakeoff.models.toy.spec import SPEC, Config
from bakeoff.pipeline.plan import PipelinePlan, _lanes, _schedules, make_pipeline_plan
from bakeoff.pipeline.request import PipelineRequest
from bakeoff.plan.memory import programs_memory, weights_bytes

REQUEST = PipelineRequest("loops:Small", mixes=("eager",), device="cpu", threads=1)
OWL = {"pipeline": "owl"}
WHOLE = "small:tiny[steps=4]/wm=inductor[freezing]/bf16,image=eager/fp32@cpu"


@pytest.fixture(autouse=True)
def _described(monkeypatch: pytest.MonkeyPatch) -> None:
    describe_here(monkeypatch)


def plan(folder: Path, *mixes: str, **changes: object) -> PipelinePlan:
    return make_pipeline_plan(replace(REQUEST, mixes=mixes or REQUEST.mixes, **changes), folder / "runs", Recorder())  # type: ignore[arg-type]


def mixes(made: PipelinePlan) -> list[str]:
    return [str(mix.mix) for mix in made.mixes]


class TestMixes:
    def test_a_slot_that_is_not_named_is_eager_fp32(self, tmp_path: Path) -> None:
        made = plan(tmp_path, "image=inductor[freezing]/bf16", options={"steps": "3"})
        assert mixes(made) == ["small:tiny[steps=3]/wm=eager/fp32,image=inductor[freezing]/bf16@cpu"]
        assert made.mixes[0].role == ""
        assert made.loop.calls()["wm", "world"] == 3

    def test_a_whole_mix_says_preset_options_and_device(self, tmp_path: Path) -> None:
        request = PipelineRequest("loops:Small", mixes=(WHOLE, "eager"))
        made = make_pipeline_plan(request, tmp_path, Recorder())
        assert mixes(made) == [WHOLE, "small:tiny[steps=4]/wm=eager/fp32,image=eager/fp32@cpu"]
        assert (made.subject.device, made.loop.options) == ("cpu", {"steps": 4})

    def test_options_that_are_defaults_are_not_part_of_the_name(self, tmp_path: Path) -> None:
        made = plan(tmp_path, "wm=inductor[mode=default]/fp32", options={"steps": "2"})
        assert mixes(made) == ["small:tiny/wm=inductor/fp32,image=eager/fp32@cpu"]

    def test_programs_have_caches_in_one_folder_and_one_environment(self, tmp_path: Path) -> None:
        (mix,) = plan(tmp_path, "wm=inductor/bf16,image=openvino/fp32").mixes
        assert {row.cache_folder.parent for row in mix.rows.values()} == {mix.cache_folder}
        assert len({row.cache_folder for row in mix.rows.values()}) == 2
        for row in mix.rows.values():
            assert row.environment == mix.environment
        assert mix.environment["TORCHINDUCTOR_CACHE_DIR"].startswith(str(mix.cache_folder))
        assert mix.environment["OMP_NUM_THREADS"] == "1"

    def test_what_is_computed_has_one_id_and_each_way_another(self, tmp_path: Path) -> None:
        first, second = plan(tmp_path, "eager"), plan(tmp_path, "wm=inductor/bf16")
        assert first.subject_id == second.subject_id
        assert first.mixes[0].config_id != second.mixes[0].config_id
        assert first.subject_id != plan(tmp_path, "eager", input_seed=1).subject_id
        assert first.subject_id != plan(tmp_path, "eager", options={"steps": "1"}).subject_id

    def test_each_mix_runs_under_every_schedule_that_keeps_its_values(self, tmp_path: Path) -> None:
        made = plan(tmp_path, "eager", "image=eager/bf16", schedules=("all",), threads=4)
        eager, other = "small:tiny/wm=eager/fp32,image=eager/fp32@cpu", "small:tiny/wm=eager/fp32,image=eager/bf16@cpu"
        lanes = ["", "/decode-behind:3+1", "/decode-behind:2+2"]
        lanes += ["/context-beside-decode:3+1", "/context-beside-decode:2+2"]
        assert mixes(made) == [f"{eager}{lane}" for lane in lanes] + [f"{other}{lane}" for lane in lanes]
        assert len({mix.config_id for mix in made.mixes}) == 10
        assert made.notes == (NO_GRAPH,)
        assert [{key.slot: n for key, n in mix.threads.items()} for mix in made.mixes[:2]] == [
            {},
            {"wm": 3, "image": 1},
        ]
        assert made.mixes[1].label == "eager decode-behind:3+1"

    def test_a_mix_says_its_own_schedule(self, tmp_path: Path) -> None:
        whole = "small:tiny/wm=eager/fp32,image=eager/fp32@cpu/decode-behind:1+1"
        assert mixes(plan(tmp_path, whole, threads=2)) == [whole]

    def test_what_forbids_a_schedule_is_a_note_of_all(self, tmp_path: Path) -> None:
        made = plan(tmp_path, "eager", schedules=("all",))
        assert mixes(made) == ["small:tiny/wm=eager/fp32,image=eager/fp32@cpu"]
        why = "each lane needs a thread, and there is one"
        lanes = (f"--schedule {name}: {why}" for name in ("decode-behind", "context-beside-decode"))
        assert made.notes == (*lanes, NO_GRAPH)

    def test_on_cuda_a_unit_may_be_one_graph(self, tmp_path: Path) -> None:
        made = plan(tmp_path, "eager")
        cuda = replace(
            made,
            request=replace(made.request, schedules=("all",)),
            subject=replace(made.subject, device="cuda"),
        )
        found, refused = _schedules(cuda)
        assert found == ["", "decode-behind:1+1", "context-beside-decode:1+1", "one-graph"]
        assert refused == []
        assert _lanes(cuda, "one-graph") == {}


NO_GRAPH = "--schedule one-graph: only CUDA captures graphs; use it with --device cuda"
BEHIND = "small:tiny/wm=eager/fp32,image=eager/fp32@cpu/decode-behind:1+1"


@pytest.mark.parametrize(
    ("changes", "code", "text"),
    [
        ({"schedules": ("behind",)}, "unknown-name", "schedule 'behind'"),
        ({"schedules": ("decode-behind",)}, "bad-option", "--schedule decode-behind: each lane needs a thread"),
        ({"mixes": (BEHIND,)}, "bad-option", "the schedule decode-behind:1+1: this run has 1 thread"),
        ({"schedules": ("one-graph",)}, "bad-option", "--schedule one-graph: only CUDA captures graphs"),
        ({"mixes": (BEHIND[:-17] + "one-graph",)}, "bad-option", "the schedule one-graph: only CUDA captures graphs"),
        ({"mixes": (BEHIND[:-4],)}, "bad-variant", "'decode-behind' is no schedule; write decode-behind or"),
        ({"mixes": (BEHIND,), "threads": 2, "schedules": ("all",)}, "bad-option", "the mix has its own"),
        ({"mixes": (BEHIND,), "threads": 2, "horizon_db": 30.0}, "bad-option", "only pipeline and deadline run it"),
        ({"pipeline": "nope"}, "unknown-name", "no pipeline 'nope'"),
        ({"preset": "spin"}, "bad-option", "small:spin calls no program"),
        ({**OWL, "options": {"stops": "1"}}, "bad-option", "owl has no option 'stops'; did you mean steps"),
        ({"units": 0}, "bad-option", "--units 0: give 1 to 100000"),
        ({"minutes": 0.0}, "bad-option", "--minutes 0: give more than 0"),
        ({"threads": -1}, "bad-option", "--threads -1"),
        ({"checkpoints": ("wm",)}, "bad-option", "--checkpoint 'wm': give SLOT=FILE"),
        ({"checkpoints": ("wm=/no/such/file",)}, "bad-checkpoint", "/no/such/file"),
        ({"mixes": ("fast",)}, "bad-variant", "--mix 'fast': give eager, best, best-full"),
        ({"mixes": ("wm=eager/fp32,wm=eager/bf16",)}, "bad-variant", "slot wm is given twice"),
        ({"mixes": ("audio=eager/fp32",)}, "unknown-name", "small has no slot 'audio'; it has wm, image"),
        ({"mixes": ("other:tiny/wm=eager/fp32@cpu",)}, "bad-variant", "is a mix of other, not of small"),
        ({"mixes": (WHOLE, WHOLE.replace("steps=4", "steps=5"))}, "not-comparable", "do not compute the same"),
        ({"mixes": (WHOLE,), "options": {"steps": "3"}}, "bad-option", "has its own; leave one out"),
        ({"mixes": ("best",)}, "no-record", "run: bakeoff sweep toy --preset tiny --workload world"),
    ],
)
def test_each_mistake_is_one_error(changes: dict[str, object], code: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(BakeoffError) as raised:
        make_pipeline_plan(replace(REQUEST, **changes), tmp_path / "runs", Recorder())  # type: ignore[arg-type]
    assert text in str(raised.value)
    assert "\n" not in str(raised.value)
    assert raised.value.code == code


def test_without_records_eager_runs_alone_and_the_sweeps_are_named(tmp_path: Path) -> None:
    made = make_pipeline_plan(replace(REQUEST, mixes=()), tmp_path / "runs", Recorder())
    assert [mix.role for mix in made.mixes] == ["eager"]
    (note,) = made.notes
    assert note.endswith(
        "run: bakeoff sweep toy --preset tiny --workload world --device cpu --threads 1; "
        "bakeoff sweep toy --preset tiny --workload picture --device cpu --threads 1"
    )


def test_programs_of_one_slot_count_their_weights_once() -> None:
    preset = Preset("wide", Config(width=512), 1 << 24)
    workloads = [SPEC.workload(preset.config, name, 1) for name in ("world", "picture")]
    eager = [resolve_backend("eager")]
    apart = sum(programs_memory(preset, [workload], eager, "fp32", "cpu").device for workload in workloads)
    together = programs_memory(preset, workloads, eager, "fp32", "cpu").device
    assert apart - together == weights_bytes(preset, "fp32")
