"""Recorded calls: as they were at the entry, different ones only, in order, by their shapes and plain values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from bakeoff.models.brought.method import MethodOf
from bakeoff.models.brought.model import Call
from bakeoff.worker.brought.calls import parameter_names
from bakeoff.worker.inspection.inspect import Subject, record, watched_calls
from bakeoff.worker.inspection.load import find_modules
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


def test_a_loop_of_many_numbers_leaves_room_for_other_sizes() -> None:
    unet = Denoiser()

    def run() -> None:
        for step in range(12):
            unet(torch.ones(2), step)
        unet(torch.ones(3), 0)

    sets = recorded("unet", run)
    assert [(args[1], len(args[0])) for ((args, _),) in sets.values()] == [*((step, 2) for step in range(7)), (0, 3)]
