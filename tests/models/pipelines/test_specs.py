"""The pipelines as data: presets resolve, calls and sizes are those of the published loops, wrong loops are refused."""

import subprocess
import sys
from dataclasses import replace

import pytest
from wrong_loops import replaced

from bakeoff.models.errors import BakeoffError
from bakeoff.models.pipelines import pipeline_names, resolve_pipeline
from bakeoff.models.pipelines.owl import spec as owl
from bakeoff.models.pipelines.pipeline import Call, Given, Glue, Loop, Operation, Output, Program, Shift
from bakeoff.models.pipelines.toy import spec as toy

EVERY_PRESET = [(name, preset.name) for name in pipeline_names() for preset in resolve_pipeline(name).presets]


def owl_loop(preset: str = "tiny", **options: object) -> Loop:
    return owl.PIPELINE.loop(owl.PIPELINE.preset(preset), owl.Options(**options))  # type: ignore[arg-type]


def toy_loop() -> Loop:
    return toy.PIPELINE.loop(toy.PIPELINE.preset("tiny"), toy.Options())


def test_specs_import_no_torch() -> None:
    code = (
        "import sys\nfrom bakeoff.models.pipelines import pipeline_names, resolve_pipeline\n"
        "for name in pipeline_names():\n"
        "    found = resolve_pipeline(name)\n"
        "    for preset in found.presets: found.loop(preset, found.options())\n"
        "sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(("name", "preset"), EVERY_PRESET)
def test_a_loop_validates_with_all_its_components(name: str, preset: str) -> None:
    pipeline = resolve_pipeline(name)
    assert pipeline.name == name
    loop = pipeline.loop(pipeline.preset(preset), pipeline.options())
    assert loop.steady
    assert set(pipeline.default_preset) == {"cpu", "cuda"}
    assert set(loop.calls()) <= {(program.slot, program.workload) for program in loop.programs}


def test_calls_of_an_owl_frame() -> None:
    loop = owl_loop("200m")
    assert loop.calls() == {
        ("wm", "step29"): 10,
        ("wm", "append29"): 1,
        ("image", "decode"): 1,
        ("audio", "decode30"): 1,
    }
    assert loop.phases() == ("denoise", "context", "image", "audio", "present")
    assert loop.sizes == {"steps": 10, "window": 30, "audio window": 30}
    assert owl_loop("1b").calls()["wm", "step59"] == 20
    assert owl_loop("200m", guidance="shared", steps=4).calls()["wm", "step29"] == 8
    assert {program.batch for program in owl_loop("200m", guidance="batched").programs if program.slot == "wm"} == {2}
    assert owl_loop("200m", audio_window=120).programs[-1].workload == "decode120"


def test_windows_of_an_owl_frame_shift_by_a_frame() -> None:
    shifted = [op.window for op in owl_loop("200m").steady if isinstance(op, Shift)]
    assert sorted(shifted) == sorted(
        [*(f"cache_{kind}.{layer}" for layer in range(13) for kind in "kv"), "audio_window"]
    )


def test_noise_levels() -> None:
    config = owl.WM.preset("200m").config
    assert owl.noise_levels(config, owl.Options(steps=4)) == (1, 0.75, 0.5, 0.25, 0)
    # 3 s / (1 + 2 s) of the uniform levels
    assert owl.noise_levels(config, owl.Options(steps=4, sampler="euler3")) == pytest.approx((1, 0.9, 0.75, 0.5, 0))
    assert owl.noise_levels(config, owl.Options(schedule="1:0.25:0")) == (1, 0.25, 0)
    assert len(owl.noise_levels(config, owl.Options())) == 11


@pytest.mark.parametrize(
    "options",
    [
        {"steps": -1},
        {"noise_prev": 1.0},
        {"noise_prev": float("nan")},
        {"guidance_scale": float("inf")},
        {"audio_window": -1},
        {"schedule": "1:0.5"},
        {"schedule": "0:1"},
        {"schedule": "1:nan:0"},
        {"schedule": "one:0"},
        {"schedule": "1:0", "steps": 3},
    ],
)
def test_owl_refuses_bad_options(options: dict[str, object]) -> None:
    with pytest.raises(BakeoffError) as refused:
        owl.Options(**options)  # type: ignore[arg-type]
    assert refused.value.code == "bad-option"


def _without_output(operations: tuple[Operation, ...], function: str) -> tuple[Operation, ...]:
    return tuple(op for op in operations if not (isinstance(op, Glue) and op.function == function))


def test_phases_of_known_length() -> None:
    loop = toy.PIPELINE.loop(toy.PIPELINE.preset("spin"), toy.Options())
    assert loop.phases() == ("a", "b", "c")
    lengths = [op.numbers[0] for op in loop.steady if isinstance(op, Glue)]
    assert sum(lengths) == 11
    assert not loop.programs


def test_a_value_that_nothing_made_is_refused() -> None:
    loop = toy_loop()
    with pytest.raises(BakeoffError, match="reads z, which nothing made before"):
        replace(loop, steady=_without_output(loop.steady, "latent"))
    with pytest.raises(BakeoffError, match="reads sound, which nothing made"):
        replace(loop, outputs=(Output("sound"),))


def test_an_unknown_program_is_refused() -> None:
    loop = toy_loop()
    with pytest.raises(BakeoffError, match=r"stream\.stream is called but not a program"):
        replace(loop, programs=loop.programs[:1])
    with pytest.raises(BakeoffError, match="no workload 'sleep'"):
        replace(loop, programs=(*loop.programs, Program("world", "sleep")))
    with pytest.raises(BakeoffError, match="slot sound, which the loop lacks"):
        replace(loop, programs=(*loop.programs, Program("sound", "sound")))


def test_inputs_of_a_call_are_those_of_its_workload() -> None:
    loop = toy_loop()

    def changed(inputs: dict[str, str], outputs: dict[str, str]) -> Loop:
        return replaced(loop, lambda op: isinstance(op, Call) and op.slot == "stream", inputs=inputs, outputs=outputs)

    with pytest.raises(BakeoffError, match=r"lacks its input cache\.00"):
        changed({"z": "z"}, {"video": "video"})
    with pytest.raises(BakeoffError, match="names w, which is neither"):
        changed({"z": "z", "cache.00": "cache", "w": "z"}, {"video": "video"})
    with pytest.raises(BakeoffError, match="names sound, which is neither"):
        changed({"z": "z", "cache.00": "cache"}, {"video": "video", "sound": "sound"})
    with pytest.raises(BakeoffError, match=r"takes cache\.00 of shape \(1, 32, 2, 16, 16\); noise has \(1, 16, 32\)"):
        changed({"z": "z", "cache.00": "noise"}, {"video": "video"})


def test_a_window_takes_only_what_fits_it() -> None:
    loop = toy_loop()
    given = (*loop.given, Given("wide", (1, 16, 33), "world", "unit"))
    with pytest.raises(BakeoffError, match=r"window cache_k of shape \(1, 64, 32\) cannot take wide"):
        replaced(replace(loop, given=given), lambda op: isinstance(op, Shift) and op.window == "cache_k", new="wide")


def test_an_output_that_a_later_call_overwrites_is_refused() -> None:
    loop = owl_loop(guidance="shared", steps=2)
    kept = tuple(op for op in loop.steady if not (isinstance(op, Glue) and op.function == "keep"))
    # the prediction with controls under names of its own, but without a copy
    first = True
    changed: list[Operation] = []
    for op in kept:
        if isinstance(op, Call) and op.phase == "denoise":
            op = replace(op, outputs={"video": "with_v", "audio": "with_va"}) if first else op
            first = not first
        changed.append(op)
    with pytest.raises(BakeoffError, match=r"reads with_v after the next call of wm\.step4, which overwrites it"):
        replace(loop, steady=tuple(changed))
