"""`bakeoff.apply`: exported programs in a live object compute what the object computed, and leave it as it was."""

import copy
import inspect
import io
import math
import pickle
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="artifacts are opened with torch")

import torch
from artifacts import manifest_of, rewrite
from toys import LIBRARY_WARNINGS
from tuned_artifacts import (
    Attending,
    Cache,
    Coder,
    Denoiser,
    Out,
    change_program,
    seeded,
    write_artifact,
)

import bakeoff
from bakeoff.models.errors import BakeoffError
from bakeoff.models.signature import Constant, Fields, TensorLeaf

pytestmark = LIBRARY_WARNINGS
X, LABEL = torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(1)), torch.tensor([3, 5])


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of artifacts of the modules of `pipe`: integer inputs, constants, dataclasses, dicts, a method."""
    folder = tmp_path_factory.mktemp("written") / "artifacts"
    names = ("x", "label", "scale")
    write_artifact(seeded(Denoiser), folder / "unet", (X, LABEL, 0.5), names=names, place="unet")
    write_artifact(seeded(Coder), folder / "vae", (), {"z": X, "gain": 2.0}, method="decode", place="vae.decode")
    for path in folder.glob("*-work"):
        shutil.rmtree(path)
    return folder


@pytest.fixture
def artifacts(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "artifacts"))


@pytest.fixture
def pipe() -> SimpleNamespace:
    return SimpleNamespace(unet=seeded(Denoiser), vae=seeded(Coder), steps=4)


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    with torch.no_grad():
        yield


class Shifted(torch.nn.Module):
    """Has a buffer."""

    shift: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)
        self.register_buffer("shift", torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) + self.shift


def refused(code: str, *says: str, **given: Any) -> None:
    """`apply` raises an error with this code and these words, on one line."""
    with pytest.raises(BakeoffError) as error:
        bakeoff.apply(**given)
    assert error.value.code == code, error.value
    assert [part for part in says if part not in str(error.value)] == [], str(error.value)
    assert "\n" not in str(error.value)


class TestCalls:
    def test_a_dataclass_and_integers_however_arguments_are_passed(
        self, pipe: SimpleNamespace, artifacts: Path
    ) -> None:
        wanted = pipe.unet(X, LABEL, 0.5)
        applied = bakeoff.apply(pipe, artifacts)
        calls = [
            pipe.unet(X, LABEL, 0.5),
            pipe.unet(X, LABEL, 0.5),
            pipe.unet(X, label=LABEL, scale=0.5),
            pipe.unet(scale=0.5, label=LABEL, x=X),
            pipe.unet(X, LABEL, 0.5, return_dict=True),
        ]
        for found in calls:
            assert type(found) is Out
            assert found.present is None
            torch.testing.assert_close(found.sample, wanted.sample)
        unet, vae = applied.places
        assert (unet.place, unet.tuned, unet.original) == ("unet", 4, 1)
        assert unet.first_calls[0].errors["sample"] <= unet.first_calls[0].limits["sample"]
        assert (vae.place, vae.tuned, vae.original) == ("vae.decode", 0, 0)

    def test_a_method_that_returns_a_dict(self, pipe: SimpleNamespace, artifacts: Path) -> None:
        wanted = pipe.vae.decode(X, gain=2.0)
        applied = bakeoff.apply(pipe, artifacts / "vae")
        for found in (pipe.vae.decode(X, gain=2.0), pipe.vae.decode(X, 2.0), pipe.vae.decode(z=X, gain=2.0)):
            assert list(found) == ["picture", "scale", "parts"]
            assert found["scale"] == 2.0
            torch.testing.assert_close(found["picture"], wanted["picture"])
            torch.testing.assert_close(found["parts"][0], wanted["parts"][0])
            assert isinstance(found["parts"], list)
            assert isinstance(found["parts"][1], tuple)
        assert applied.places[0].tuned == 2
        pipe.vae(X)  # its forward calls decode, with another gain
        assert applied.places[0].original == 2

    def test_calls_outside_of_what_was_checked_are_counted_if_asked_for(
        self, pipe: SimpleNamespace, artifacts: Path
    ) -> None:
        folder = artifacts / "vae"
        (program,) = manifest_of(folder).programs
        rewrite(folder, programs=(replace(program, inputs=(replace(program.inputs[0], checked=(0.5, 2.0, 8.0)),)),))
        with bakeoff.apply(pipe, folder, count_outside=True) as applied:
            for factor in (1.0, 1.0, 10.0, 0.1, math.nan):
                pipe.vae.decode(X * factor, gain=2.0)
            (place,) = applied.places
            assert (place.tuned, place.original, place.outside) == (4, 1, 3)
            assert "4 of 5 calls tuned, 3 outside of what was checked" in applied.report()
        with bakeoff.apply(pipe, folder) as applied:
            assert applied.places[0].outside is None

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            (lambda call: call(X[:1], LABEL[:1], 0.5), "x has the shape [1, 4, 8], it was exported for [2, 4, 8]"),
            (lambda call: call(X, LABEL), "an argument is 1.0 where 0.5 was recorded"),
            (lambda call: call(X, LABEL.int(), 0.5), "label is int32, it was exported for int64"),
            (lambda call: call(X, LABEL, 0.5, return_dict=False), "return_dict is given"),
            (lambda call: call(X.requires_grad_(False), LABEL, 1), "an argument is 1 where 0.5"),
        ],
    )
    def test_another_call_runs_the_original_and_is_counted(
        self, change: Any, reason: str, pipe: SimpleNamespace, artifacts: Path
    ) -> None:
        wanted = change(pipe.unet)
        applied = bakeoff.apply(pipe, artifacts / "unet")
        found = change(pipe.unet)
        assert type(found) is type(wanted)
        first, second = (one.sample if isinstance(one, Out) else one[0] for one in (found, wanted))
        assert torch.equal(first, second)
        (place,) = applied.places
        assert (place.tuned, place.original) == (0, 1)
        applied.undo()
        with (
            bakeoff.apply(pipe, artifacts / "unet", strict=True),
            pytest.raises(BakeoffError, match=re.escape(f"does not fit what was exported: {reason}")) as no,
        ):
            change(pipe.unet)
        assert no.value.code == "bad-input"

    def test_where_a_gradient_is_needed_the_original_runs(self, pipe: SimpleNamespace, artifacts: Path) -> None:
        applied = bakeoff.apply(pipe, artifacts / "unet")
        wanting = X.clone().requires_grad_()
        pipe.unet(wanting, LABEL, 0.5)
        pipe.unet(wanting, LABEL, 0.5)
        with torch.enable_grad():
            pipe.unet(wanting, LABEL, 0.5).sample.sum().backward()
            assert not pipe.unet(X, LABEL, 0.5).sample.requires_grad
        assert wanting.grad is not None
        with torch.inference_mode():
            assert pipe.unet(X.clone(), LABEL, 0.5).sample.is_inference()
        (place,) = applied.places
        assert (place.tuned, place.original) == (3, 2)

    def test_a_module_in_training_or_with_changed_weights_runs_itself(
        self, pipe: SimpleNamespace, artifacts: Path
    ) -> None:
        applied = bakeoff.apply(pipe, artifacts / "unet")
        pipe.unet(X, LABEL, 0.5)
        pipe.unet.train()(X, LABEL, 0.5)
        pipe.unet.eval()
        pipe.unet(X, LABEL, 0.5)
        layer = pipe.unet.layer
        pipe.unet.layer = torch.nn.Sequential(layer)  # as an adapter does
        pipe.unet(X, LABEL, 0.5)
        pipe.unet.layer = layer
        pipe.unet(X, LABEL, 0.5)
        pipe.unet.load_state_dict({name: 2 * tensor for name, tensor in pipe.unet.state_dict().items()})
        found = pipe.unet(X, LABEL, 0.5)
        assert torch.equal(found.sample, type(pipe.unet).forward(pipe.unet, X, LABEL, 0.5).sample)
        (place,) = applied.places
        assert (place.tuned, place.original) == (2, 4)

    @pytest.mark.parametrize("seen", [True, False])
    def test_weights_and_buffers_that_are_written_to(self, seen: bool, tmp_path: Path) -> None:
        """Through `.data` only an exchange is seen, as docs/apply.md says."""

        def shift(module: torch.nn.Module) -> None:
            module.shift.add_(1.0)  # type: ignore[operator, union-attr]

        def replace_buffer(module: torch.nn.Module) -> None:
            module.shift = torch.ones(8)  # type: ignore[assignment]

        def exchange(module: torch.nn.Module) -> None:
            module.layer.weight.data = 2 * module.layer.weight.data  # type: ignore[union-attr, operator]

        def assign(module: torch.nn.Module) -> None:
            module.load_state_dict({name: 2 * one for name, one in module.state_dict().items()}, assign=True)

        def merge(module: torch.nn.Module) -> None:
            module.layer.weight.addmm_(torch.ones(8, 4), torch.ones(4, 8))  # type: ignore[union-attr, operator]

        def write_data(module: torch.nn.Module) -> None:
            module.layer.weight.data.mul_(2)  # type: ignore[union-attr, operator]

        module = seeded(Shifted)
        write_artifact(module, tmp_path / "a", (X,), names=("x",))
        for change in (shift, replace_buffer, exchange, assign, merge) if seen else (write_data,):
            changed = seeded(Shifted)
            with bakeoff.apply(changed, tmp_path / "a") as applied:
                for _ in range(2):
                    changed(X)
                assert applied.places[0].tuned == 1
                change(changed)
                assert torch.equal(changed(X), type(changed).forward(changed, X)) == seen, change.__name__
                assert applied.places[0].tuned == 1 + (not seen), change.__name__

    def test_a_wrong_program_is_found_out_in_its_first_call(self, pipe: SimpleNamespace, artifacts: Path) -> None:
        pipe.unet = seeded(Denoiser, seed=7)
        wanted = pipe.unet(X, LABEL, 0.5).sample
        applied = bakeoff.apply(pipe, artifacts / "unet", any_weights=True)
        for _ in range(3):
            assert torch.equal(pipe.unet(X, LABEL, 0.5).sample, wanted)
        (place,) = applied.places
        assert place.tuned == 0
        assert "sample differs from the original's by" in place.first_calls[0].refusal
        assert place.first_calls[0].refusal in str(applied.report())
        applied.undo()
        pipe.unet.register_forward_hook(lambda *_: None)
        with bakeoff.apply(pipe, artifacts / "unet", any_weights=True) as applied:
            pipe.unet(X, LABEL, 0.5)
            assert "; hooks that were on the module are in the program" in str(applied.report())
        with bakeoff.apply(pipe, artifacts / "unet", any_weights=True, strict=True):
            for _ in range(2):
                with pytest.raises(BakeoffError, match="differs from the original's"):
                    pipe.unet(X, LABEL, 0.5)

    def test_a_program_in_bf16_returns_the_callers_dtype(self, pipe: SimpleNamespace, tmp_path: Path) -> None:
        write_artifact(seeded(Denoiser), tmp_path / "a", (X, LABEL, 0.5), dtype="bf16", limit=0.02, place="unet")
        wanted = pipe.unet(X, LABEL, 0.5).sample
        applied = bakeoff.apply(pipe, tmp_path / "a")
        found = [pipe.unet(X, LABEL, 0.5).sample for _ in range(2)][1]
        assert found.dtype == torch.float32
        assert not torch.equal(found, wanted)
        torch.testing.assert_close(found, wanted, rtol=0.05, atol=0.05)
        with torch.autocast("cpu", torch.bfloat16):
            assert type(pipe.unet).forward(pipe.unet, X, LABEL, 0.5).sample.dtype == torch.float32
            pipe.unet(X, LABEL, 0.5)  # another kind of call, compared for itself
        (place,) = applied.places
        assert (place.original, len(place.first_calls)) == (2, 2)

    def test_programs_for_two_shapes_at_one_place(self, pipe: SimpleNamespace, artifacts: Path) -> None:
        one = write_artifact(seeded(Denoiser), artifacts / "one", (X[:1], LABEL[:1], 0.5), place="unet")
        shutil.rmtree(artifacts / "one-work")
        assert one.place == "unet"
        applied = bakeoff.apply(pipe, artifacts)
        for _ in range(2):
            pipe.unet(X, LABEL, 0.5)
            pipe.unet(X[:1], LABEL[:1], 0.5)
        place = applied.places[0]
        assert (place.artifacts, place.tuned) == (("one", "unet"), 2)
        assert len(place.first_calls) == 2


class TestState:
    def test_a_cache_stays_the_callers(self, tmp_path: Path) -> None:
        def empty() -> Cache:
            return Cache(torch.zeros(1, 3, 8), torch.zeros(1, 3, 8))

        frames = torch.randn(6, 1, 1, 8, generator=torch.Generator().manual_seed(2))
        module = seeded(Attending)
        write_artifact(module, tmp_path / "a", (frames[0],), {"past": empty()}, names=("x",))

        def roll() -> list[Out]:
            past, made = empty(), []
            for frame in frames:
                made.append(module(frame, past=past))
                past = made[-1].present
            return made

        wanted = roll()
        applied = bakeoff.apply(module, tmp_path / "a")
        for found in (roll(), roll()):
            for mine, theirs in zip(found, wanted, strict=True):
                torch.testing.assert_close(mine.sample, theirs.sample)
                assert type(mine.present) is Cache
                assert theirs.present is not None
                torch.testing.assert_close(mine.present.k, theirs.present.k)
        assert applied.places[0].tuned == 11
        past = empty()
        module(frames[0], past=past)
        assert not past.k.any()


class TestObject:
    def test_the_module_is_what_it_was(self, pipe: SimpleNamespace, artifacts: Path) -> None:
        unet, keys, signature = pipe.unet, list(pipe.unet.state_dict()), inspect.signature(pipe.unet.forward)
        bakeoff.apply(pipe, artifacts)
        assert pipe.unet is unet
        assert type(pipe.unet) is Denoiser
        assert list(pipe.unet.state_dict()) == keys
        assert (pipe.unet.config, pipe.unet.dtype) == ({"width": 8}, torch.float32)
        assert inspect.signature(pipe.unet.forward) == signature
        assert [name for name, _ in pipe.unet.named_modules()] == ["", "layer", "labels"]
        seen = []
        pipe.unet.register_forward_hook(lambda *_: seen.append(1))
        pipe.unet(X, LABEL, 0.5)
        pipe.unet(X, LABEL, 0.5)
        assert seen == [1, 1], "hooks of the module still run"

    def test_undo_restores_the_same_objects(self, pipe: SimpleNamespace, artifacts: Path) -> None:
        def mine(*args: Any, **kwargs: Any) -> Any:
            return type(pipe.vae).decode(pipe.vae, *args, **kwargs)

        pipe.vae.decode = mine
        before = (dict(vars(pipe)), dict(vars(pipe.unet)), dict(vars(pipe.vae)))
        applied = bakeoff.apply(pipe, artifacts)
        held = pipe.unet.forward
        assert pipe.vae.decode is not mine
        for _ in range(2):
            applied.undo()
            after = (vars(pipe), vars(pipe.unet), vars(pipe.vae))
            for one, other in zip(before, after, strict=True):
                assert one.keys() == other.keys()
                assert all(other[name] is value for name, value in one.items())
        assert held(X, LABEL, 0.5).sample is not None, "whoever kept the function gets the original"

    def test_what_replaced_it_meanwhile_is_left(self, pipe: SimpleNamespace, artifacts: Path) -> None:
        applied = bakeoff.apply(pipe, artifacts)
        tuned = pipe.unet.forward
        wrapper = pipe.unet.forward = lambda *args, **kwargs: tuned(*args, **kwargs)
        with pytest.raises(BakeoffError, match=r"unet\.forward was replaced after apply"):
            applied.undo()
        assert pipe.unet.forward is wrapper
        assert "decode" not in vars(pipe.vae)
        pipe.unet(X, LABEL, 0.5)
        assert applied.places[0].original == 0

    def test_a_tuned_module_is_not_copied_or_pickled(self, pipe: SimpleNamespace, artifacts: Path) -> None:
        applied = bakeoff.apply(pipe, artifacts)
        for use in (
            lambda: copy.deepcopy(pipe),
            lambda: pickle.dumps(pipe.unet),
            lambda: torch.save(pipe.vae, io.BytesIO()),
        ):
            with pytest.raises(BakeoffError, match="undo"):
                use()
        applied.undo()
        copy.deepcopy(pipe)


class TestPlaces:
    def test_without_a_place_it_is_for_the_object_itself(self, pipe: SimpleNamespace, artifacts: Path) -> None:
        rewrite(artifacts / "unet", place="")
        says = ("the object is a SimpleNamespace", 'where={"unet":"unet"}')
        refused("unknown-name", *says, pipe=pipe, folder=artifacts / "unet")
        refused("other-weights", "Denoiser has other weights", pipe=seeded(Denoiser, seed=3), folder=artifacts / "unet")

    def test_where_says_it(self, pipe: SimpleNamespace, artifacts: Path) -> None:
        held = {"parts": [pipe.unet]}
        with bakeoff.apply(held, artifacts, where={"unet": "parts.0", "vae": None}) as applied:
            assert [one.place for one in applied.places] == ["parts.0"]
        for where, code, says in (
            (
                {"unet": "unte"},
                "unknown-name",
                "SimpleNamespace has no 'unte' (of 'unte'); it has the modules unet, vae",
            ),
            ({"unet": "unet.layers"}, "unknown-name", "Denoiser has no 'layers' (of 'unet.layers')"),
            ({"unet": "unet.__class__"}, "unknown-name", "has no '__class__'"),
            ({"unet": "steps"}, "unknown-name", "'steps' is an int, neither a module nor a module's method"),
            ({"unet": "vae"}, "other-weights", "vae has other weights than unet"),
            ({"unte": "unet"}, "unknown-name", "where= names 'unte', which is no artifact"),
        ):
            refused(code, says, pipe=pipe, folder=artifacts, where=where)
        assert "forward" not in vars(pipe.unet)

    def test_other_weights_can_be_forced(self, pipe: SimpleNamespace, artifacts: Path) -> None:
        pipe.unet.layer.weight[0, 0] += 1e-6
        refused("other-weights", "unet has other weights", "any_weights=True", pipe=pipe, folder=artifacts)
        with bakeoff.apply(pipe, artifacts, any_weights=True) as applied:
            for _ in range(2):
                pipe.unet(X, LABEL, 0.5)
            assert applied.places[0].tuned == 1


class TestHostile:
    @pytest.fixture
    def trap(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
        (tmp_path / "trap_of_a_manifest.py").write_text("raise SystemExit('imported')")
        monkeypatch.syspath_prepend(str(tmp_path))
        return "trap_of_a_manifest"

    @pytest.mark.parametrize("name", ["system", "Out"])
    def test_no_class_of_a_manifest_is_imported(
        self, name: str, trap: str, pipe: SimpleNamespace, artifacts: Path
    ) -> None:
        fields = {"sample": TensorLeaf("sample"), "present": Constant(None)}
        change_program(artifacts / "unet", result=Fields(f"{trap}:{name}", fields))
        applied = bakeoff.apply(pipe, artifacts / "unet")
        for _ in range(3):
            assert type(pipe.unet(X, LABEL, 0.5)) is Out
        assert trap not in sys.modules
        assert applied.places[0].tuned == (2 if name == "Out" else 0), "a class of the live object is taken"

    def test_a_class_among_the_arguments(self, trap: str, tmp_path: Path) -> None:
        module = seeded(Attending)
        past = Cache(torch.zeros(1, 3, 8), torch.zeros(1, 3, 8))
        write_artifact(module, tmp_path / "a", (torch.ones(1, 1, 8),), {"past": past}, names=("x",))
        program = manifest_of(tmp_path / "a").programs[0]
        assert program.call
        node = program.call.kwargs["past"]
        assert isinstance(node, Fields)
        kwargs = {"past": Fields(f"{trap}:Other", node.fields)}
        change_program(tmp_path / "a", call=type(program.call)(program.call.args, kwargs))
        bakeoff.apply(module, tmp_path / "a", strict=True)
        with pytest.raises(BakeoffError, match="an argument is a Cache where"):
            module(torch.ones(1, 1, 8), past=past)
        assert trap not in sys.modules

    @pytest.mark.parametrize("place", ["__class__", "unet.__init__", "unet._modules", "unet.", ".", "a" * 300])
    def test_a_place_that_is_none(self, place: str, pipe: SimpleNamespace, artifacts: Path) -> None:
        rewrite(artifacts / "unet", place=place)
        refused("unknown-name", pipe=pipe, folder=artifacts / "unet")
