"""Recorded calls: as they were at the entry, different ones only, in order, by their shapes and plain values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from describing import described
from torch import nn

from bakeoff.bring.bring import read_source
from bakeoff.models.brought.live_read import read_live
from bakeoff.models.brought.method import MethodOf
from bakeoff.models.brought.model import Call
from bakeoff.process.inspected import Recorded
from bakeoff.worker.brought.calls import parameter_names
from bakeoff.worker.inspection.inspect import Subject, record, watched_calls
from bakeoff.worker.inspection.load import find_modules
from bakeoff.worker.inspection.numbers import as_tensors
from bakeoff.worker.inspection.recording import MOST_CALLS, Recording, folder_name, sets_of
from bakeoff.worker.inspection.tree import Tree


class Denoiser(nn.Module):
    def forward(self, x: torch.Tensor, t: Any = 0, **more: Any) -> torch.Tensor:
        assert t is not more
        return x.mul_(2)

    def decode(self, z: torch.Tensor) -> torch.Tensor:
        return z + 1


class Converting(nn.Module):
    """Gives its part a tensor of another layout."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form
        self.part = nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.part(getattr(x, self.form)())
        return made.to_dense()


@dataclass
class State:
    cache: torch.Tensor
    length: int


def recording_of(name: str, run: Any) -> Recording:
    recording, found = Recording([name]), find_modules(run)
    tree = Tree({id(module): name for name, module in found})
    with watched_calls(tree, [type(module) for _, module in found]):
        tree.begin(lambda: 0, capture=recording.take)
        run()
        tree.end()
    return recording


def recorded(name: str, run: Any) -> Mapping[str, Sequence[Call]]:
    """The calls of a module that are kept, by input set."""
    return sets_of(recording_of(name, run)._taken[name].calls)


def test_inputs_are_those_of_the_entry_in_the_order_of_the_calls() -> None:
    unet = Denoiser()

    def run() -> None:
        for value in (3.0, 1.0, 3.0, 2.0):
            unet(torch.full((2,), value))  # which changes it in place

    sets = recorded("unet", run)
    assert [args[0].tolist() for args, _ in sets["call"]] == [[3, 3], [1, 1], [2, 2]]


def test_each_shape_dtype_and_plain_value_is_a_set() -> None:
    unet = Denoiser()

    def run() -> None:
        for size, t in ((2, 5), (3, 5), (2, 6)):
            unet(torch.ones(size), t)
        unet(torch.ones(2, dtype=torch.float64), 5)
        unet(torch.zeros(2), 5)

    sets = recorded("unet", run)
    assert {name: len(calls) for name, calls in sets.items()} == {"call": 2, "call-2": 1, "call-3": 1, "call-4": 1}
    assert [args[1] for args, _ in sets["call-3"]] == [6]


def test_at_most_eight_calls_are_kept() -> None:
    unet = Denoiser()

    def run() -> None:
        for value in range(20):
            unet(torch.full((1,), float(value)))

    recording = recording_of("unet", run)
    assert not recording.full, "a call of another form would still be kept"
    assert [args[0].item() for args, _ in sets_of(recording._taken["unet"].calls)["call"]] == list(range(MOST_CALLS))


def test_later_sizes_take_the_place_of_calls_of_the_commonest_one() -> None:
    unet = Denoiser()

    def run() -> None:
        for size in (2, 3, 4):
            for value in range(10):
                unet(torch.full((size,), float(value)))

    sets = recorded("unet", run)
    assert {name: len(calls) for name, calls in sets.items()} == {"call": 6, "call-2": 1, "call-3": 1}
    assert [args[0].shape[0] for calls in sets.values() for args, _ in calls[:1]] == [2, 3, 4]
    assert [args[0][0].item() for args, _ in sets["call"]] == [0, 1, 2, 3, 4, 5]


def test_structures_and_keywords_are_kept() -> None:
    unet = Denoiser()

    def run() -> None:
        unet(x=torch.ones(1), t=torch.tensor(3), state=State(torch.zeros(2), 4), masks=[torch.ones(1), None])

    ((args, kwargs),) = recorded("unet", run)["call"]
    assert args == ()
    assert list(kwargs) == ["x", "t", "state", "masks"]
    assert (kwargs["state"].length, kwargs["state"].cache.tolist(), kwargs["masks"][1]) == (4, [0, 0], None)


def test_a_method_is_recorded_and_can_be_called_as_a_module() -> None:
    vae = Denoiser()
    sets = recorded("vae.decode", lambda: vae.decode(torch.ones(2)))
    ((args, kwargs),) = sets["call"]
    assert MethodOf(vae, "decode")(*args, **kwargs).tolist() == [2, 2]
    assert parameter_names(MethodOf(vae, "decode")) == ["z"]
    assert folder_name("pipe.vae.decode") == "pipe.vae.decode"


def test_what_cannot_travel_is_said_and_the_rest_is_written(tmp_path: Path) -> None:
    unet, vae = Denoiser(), Denoiser()

    def run() -> None:
        unet(torch.ones(1), object())
        vae.decode(torch.randn(2))

    subject = Subject("mine.py:pipe", run, tuple(find_modules(run)), lambda: None, "cpu")
    first, second = record(subject, ["unet", "vae.decode"], tmp_path)
    assert first.problem.startswith("t is a builtins.object")
    assert first.folder == ""
    assert (second.calls, second.sets, second.problem) == (8, ("call",), "")
    assert Path(second.folder) == tmp_path / "mine.vae.decode"


@pytest.mark.parametrize("form", ["to_sparse", "to_mkldnn"])
def test_inputs_that_no_engine_can_be_given_are_named(form: str, tmp_path: Path) -> None:
    unet = Converting(form)

    def run() -> None:
        unet(torch.eye(2))

    subject = Subject("mine.py:pipe", run, tuple(find_modules(run)), lambda: None, "cpu")
    whole, part = record(subject, ["unet", "unet.part"], tmp_path)
    assert whole.problem == ""
    assert part.problem.startswith("call: the input input has the layout ")
    assert part.problem.endswith("give its to_dense()")


class Steps(nn.Module):
    """Takes a step `t` as a tensor or not, by what it does with it."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: torch.Tensor, t: Any, n: int = 2) -> torch.Tensor:
        match self.kind:
            case "computes":
                return x * torch.sin(torch.arange(2) * 1000 * t)
            case "reads":
                return x * float(t)
            case "copies":
                return x * torch.tensor([t])
            case "raises":
                return x * (0.5).__add__(t)
            case "slices":
                return (x * t)[:, :n]
        return x * (t if isinstance(t, float) else 2 * t)


def written(kind: str, run: Any, tmp_path: Path) -> Recorded:
    steps = Steps(kind)
    subject = Subject("mine.py:pipe", lambda: run(steps), tuple(find_modules([steps])), lambda: None, "cpu")
    (name,) = [name for name, _ in subject.modules]
    (one,) = record(subject, [name], tmp_path)
    return one


def loop(steps: nn.Module) -> None:
    for index in range(12):
        steps(torch.ones(1, 2), index / 12 + 1)


def test_a_number_that_differs_becomes_a_tensor_where_the_module_takes_one(tmp_path: Path) -> None:
    one = written("computes", loop, tmp_path)
    assert (one.calls, one.sets, one.problem) == (MOST_CALLS, ("call",), "")
    assert one.notes == ("t became a tensor: one program for all values",)
    calls = read_live(Path(one.folder))[1]["call"]
    assert [args[1].item() for args, _ in calls] == pytest.approx([index / 12 + 1 for index in range(MOST_CALLS)])
    assert {(args[1].dtype, args[1].shape) for args, _ in calls} == {(torch.float32, ())}
    assert read_live(Path(one.folder))[0].keep_fp32 == ("t",)


class Embedding(nn.Module):
    """Its layer is called as the step that it embeds."""

    def __init__(self) -> None:
        super().__init__()
        self.t = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor, t: Any) -> torch.Tensor:
        made: torch.Tensor = x + self.t(torch.arange(2, dtype=x.dtype) * t)
        return made


def test_a_number_that_is_called_as_a_part_leaves_that_part_to_half_precision(tmp_path: Path) -> None:
    unet = Embedding().eval()
    subject = Subject("mine.py:pipe", lambda: loop(unet), (("unet", unet),), lambda: None, "cpu")
    (one,) = record(subject, ["unet"], tmp_path)
    about = described(read_source(one.folder)[0], tmp_path / "described")
    assert [spec.name for spec in about.sets[0].inputs if spec.keep_fp32] == ["t"]
    assert about.keep_fp32 == ()
    assert not [note for note in about.notes if "fails" in note]


def test_integers_become_integers_and_numbers_that_stay_are_constants(tmp_path: Path) -> None:
    one = written("computes", lambda steps: [steps(torch.ones(1, 2), index, n=3) for index in (3, 2, 1)], tmp_path)
    ((first, more), *_) = read_live(Path(one.folder))[1]["call"]
    assert (first[1].dtype, first[1].item(), more) == (torch.int64, 3, {"n": 3})
    assert read_live(Path(one.folder))[0].keep_fp32 == ()


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("reads", "is read back as a number"),
        ("copies", "is read back as a number"),
        ("raises", "raises TypeError"),
        ("else", "gives another output"),
    ],
)
def test_of_a_number_that_must_stay_one_the_first_value_is_kept(kind: str, why: str, tmp_path: Path) -> None:
    one = written(kind, loop, tmp_path)
    assert (one.calls, one.sets) == (MOST_CALLS, ("call",))
    (note,) = one.notes
    assert note.startswith(f"7 sets that differ in t alone left out, each a program of its own: as a tensor t {why}")
    ((args, _),) = read_live(Path(one.folder))[1]["call"]
    assert args[1] == 1.0


def test_a_number_that_is_a_size_keeps_a_set_of_each_size_of_the_outputs(tmp_path: Path) -> None:
    def run(steps: nn.Module) -> None:
        for index in range(8):
            steps(torch.ones(1, 2), float(index), 1 + index % 2)

    one = written("slices", run, tmp_path)
    assert (one.sets, one.notes) == (("call", "call-2"), ("t became a tensor: one program for all values",))
    assert {name: len(calls) for name, calls in read_live(Path(one.folder))[1].items()} == {"call": 4, "call-2": 4}


def test_a_loop_of_many_numbers_leaves_room_for_other_sizes(tmp_path: Path) -> None:
    def run(steps: nn.Module) -> None:
        loop(steps)
        steps(torch.ones(3, 2), 1.0)

    one = written("computes", run, tmp_path)
    assert (one.calls, one.sets) == (MOST_CALLS, ("call", "call-2"))


def test_the_module_stays_as_it_is_where_calls_change_it() -> None:
    class Counting(Steps):
        def __init__(self) -> None:
            super().__init__("computes")
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: torch.Tensor, t: Any, n: int = 2) -> torch.Tensor:
            self.calls += 1
            return super().forward(x, t, n) + self.calls

    counting = Counting()
    recording = Recording(["steps"])
    for t in (1.0, 2.0):
        recording.take("steps", counting, "", (torch.ones(1, 2), t), {})
    kept, notes = as_tensors(counting, recording._taken["steps"].calls, ("x", "t", "n"))
    assert (len({repr(call.signature) for call in kept}), len(notes), counting.calls.item()) == (1, 1, 0)
