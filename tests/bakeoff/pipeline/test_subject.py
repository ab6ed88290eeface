"""What a profile is asked of: a pipeline, or a component's program."""

import pytest

from bakeoff.mix import parse_subject
from bakeoff.models import resolve_component
from bakeoff.models.errors import BakeoffError
from bakeoff.models.pipelines import pipeline_modules
from bakeoff.models.pipelines.pipeline import Loop
from bakeoff.models.pipelines.single import single
from bakeoff.pipeline.request import PipelineRequest, subject_of

STEP = PipelineRequest("call-wm", "200m", options={"workload": "step"})


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("owl", PipelineRequest("owl")),
        ("loops:Small", PipelineRequest("loops:Small")),
        ("folder/mine.py:Loop", PipelineRequest("folder/mine.py:Loop")),
        ("wm:200m.step", STEP),
    ],
)
def test_subjects(text: str, found: PipelineRequest) -> None:
    assert subject_of(PipelineRequest(text)) == found


@pytest.mark.parametrize("text", ["", "wm", "wm:200m", "wm:.step", "nothing", "wm:200m.", "/", "a/b"])
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(BakeoffError) as refused:
        subject_of(PipelineRequest(text))
    assert refused.value.code in ("unknown-name", "bad-variant")


def test_what_the_subject_says_is_not_said_otherwise() -> None:
    with pytest.raises(BakeoffError, match=r"wm:tiny\.step --mix wm=int8.+inductor/fp32") as refused:
        subject_of(PipelineRequest("wm:tiny.step/int8[mode=dynamic]+inductor/fp32@cpu"))
    assert refused.value.code == "bad-variant"
    with pytest.raises(BakeoffError, match="preset 200m: the subject says tiny"):
        subject_of(PipelineRequest("wm:tiny.step", "200m"))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("owl", ("owl", "", {})),
        ("owl:tiny", ("owl", "tiny", {})),
        ("owl[steps=10,fast]", ("owl", "", {"steps": "10", "fast": True})),
        ("owl:200m[steps=10]", ("owl", "200m", {"steps": "10"})),
        ("wm:200m.step", ("wm:200m.step", "", {})),
        ("a[b]/mine.py:Loop", ("a[b]/mine.py:Loop", "", {})),
        ("mine.py:Loop:large[steps=3]", ("mine.py:Loop", "large", {"steps": "3"})),
        ("loops:Small", ("loops:Small", "", {})),
        ("my.loops:Small:large", ("my.loops:Small", "large", {})),
    ],
)
def test_a_name_may_have_a_preset_and_options(text: str, found: tuple[str, str, dict[str, object]]) -> None:
    assert parse_subject(text) == found


def tiny_call(component: str, **options: str) -> Loop:
    cls = single(component)
    return cls("tiny", cls.options_of(options)).loop()


@pytest.mark.parametrize("component", ["wm", "image", "audio", "matrix-vae", "matrix-wm", "toy"])
def test_each_program_of_a_component_is_a_loop_of_one_call(component: str) -> None:
    assert pipeline_modules(f"call-{component}") == ("bakeoff.models.pipelines.single",)
    spec = resolve_component(component)
    config = spec.preset("tiny").config
    for workload in spec.workload_names(config):
        loop = tiny_call(component, workload=workload)
        assert loop.calls() == {(spec.name, workload): 1}
        assert len(loop.outputs) == len(spec.workload(config, workload, 1).outputs)


def test_a_component_needs_a_workload() -> None:
    with pytest.raises(BakeoffError, match="wm needs a workload, as in workload=NAME; it has single, step, "):
        tiny_call("wm")
