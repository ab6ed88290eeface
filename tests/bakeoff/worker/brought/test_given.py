"""What is judged is the model that was given: its function, its precision, its layouts, and no other cell's failure."""

from pathlib import Path

import describing
import given_models
import msgspec
import pytest
import torch
from torch import nn

import bakeoff.worker.cast
from bakeoff.models.brought.about import About
from bakeoff.models.errors import BakeoffError
from bakeoff.models.signature import Node, describe, rebuild
from bakeoff.process.jobs import ReferenceJob, Subject
from bakeoff.worker.reference.error import MOST_NOISE
from bakeoff.worker.reference.files import ReferenceFiles
from bakeoff.worker.reference.make import make_reference
from bakeoff.worker.reference.parity import Reference
from bakeoff.worker.subject import LoadedSubject, cast_subject, load_subject


def described(name: str, folder: Path) -> About:
    return describing.described(describing.source_of(describing.GIVEN, name), folder / name)


def subject(name: str, folder: Path) -> Subject:
    return describing.subject(folder / name, described(name, folder).sets[0].name)


def referenced(name: str, folder: Path, *dtypes: str) -> tuple[LoadedSubject, ReferenceFiles]:
    which = subject(name, folder)
    made = folder / f"{name}-references"
    make_reference(ReferenceJob(which, dtypes, str(made)), lambda *_: None)
    return load_subject(which), ReferenceFiles(made, None)


@pytest.mark.parametrize("name", ["rotated", "weighted"])
def test_complex_weights_stay_complex_in_references_and_rows(name: str, tmp_path: Path) -> None:
    loaded, files = referenced(name, tmp_path, "fp32", "bf16")
    (own,) = loaded.source.returned().values()
    (reference,) = files.outputs("set0").values()
    assert reference.dtype == torch.float64
    assert float((own - reference).norm() / own.norm()) < 1e-5
    assert files.eager("fp32").noise["output"] < 1e-5
    sets = cast_subject(loaded, "bf16", "cpu")
    assert any(tensor.is_complex() for _, tensor in bakeoff.worker.cast.named_tensors(loaded.module))
    assert float((loaded.module(*sets[0].values())[0] - reference).norm() / reference.norm()) < 0.05


def test_a_cast_that_makes_another_function_of_the_model_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch's own cast drops the imaginary parts in the reference and in every row alike, so that they agree."""
    which = subject("rotated", tmp_path)

    def to_real(module: nn.Module, _given: object, dtype: str, device: str) -> nn.Module:
        return module.to(device=device, dtype={"fp64": torch.float64, "given": torch.float32}.get(dtype, torch.float32))

    monkeypatch.setattr("bakeoff.worker.subject.cast_module", to_real)
    with pytest.raises(BakeoffError) as refused:
        make_reference(ReferenceJob(which, ("fp32",), str(tmp_path / "references")), lambda *_: None)
    assert refused.value.code == "other-function"
    assert not (tmp_path / "references").exists()


def test_a_dtype_that_eager_fails_in_leaves_the_others(tmp_path: Path) -> None:
    loaded, files = referenced("no_half", tmp_path, "fp32", "bf16")
    assert not files.eager("fp32").unmeasured
    assert "eager fails in bf16" in files.eager("bf16").unmeasured
    reference = Reference(files, loaded, "bf16")
    assert reference.unmeasured
    outputs = tuple(value.bfloat16() for value in files.outputs("set0").values())
    assert reference.parity([reference.differences(0, outputs)]).passed, "an engine with a kernel of its own is judged"


def test_where_eager_is_not_finite_the_limit_is_of_the_dtypes_size(tmp_path: Path) -> None:
    loaded, files = referenced("overflowing", tmp_path, "fp16")
    assert "not finite in fp16" in files.eager("fp16").unmeasured
    reference = Reference(files, loaded, "fp16")
    wanted = tuple(files.outputs("set0").values())
    near = tuple((value * (1 + 1e-3)).half() for value in wanted)
    far = tuple((value * 1.1).half() for value in wanted)
    assert reference.parity([reference.differences(0, near)]).passed
    assert not reference.parity([reference.differences(0, far)]).passed


def test_an_output_that_hardly_varies_is_marked_while_another_judges(tmp_path: Path) -> None:
    loaded, files = referenced("averaging", tmp_path, "fp32", "bf16")
    reference = Reference(files, loaded, "bf16")
    loaded.cast("bf16", "cpu")
    sets = cast_subject(load_subject(subject("averaging", tmp_path)), "bf16", "cpu")
    found = reference.parity(
        [reference.differences(index, loaded.module(*one.values())) for index, one in enumerate(sets)]
    )
    assert [output.insensitive for output in found.outputs] == [False, True]
    assert found.passed


def test_a_model_that_seeds_within_forward_has_references_in_fp32(tmp_path: Path) -> None:
    """Under one seed torch draws other numbers in fp64."""
    _, files = referenced("seeded", tmp_path, "fp32", "bf16")
    assert files.about().dtype == "fp32"
    for dtype, limit in (("fp32", 1e-6), ("bf16", 2e-2)):
        assert not files.eager(dtype).not_survived
        assert files.eager(dtype).noise["output"] < limit


@pytest.mark.parametrize("name", ["autocast", "modulated"])
def test_code_that_casts_by_itself_has_references_in_fp64(name: str, tmp_path: Path) -> None:
    loaded, files = referenced(name, tmp_path, "given")
    assert files.about().dtype == "fp64"
    (own,) = loaded.source.returned().values()
    (wanted,) = files.outputs("set0").values()
    apart = float((own.double() - wanted).norm() / wanted.norm())
    assert 1e-4 < apart < 3e-2, "no rounding to bf16 within the reference, and one in the user's own call"
    assert files.eager("given").noise["output"] == pytest.approx(apart, rel=0.5)


def test_mixed_dtypes_are_taken_as_they_were_given(tmp_path: Path) -> None:
    loaded, files = referenced("modulated", tmp_path, "given", "bf16", "fp16")
    assert loaded.component.dtypes == ("given",)
    (one, *_) = cast_subject(loaded, "given", "cpu")
    assert {name: tensor.dtype for name, tensor in one.items()} == {"x": torch.bfloat16, "t": torch.float32}
    assert loaded.module.module.layer.weight.dtype == torch.bfloat16
    assert loaded.module.module.norm.weight.dtype == torch.float32
    again, _ = referenced("modulated", tmp_path, "fp16")
    again.cast("fp16", "cpu")
    assert again.module.module.layer.weight.dtype == torch.float16
    assert again.module.module.table.dtype == torch.float32
    assert {dtype: files.eager(dtype).unmeasured for dtype in ("given", "bf16", "fp16")} == dict.fromkeys(
        ("given", "bf16", "fp16"), ""
    )


def test_named_parts_stay_fp32_and_belong_to_the_rows_identity(tmp_path: Path) -> None:
    about = described("pinned", tmp_path)
    assert about.keep_fp32 == ("norm", "table")
    assert [spec.name for spec in about.sets[0].inputs if spec.keep_fp32] == ["t"]
    assert msgspec.structs.replace(about, keep_fp32=("norm",)).hash != about.hash
    loaded, files = referenced("pinned", tmp_path, "bf16")
    loaded.cast("bf16", "cpu")
    assert loaded.module.module.norm.weight.dtype == loaded.module.module.table.dtype == torch.float32
    assert loaded.module.module.layer.weight.dtype == torch.bfloat16
    assert files.eager("bf16").noise["output"] < 2e-2


def test_a_dtype_that_the_model_does_not_survive_is_its_own_limit(tmp_path: Path) -> None:
    _, files = referenced("phases", tmp_path, "fp32", "bf16")
    eager = files.eager("bf16")
    assert eager.noise == {}
    assert "eager is" in eager.not_survived
    assert "keep_fp32=" in eager.not_survived
    assert not files.eager("fp32").not_survived
    assert files.eager("fp32").noise["output"] < MOST_NOISE


def test_indices_are_not_compared_where_a_rounding_moves_them(tmp_path: Path) -> None:
    loaded, files = referenced("ranking", tmp_path, "fp32", "bf16")
    assert not files.eager("bf16").not_survived
    sets = cast_subject(loaded, "bf16", "cpu")
    reference = Reference(files, loaded, "bf16")
    assert reference.parity([reference.differences(0, loaded.module(*sets[0].values()))]).passed


def test_infinities_are_compared_by_place_and_empty_tensors_pass(tmp_path: Path) -> None:
    loaded, files = referenced("masked", tmp_path, "fp32")
    reference = Reference(files, loaded, "fp32")
    sets = cast_subject(loaded, "fp32", "cpu")
    assert sets[0]["cache"].shape == (0, 8)
    scores, kept = loaded.module(*sets[0].values())
    assert reference.parity([reference.differences(0, (scores, kept))]).passed
    watch = reference.watch()
    watch.check(0, (scores, kept))
    assert watch.problem is None
    moved = (scores.roll(1, -1), kept)
    assert not reference.parity([reference.differences(0, moved)]).passed
    watch.check(0, (scores * torch.nan, kept))
    assert watch.problem is not None


def test_layouts_are_those_that_were_given(tmp_path: Path) -> None:
    loaded, _ = referenced("channels_last", tmp_path, "fp32")
    for dtype in ("fp32", "bf16"):
        for one in cast_subject(loaded, dtype, "cpu"):
            assert one["input"].is_contiguous(memory_format=torch.channels_last)
    assert loaded.module.module[0].weight.is_contiguous(memory_format=torch.channels_last)


def test_a_member_of_an_enum_is_itself_when_it_is_made_again() -> None:
    sent = msgspec.json.encode(describe(given_models.Mode(1), "mode"))
    assert type(rebuild(msgspec.json.decode(sent, type=Node), {})) is given_models.Mode


@pytest.mark.parametrize(
    ("name", "inputs", "outputs", "said"),
    [
        ("switched", ["x"], ["output.0"], ""),
        ("encoded", ["batch.data.ids", "batch.data.mask"], ["output"], ""),
        ("pictured", ["input"], ["output"], "input was given as an Image; it is taken as a plain tensor"),
        ("measured", ["x"], ["output.0"], "no tensor changes with the inputs, and is not compared"),
        ("aliasing", ["x"], ["x", "view", "made", "again"], ""),
        ("without_gradients", ["x"], ["output"], ""),
        ("mapped", ["x"], ["output"], ""),
        ("through_numpy", ["x"], ["output"], "eager fails in bf16"),
        ("wrapped", ["arg0"], ["output"], ""),
        ("straight_through", ["x"], ["output"], ""),
        ("itself", ["query", "key", "value"], ["output.0", "output.1"], ""),
    ],
)
def test_what_users_of_compilers_report_is_taken_as_it_was_given(
    name: str, inputs: list[str], outputs: list[str], said: str, tmp_path: Path
) -> None:
    about = described(name, tmp_path)
    assert [spec.name for spec in about.sets[0].inputs] == inputs
    assert [spec.name for spec in about.sets[0].outputs] == outputs
    assert [said in note for note in about.notes] == [True] * bool(said)
    loaded, files = referenced(name, tmp_path, "fp32")
    reference = Reference(files, loaded, "fp32")
    sets = cast_subject(loaded, "fp32", "cpu")
    assert reference.parity([reference.differences(0, loaded.module(*sets[0].values()))]).passed


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("asked_for_a_dtype", "dtype is a torch.dtype, .*; give a module that calls yours with it"),
        ("levels", "output has the key 0; keys must be text"),
        ("returning_a_weight", "weight is a Parameter; return plain tensors .*clone"),
        ("returning_a_buffer", "mean is a buffer; return plain tensors .*clone"),
    ],
)
def test_arguments_and_results_of_other_kinds_are_refused_with_advice(name: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(BakeoffError, match=said):
        described(name, tmp_path)


@pytest.mark.parametrize(("name", "said"), [("compiled", "is taken off"), ("compiled_inside", "calls torch.compile")])
def test_the_authors_own_compile_is_no_part_of_the_baseline(name: str, said: str, tmp_path: Path) -> None:
    assert any(said in note for note in described(name, tmp_path).notes)
    loaded, files = referenced(name, tmp_path, "fp32")
    assert not hasattr(loaded.module.module, "_orig_mod")
    assert files.eager("fp32").runs.operators


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("writes_cache", "keys"),
        ("keeps_for_2", "kept"),
        ("keeps_for_4", "kept"),
        ("keeps_for_7", "kept"),
        ("similar", "kept"),
    ],
)
def test_state_from_call_to_call_is_refused_by_its_name(name: str, kept: str, tmp_path: Path) -> None:
    with pytest.raises(BakeoffError, match=f"remembers: .* keeps .*{kept}.* state=") as refused:
        described(name, tmp_path)
    assert ("buffers=" in str(refused.value)) == (name == "writes_cache")


def test_a_declared_buffer_is_an_input_and_an_output(tmp_path: Path) -> None:
    about = described("declared_cache", tmp_path)
    assert [spec.name for spec in about.sets[0].inputs] == ["x", "positions", "keys"]
    assert about.state == {"output.1.keys": "keys"}
    loaded, _ = referenced("declared_cache", tmp_path, "fp32")
    given = loaded.sets[0]
    first, keys = loaded.module(*given.values())
    assert torch.equal(first, loaded.module(*given.values())[0])
    assert not torch.equal(keys, given["keys"])
