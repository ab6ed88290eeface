"""Descriptions of brought models, made in this process."""

from pathlib import Path
from typing import Any

import describing
import msgspec
import pytest
import torch
from brought_models import Structured
from describing import MODELS, source_of

from bakeoff.models.brought.about import About
from bakeoff.models.component import Size
from bakeoff.models.errors import BakeoffError
from bakeoff.worker.subject import LoadedSubject, altered, cast_inputs


def described(name: str, folder: Path, **asked: Any) -> About:
    return describing.described(source_of(MODELS, name), folder / name, **asked)


def loaded(name: str, folder: Path, workload: str = "call") -> LoadedSubject:
    return describing.loaded(source_of(MODELS, name), folder / name, workload)


def test_shapes_work_and_weights_are_found_out(tmp_path: Path) -> None:
    about = described("picture", tmp_path)
    (one,) = about.sets
    (given,), (made,) = one.inputs, one.outputs
    assert (given.name, given.shape, given.dtype, made.name, made.shape) == (
        ("x", (1, 3, 16, 16), "", "output", (1, 4, 16, 16))
    )
    wide, narrow = 2 * 8 * 3 * 9 * 256, 2 * 4 * 8 * 256
    assert (one.work.flops, one.work.convolution_flops) == (wide + narrow, wide)
    assert about.parameters == one.work.weight_elements == 8 * 27 + 8 + 16 + 32 + 4
    assert one.work.io_elements == 3 * 256 + 4 * 256
    assert about.layers == ("conv2d",)
    assert about.fp64
    assert about.notes == ()


def test_the_given_inputs_are_the_first_set_and_the_others_have_their_values(tmp_path: Path) -> None:
    found = loaded("picture", tmp_path)
    given = set(found.sets[0]["x"].flatten().tolist())
    assert len(found.sets) == 4
    for other in found.sets[1:]:
        assert not torch.equal(other["x"], found.sets[0]["x"])
        assert set(other["x"].flatten().tolist()) <= given


def test_integers_keep_their_dtype_and_range(tmp_path: Path) -> None:
    found = loaded("language", tmp_path)
    ids, mask = found.workload.inputs
    assert (ids.dtype, mask.dtype) == ("int64", "bool")
    logits, best = found.workload.outputs
    assert (logits.dtype, best.dtype) == ("", "int64")
    changed = altered(found.sets[0], 15 / 16)
    for inputs in (
        *found.sets,
        changed,
        found.source.calibration("1"),
        cast_inputs(found.workload, changed, "bf16", "cpu"),
    ):
        assert inputs["ids"].dtype == torch.int64
        assert 0 <= int(inputs["ids"].min()) <= int(inputs["ids"].max()) < 100
        assert bool(inputs["mask"].all())  # ones stay ones
        found.module(*inputs.values())
    assert not torch.equal(changed["ids"], found.sets[0]["ids"])


def test_trees_of_arguments_and_results_are_taken_apart(tmp_path: Path) -> None:
    found = loaded("structured", tmp_path)
    assert [spec.name for spec in found.workload.inputs] == ["batch.x"]
    assert [spec.name for spec in found.workload.outputs] == ["hidden", "parts.pair.first", "parts.pair.second"]
    inner = found.module.module
    assert type(inner).__qualname__ == Structured.__qualname__
    x = found.sets[0]["batch.x"]
    hidden, first, second = found.module(x)
    assert torch.equal(hidden, inner({"x": x}, 0.5).hidden)  # type: ignore[operator]
    assert torch.equal(first, hidden + 1)
    assert torch.equal(second, x * 2)


def test_calls_for_checks_are_not_those_for_calibration(tmp_path: Path) -> None:
    """Call n has values around n."""
    found = loaded("recorded", tmp_path)
    found_values = {round(float(one["x"].mean())) for one in found.sets}
    calibrating = {round(float(found.source.calibration(str(seed))["x"].mean())) for seed in range(20)}
    assert found_values == {0, 1, 2}
    assert calibrating == {3, 4, 5}


def test_a_model_that_names_a_dtype_has_references_in_fp32(tmp_path: Path) -> None:
    about = described("fp32_alone", tmp_path)
    assert not about.fp64
    assert any("fp64" in note for note in about.notes)
    assert any("bf16" in note for note in about.notes)


def test_a_limit_that_a_cast_within_widens_is_told_with_both_errors(tmp_path: Path) -> None:
    about = described("rounded", tmp_path)
    assert about.tolerance_fp32 > 1e-3
    (note,) = about.notes
    assert "e-03 off fp64" in note
    assert f"may be {about.tolerance_fp32:.1e} off in place of 1e-04" in note
    assert described("picture", tmp_path).notes == ()


def test_outputs_that_stay_fp32_and_those_that_depend_on_nothing_are_marked(tmp_path: Path) -> None:
    (one,) = described("upcast", tmp_path).sets
    assert [spec.keep_fp32 for spec in one.outputs] == [False, True, False]
    assert [spec.held for spec in one.outputs] == [False, False, True]


@pytest.mark.parametrize("name", ["positional", "not_on_meta", "sound", "branching", "remembering", "counting"])
def test_models_of_other_kinds_are_described(name: str, tmp_path: Path) -> None:
    found = loaded(name, tmp_path)
    outputs = found.module(*found.sets[0].values())
    assert [tuple(one.shape) for one in outputs] == [spec.shape for spec in found.workload.outputs]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("dropping", "differs by .* between two calls .* training mode: call eval()"),
        ("noisy", "output differs by .* take random numbers as an input, and call F.dropout with training="),
        ("selecting", "shapes of its outputs depend on the values .* bakeoff inspect .* --record"),
        ("selecting_of_several", "shapes of its outputs depend on the values .* bakeoff inspect .* --record"),
        ("one_value", r"are the same again; give several calls: .*more="),
        ("overwriting", "writes into its input x"),
        ("constant", "the same for all inputs"),
        ("raising", r"raised RuntimeError \(brought_models.py, line \d+\): no such checkpoint"),
        ("no_inputs", r"returned a Linear; return \(module, inputs\)"),
        ("no_module", "gave a str as the module"),
        ("wrong_shape", "raised RuntimeError.*3x5 and 2x2"),
        ("complex_input", "is complex64; floats, integers and booleans"),
        ("not_finite", "the same for all inputs"),
        ("unknown_state", "state: there is no 'present'; there are output.0, output.1"),
        ("needing", "needs the arguments size; give them defaults"),
        ("missing", "the file has no 'missing'"),
    ],
)
def test_what_cannot_be_checked_is_refused_with_its_reason(name: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(BakeoffError, match=said) as raised:
        described(name, tmp_path)
    assert "\n" not in str(raised.value)
    assert not (tmp_path / name / "about.json").exists()


def test_a_factory_that_gives_other_weights_each_time_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BakeoffError, match="its weights are not those that were described"):
        loaded("other_weights", tmp_path)


def test_the_hash_is_of_what_decides_the_outputs(tmp_path: Path) -> None:
    about = described("picture", tmp_path)
    (one,) = about.sets
    batched = msgspec.structs.replace(one, batches=(Size("batch=2", True, one.inputs, one.outputs, one.work),))
    assert msgspec.structs.replace(about, sets=(batched,), place="unet", notes=("x",)).hash == about.hash
    for other in ({"given": "other"}, {"weights": "other"}, {"state": {"output": "x"}}):
        assert msgspec.structs.replace(about, **other).hash != about.hash
