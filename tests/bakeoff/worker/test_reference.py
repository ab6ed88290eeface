"""References of the toy component: of its drawn inputs and of slightly changed ones, and the checks made with them."""

import hashlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="references are tensors")

import torch
from disk import files, largest_file
from last_bits import next_up

from bakeoff.models import component
from bakeoff.models.errors import BakeoffError
from bakeoff.process.jobs import ReferenceJob, Subject
from bakeoff.worker import subject as subjects
from bakeoff.worker.reference import make, precision
from bakeoff.worker.reference.files import ReferenceFiles
from bakeoff.worker.reference.make import make_reference
from bakeoff.worker.reference.parity import Reference
from bakeoff.worker.reference.precision import Precision
from bakeoff.worker.subject import CHANGES, cast_inputs, cast_subject, changed_inputs, load_subject

WORLD = Subject("toy", "tiny", "world", 1, 0, 0, "", "cpu", 1)


def silent(_phase: str, _detail: str = "", /) -> None:
    pass


def made(folder: Path, *dtypes: str, subject: Subject = WORLD) -> Path:
    make_reference(ReferenceJob(subject, dtypes, str(folder)), silent)
    return folder


def test_every_second_changed_value_is_a_sixteenth_smaller_also_in_bf16() -> None:
    loaded = load_subject(WORLD)
    for index in range(len(loaded.sets)):
        changed = changed_inputs(loaded, index, CHANGES[0])
        half = [cast_inputs(loaded.workload, values, "bf16", "cpu") for values in (loaded.sets[index], changed)]
        for name, values in loaded.sets[index].items():
            assert changed[name].dtype == torch.float32
            assert changed[name].shape == values.shape
            assert torch.equal(changed[name].flatten()[::2], values.flatten()[::2] * CHANGES[0])
            assert torch.equal(changed[name].flatten()[1::2], values.flatten()[1::2])
            assert not torch.equal(half[0][name], half[1][name])


def test_there_are_references_for_changed_inputs(tmp_path: Path) -> None:
    folder = made(tmp_path / "reference", "fp32", "bf16")
    loaded = load_subject(WORLD)
    reference = Reference(ReferenceFiles(folder, None), loaded, "fp32")
    assert len(reference.changes) == 2
    for index in range(2):
        own = loaded.module(*loaded.sets[index].values())
        changed = loaded.module(*changed_inputs(loaded, index, CHANGES[0]).values())
        exact = reference.changed_differences(index, changed, "hot")[0]
        assert exact.rel_l2 < 1e-5
        assert f"inputs {index}" in exact.where
        assert exact.where.endswith("hot")
        assert reference.differences(index, own)[0].rel_l2 < 1e-5
        assert reference.changed_differences(index, own)[0].rel_l2 > 1e-2, "an output of the former values is wrong"
        assert reference.differences(index, changed)[0].rel_l2 > 1e-2
    assert not (folder / "changed2.safetensors").exists()


def own_references(tmp_path: Path, seed: int) -> ReferenceFiles:
    """References with changed values of a sweep with this seed, as a sweep makes its folder whole."""
    cached, own = tmp_path / "cached", tmp_path / f"own{seed}"
    make_reference(ReferenceJob(WORLD, ("fp32",), str(cached), str(own), seed), silent)
    assert files(own) == ["changed0.safetensors", "reference.json"]
    for file in cached.iterdir():
        if not (own / file.name).exists():
            os.link(file, own / file.name)
    return ReferenceFiles(own, None)


def test_a_sweep_has_changed_values_of_its_own_by_its_seed(tmp_path: Path) -> None:
    folders = [own_references(tmp_path / folder, seed) for folder, seed in (("a", 1), ("b", 1), ("a", 2))]
    changes = [folder.about().changes for folder in folders]
    assert changes[0] == changes[1]
    assert [change[1:] for change in changes] == [(CHANGES[0],)] * 3, "the other sets keep the cached factor"
    distances = [(1 - change[0]) / (1 - CHANGES[0]) for change in changes]
    assert all(1.2 <= distance <= 1.5 for distance in distances)
    assert distances[0] != distances[2]
    loaded = load_subject(WORLD)
    reference = Reference(folders[2], loaded, "fp32")
    for index, change in enumerate(changes[2]):
        outputs = loaded.module(*changed_inputs(loaded, index, change).values())
        (own,) = reference.changed_differences(index, outputs)
        assert own.rel_l2 < 1e-5
        parity = reference.parity([reference.differences(0, loaded.module(*loaded.sets[0].values())), [own]])
        assert parity.own_change == change or index
        assert [output.lossless for output in parity.outputs] == [True], "eager did not run on the sweep's own values"
    former = loaded.module(*changed_inputs(loaded, 0, changes[0][0]).values())
    assert reference.changed_differences(0, former)[0].rel_l2 > 1e-3, "the values of another sweep are no good"


def test_own_values_are_made_beside_cached_references_without_running_these_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_references(tmp_path, 1)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "cached").iterdir()}
    run, ran = make.run_eager, []

    def log(*given: Any, **named: Any) -> Any:
        for name, outputs in run(*given, **named):
            ran.append(name)
            yield name, outputs

    monkeypatch.setattr(make, "run_eager", log)
    own_references(tmp_path, 2)
    assert ran == ["changed0"]
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cached").iterdir()} == before


def test_where_the_effect_of_its_own_values_does_not_show_a_sweep_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path / "cached", "fp32")
    monkeypatch.setattr(make, "judges", lambda *_: False)
    make_reference(ReferenceJob(WORLD, ("fp32",), str(tmp_path / "cached"), str(tmp_path / "own"), 1), silent)
    assert files(tmp_path / "own") == ["reference.json"]
    assert ReferenceFiles(tmp_path / "own", None).about().changes == (CHANGES[0],) * 2


def test_own_values_that_find_no_room_are_refused_and_leave_no_half_file(tmp_path: Path) -> None:
    made(tmp_path / "cached", "fp32")
    job = ReferenceJob(WORLD, ("fp32",), str(tmp_path / "cached"), str(tmp_path / "own"), 1)
    with largest_file(100), pytest.raises(BakeoffError, match=r"changed0.safetensors cannot be written") as raised:
        make_reference(job, silent)
    assert raised.value.code == "not-writable"
    assert files(tmp_path / "own") == []


def test_the_noise_floor_covers_changed_inputs(tmp_path: Path) -> None:
    folder = made(tmp_path / "reference", "bf16")
    loaded = load_subject(WORLD)
    loaded.module.bfloat16()
    reference = Reference(ReferenceFiles(folder, None), loaded, "bf16")
    noise = ReferenceFiles(folder, None).eager("bf16").noise["velocity"]
    errors = []
    for index in range(4):
        inputs = cast_inputs(loaded.workload, loaded.sets[index], "bf16", "cpu")
        errors.append(reference.differences(index, loaded.module(*inputs.values()))[0].rel_l2)
    for index in range(len(reference.changes)):
        inputs = cast_inputs(loaded.workload, changed_inputs(loaded, index, CHANGES[0]), "bf16", "cpu")
        errors.append(reference.changed_differences(index, loaded.module(*inputs.values()))[0].rel_l2)
    assert noise == pytest.approx(max(errors), rel=1e-3)


def test_eagers_own_error_is_the_largest_of_all_sets() -> None:
    loaded, right = load_subject(WORLD), torch.full((1, 16, 32), 2.0)
    outputs = {name: (right * factor,) for name, factor in (("set0", 1.0), ("set1", 1.5), ("changed0", 1.25))}
    references = {name: {"velocity": right.double()} for name in outputs}
    assert make._noise(loaded, outputs, references, "fp32", list(outputs)) == {"velocity": pytest.approx(0.5)}


def test_a_large_state_has_one_changed_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(component, "LARGE_STATE_BYTES", 0)
    loaded = load_subject(WORLD)
    assert (len(loaded.sets), loaded.workload.changed_set_count) == (2, 1)
    folder = made(tmp_path / "reference", "fp32")
    reference = Reference(ReferenceFiles(folder, None), loaded, "fp32")
    assert len(reference.changes) == 1
    regimes = [f"regime-{name}" for name in ("x0.25", "x16", "x4")]
    assert sorted(file.stem for file in folder.glob("*.safetensors")) == ["changed0", *regimes, "set0", "set1"]


def test_outputs_are_lossless_where_they_equal_eagers_bit_for_bit(tmp_path: Path) -> None:
    folder = made(tmp_path / "reference", "fp32", "bf16")
    loaded = load_subject(WORLD)
    for dtype in ("fp32", "bf16"):
        reference = Reference(ReferenceFiles(folder, None), loaded, dtype)
        for index, inputs in enumerate(cast_subject(loaded, dtype, "cpu")):
            outputs = loaded.module(*inputs.values())
            (own,) = reference.differences(index, outputs)
            (moved,) = reference.differences(index, next_up(outputs))
            (other,) = reference.differences(index, tuple(output.double() for output in outputs))
            assert (own.lossless, moved.lossless, other.lossless) == (True, False, False)
            assert moved.problem is None
            both = reference.parity([[own], [moved]])
            assert [output.lossless for output in both.outputs] == [False]
            damaged = replace(own, lossless=None)
            assert [output.lossless for output in reference.parity([[own], [damaged]]).outputs] == [None]


def test_where_two_runs_of_eager_differ_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(subject: Subject) -> subjects.LoadedSubject:
        loaded = load_subject(subject)
        loaded.module.register_forward_hook(
            lambda _module, _inputs, outputs: tuple(torch.nextafter(one, torch.randn_like(one)) for one in outputs)
        )
        return loaded

    monkeypatch.setattr(make, "load_subject", load)
    folder = made(tmp_path / "reference", "fp32")
    loaded = load_subject(WORLD)
    reference = Reference(ReferenceFiles(folder, None), loaded, "fp32")
    (found,) = reference.differences(0, loaded.module(*loaded.sets[0].values()))
    assert found.problem is None
    assert found.lossless is None


class Spread(torch.nn.Module):
    """Variance of values around a million, in fp64 whatever it is cast to: most of its digits cancel."""

    def forward(self, x: torch.Tensor, *_others: torch.Tensor) -> tuple[torch.Tensor]:
        values = x.double()[..., None] * (torch.arange(1024, dtype=torch.float64) / 7 % 1) + 1e6
        return ((self.mean(values * values) - self.mean(values) ** 2).to(x.dtype),)

    def mean(self, values: torch.Tensor) -> torch.Tensor:
        return values.mean(-1)


class SpreadInLanes(Spread):
    """Adds up as a loop over vectors of 16 values does."""

    def mean(self, values: torch.Tensor) -> torch.Tensor:
        return values.unflatten(-1, (-1, 16)).cumsum(-2)[..., -1, :].sum(-1) / values.shape[-1]


def test_another_order_of_the_same_sums_is_right_where_the_model_computes_in_fp64(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(subject: Subject) -> subjects.LoadedSubject:
        return replace(load_subject(subject), module=Spread())

    monkeypatch.setattr(make, "load_subject", load)
    folder, loaded = made(tmp_path / "reference", "fp32"), load(WORLD)
    reference = Reference(ReferenceFiles(folder, None), loaded, "fp32")
    rounds = [
        reference.differences(index, SpreadInLanes()(*inputs.values())) for index, inputs in enumerate(loaded.sets)
    ]
    other = max(entry.rel_l2 for (entry,) in rounds)
    assert other > 1e-4, "the component's own limit"
    assert reference.parity(rounds).passed
    wrong = [(output + 10 * other * output) for output in Spread()(*loaded.sets[0].values())]
    assert not reference.parity([reference.differences(0, tuple(wrong))]).passed


def test_a_model_that_rounds_keeps_eagers_own_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make, "_rounded_otherwise", lambda *_given: pytest.fail("not needed"))
    made(tmp_path / "reference", "fp32", "bf16")


def normed(preset: str) -> Subject:
    return Subject("normed:SPEC", preset, "classify", 1, 0, 0, "", "cpu", 1)


def test_a_record_states_how_much_outputs_depend_on_inputs(tmp_path: Path) -> None:
    folder = made(tmp_path / "reference", "fp32")
    loaded = load_subject(WORLD)
    reference = Reference(ReferenceFiles(folder, None), loaded, "fp32")
    parity = reference.parity(
        [reference.differences(index, loaded.module(*loaded.sets[index].values())) for index in range(4)]
    )
    (output,) = parity.outputs
    outputs = [loaded.module(*inputs.values())[0] for inputs in loaded.sets]
    changed = [loaded.module(*changed_inputs(loaded, index, CHANGES[0]).values())[0] for index in range(2)]

    def apart(a: torch.Tensor, b: torch.Tensor) -> float:
        return float((a - b).norm() / max(a.norm(), b.norm()))

    wanted = min(apart(outputs[a], outputs[b]) for a in range(4) for b in range(a))
    assert output.sensitivity == pytest.approx(wanted, rel=1e-4)
    assert output.small_sensitivity == pytest.approx(min(map(apart, outputs, changed)), rel=1e-3)
    assert output.passed
    assert not output.insensitive


def test_a_component_whose_outputs_ignore_its_inputs_has_no_reference(tmp_path: Path) -> None:
    with pytest.raises(BakeoffError) as refused:
        made(tmp_path / "reference", "fp32", subject=normed("deaf"))
    assert refused.value.code == "insensitive"
    assert not (tmp_path / "reference" / "reference.json").exists()


def test_an_ordinary_one_with_batch_normalisation_has_one(tmp_path: Path) -> None:
    about = ReferenceFiles(made(tmp_path / "reference", "fp32", subject=normed("plain")), None).about()
    assert about.sensitivity["y"] > 1e-3
    assert about.small_sensitivity["y"] > 1e-3


def test_where_the_limit_is_wide_an_output_must_be_nearer_to_its_own_reference_than_to_others(tmp_path: Path) -> None:
    """The limit of static quantisation lets outputs of other inputs pass where all outputs differ by 6 % only."""
    folder = made(tmp_path / "reference", "bf16", subject=normed("plain"))
    loaded = load_subject(normed("plain"))
    reference = Reference(ReferenceFiles(folder, None), loaded, "bf16", "static")
    outputs = [tuple(output.bfloat16() for output in loaded.module(*inputs.values())) for inputs in loaded.sets]
    (own,) = reference.parity([reference.differences(index, outputs[index]) for index in range(4)]).outputs
    assert own.insensitive
    assert own.passed
    (swapped,) = reference.parity([reference.differences(1, outputs[0])]).outputs
    assert swapped.rel_l2 is not None
    assert swapped.rel_l2 < swapped.limit, "the limit alone would let it pass"
    assert not swapped.passed
    assert swapped.problem


def hashed(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


@pytest.mark.parametrize("name", ["reference.json", "eager-fp32.json"])
def test_limits_of_a_changed_file_are_refused(tmp_path: Path, name: str) -> None:
    folder = made(tmp_path / "reference", "fp32")
    hashes = hashed(folder)
    (folder / name).write_bytes((folder / name).read_bytes() + b" ")
    with pytest.raises(BakeoffError) as refused:
        Reference(ReferenceFiles(folder, hashes), load_subject(WORLD), "fp32")
    assert refused.value.code == "bad-reference"


def test_references_of_other_weights_are_refused(tmp_path: Path) -> None:
    folder = made(tmp_path / "reference", "fp32")
    with pytest.raises(BakeoffError) as refused:
        Reference(ReferenceFiles(folder, hashed(folder)), load_subject(replace(WORLD, weight_seed=1)), "fp32")
    assert refused.value.code == "bad-checkpoint"


def test_an_output_has_no_error_against_a_changed_reference(tmp_path: Path) -> None:
    folder = made(tmp_path / "reference", "fp32")
    loaded = load_subject(WORLD)
    reference = Reference(ReferenceFiles(folder, hashed(folder)), loaded, "fp32")
    (folder / "set1.safetensors").write_bytes((folder / "set0.safetensors").read_bytes())
    outputs = loaded.module(*loaded.sets[0].values())
    assert reference.differences(0, outputs)[0].problem is None
    (entry,) = reference.differences(1, outputs)
    assert entry.problem is not None
    assert "set1.safetensors" in entry.problem


def test_all_calls_are_counted_before_they_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of the changed sets too, first without and then with regimes; a further change runs the changed ones again."""
    counts: list[int] = []
    ran: list[list[str]] = []
    judged = iter((False, True))
    precisions, run = make.reference_precisions, make.run_eager

    def count(module: Any, elements: int, calls: Any, *rest: Any) -> Any:
        counts.extend(number for _, number in calls)
        return precisions(module, elements, calls, *rest)

    def log(*given: Any, **named: Any) -> Any:
        outputs = dict(run(*given, **named))
        ran.append(sorted(outputs))
        return outputs.items()

    monkeypatch.setattr(make, "reference_precisions", count)
    monkeypatch.setattr(make, "run_eager", log)
    monkeypatch.setattr(make, "judges", lambda *_: next(judged))
    folder = made(tmp_path)
    regimes = {name for name in ran[0] if name.startswith("regime-")}
    assert counts == [len(ran[0]) - len(regimes), len(ran[0])] == [6, 13]
    assert ran[1:] == [["changed0", "changed1"]]
    assert ReferenceFiles(folder, None).about().change == CHANGES[1]
    loaded = load_subject(WORLD)
    changed = loaded.module(*changed_inputs(loaded, 0, CHANGES[1]).values())
    made(folder, "fp32")
    reference = Reference(ReferenceFiles(folder, None), loaded, "fp32")
    assert reference.changed_differences(0, changed)[0].rel_l2 < 1e-5
    assert reference.differences(0, loaded.module(*loaded.sets[0].values()))[0].rel_l2 < 1e-5


@pytest.mark.parametrize(("calls", "regimes"), [(13, 7), (12, 3), (9, 3), (8, 0), (6, 0)])
def test_regimes_do_not_cost_references_their_precision(
    calls: int, regimes: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seconds = precision.fp64_seconds([(load_subject(WORLD).work, 1)], "cpu")
    monkeypatch.setattr(precision, "_SECONDS", (calls + 0.5) * seconds)
    make_reference(ReferenceJob(WORLD, (), str(tmp_path)), lambda *_: None)
    about = ReferenceFiles(tmp_path, None).about()
    assert (about.dtype, len(about.regimes)) == ("fp64", regimes)


def test_references_that_run_out_of_memory_are_made_in_the_next_way(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ways = tuple(Precision(dtype, "cpu") for dtype in ("fp64", "fp32"))
    run = make.run_eager

    def without_room(loaded: subjects.LoadedSubject, dtype: str, *rest: Any, **more: Any) -> Any:
        if dtype == "fp64":
            raise torch.OutOfMemoryError("CUDA out of memory")
        return run(loaded, dtype, *rest, **more)

    monkeypatch.setattr(make, "reference_precisions", lambda *_: ways)
    monkeypatch.setattr(make, "run_eager", without_room)
    reports: list[str] = []
    make_reference(ReferenceJob(WORLD, ("bf16",), str(tmp_path)), lambda _phase, detail="": reports.append(detail))
    assert [text for text in reports if text.startswith("eager ")] == ["eager fp64 on cpu", "eager fp32 on cpu"]
    assert ReferenceFiles(tmp_path, None).about().dtype == "fp32"
