"""What a profile is asked of: a pipeline, a component's program, or a variant."""

import pytest

from bakeoff.models.errors import BakeoffError
from bakeoff.models.pipelines import pipeline_module, resolve_pipeline
from bakeoff.pipeline.request import ProfileSubject, subject_of


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("owl", ProfileSubject("owl", "", (), ())),
        ("loops:PIPELINE", ProfileSubject("loops:PIPELINE", "", (), ())),
        ("wm:200m.step", ProfileSubject("call-wm", "200m", (), ("workload=step",))),
        (
            "wm:200m.step/inductor[freezing]/bf16@cpu",
            ProfileSubject("call-wm", "200m", ("wm=inductor[freezing]/bf16",), ("workload=step",), "cpu"),
        ),
        (
            "image:cpu.decode/eager/fp32",
            ProfileSubject("call-image", "cpu", ("image=eager/fp32",), ("workload=decode",)),
        ),
    ],
)
def test_subjects(text: str, found: ProfileSubject) -> None:
    assert subject_of(text, "", (), ()) == found


@pytest.mark.parametrize("text", ["", "wm", "wm:200m", "wm:.step", "nothing", "wm:200m.", "/", "a/b"])
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(BakeoffError) as refused:
        subject_of(text, "", (), ())
    assert refused.value.code in ("unknown-name", "bad-variant")


def test_what_the_subject_says_is_not_said_otherwise() -> None:
    with pytest.raises(BakeoffError, match="--mix"):
        subject_of("wm:tiny.step/eager/fp32", "", ("eager",), ())
    for text in ("wm:tiny.step", "wm:tiny.step/eager/fp32"):
        with pytest.raises(BakeoffError, match="--preset"):
            subject_of(text, "200m", (), ())


@pytest.mark.parametrize("component", ["wm", "image", "audio", "matrix-vae", "matrix-wm", "toy"])
def test_each_program_of_a_component_is_a_loop_of_one_call(component: str) -> None:
    pipeline = resolve_pipeline(f"call-{component}")
    assert pipeline_module(f"call-{component}") == "bakeoff.models.pipelines.single"
    from bakeoff.models import resolve_component

    spec = resolve_component(component)
    for workload in spec.workload_names(spec.preset("tiny").config):
        loop = pipeline.loop(pipeline.preset("tiny"), pipeline.options(workload=workload))
        assert loop.calls() == {(spec.name, workload): 1}
        assert len(loop.outputs) == len(spec.workload(spec.preset("tiny").config, workload, 1).outputs)


def test_a_component_needs_a_workload() -> None:
    pipeline = resolve_pipeline("call-wm")
    with pytest.raises(BakeoffError, match="needs a workload"):
        pipeline.loop(pipeline.preset("tiny"), pipeline.options())
