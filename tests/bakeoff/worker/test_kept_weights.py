"""Weights are made once for all workers of a sweep: what was left is copied, and nobody can change it."""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="modules are torch's")

import torch
from torch import nn

from bakeoff.machine import host
from bakeoff.models.weights import fingerprint
from bakeoff.process.environment import WEIGHTS
from bakeoff.process.jobs import Subject
from bakeoff.sweeps.context import WeightsMemory
from bakeoff.worker import subject as loading
from bakeoff.worker.kept_weights import filled
from bakeoff.worker.subject import load_subject

TOY = Subject("toy", "tiny", "world", 1, 3, 0, "", "cpu", 1)


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The memory of one sweep, which its workers are given."""
    with closing(WeightsMemory()) as held:
        path = held.path_of(Path("references"))
        assert held.path_of(Path("references")) == path != held.path_of(Path("of another subject"))
        monkeypatch.setenv(WEIGHTS, path)
        yield Path(path)


class Filling:
    """Fills a module with drawn values, and counts how often."""

    def __init__(self, module: nn.Module) -> None:
        self.module, self.times = module, 0

    def __call__(self) -> None:
        self.times += 1
        with torch.no_grad():
            for tensor in self.module.state_dict().values():
                tensor.copy_(torch.randn(tensor.shape))


def module() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 2).bfloat16())


def fill(made: nn.Module, subject: str = "one") -> tuple[str, int]:
    """The fingerprint, and how often values were drawn."""
    filling = Filling(made)
    return filled(made, subject, filling), filling.times


@pytest.mark.usefixtures("memory")
def test_the_second_worker_copies_what_the_first_one_drew() -> None:
    first, second = module(), module()
    made = fill(first)
    assert made == (fingerprint(first), 1)
    assert fill(second) == (made[0], 0)
    assert made[0] == fingerprint(second)
    for one, other in zip(first.state_dict().values(), second.state_dict().values(), strict=True):
        assert torch.equal(one, other)
        assert one.data_ptr() != other.data_ptr()


@pytest.mark.usefixtures("memory")
def test_subjects_are_loaded_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    first = load_subject(TOY)
    monkeypatch.setattr(loading, "randomize", None)
    assert load_subject(TOY).weights == first.weights
    monkeypatch.setenv(WEIGHTS, "")
    with pytest.raises(TypeError):
        load_subject(TOY)


def test_nobody_can_change_what_was_left(memory: Path) -> None:
    fill(module())
    descriptor = os.open(memory, os.O_RDWR)
    try:
        with pytest.raises(PermissionError):
            os.pwrite(descriptor, b"\0", 100)
        with pytest.raises(PermissionError):
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def test_what_was_not_left_to_its_end_is_not_read(memory: Path) -> None:
    descriptor = os.open(memory, os.O_RDWR)
    os.pwrite(descriptor, b"\0" * 500, 0)
    os.close(descriptor)
    assert fill(module())[1] == 1
    assert fill(module())[1] == 0


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("other", [module, lambda: nn.Linear(3, 5)])
def test_weights_of_something_else_are_not_taken(other: type[nn.Module]) -> None:
    fill(module())
    made = other()
    assert fill(made, "another") == (fingerprint(made), 1)
    if isinstance(made, nn.Linear):
        assert fill(made)[1] == 1


@pytest.mark.usefixtures("memory")
def test_where_memory_is_short_each_worker_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "available_bytes", lambda _device: 1000)
    assert [fill(module())[1], fill(module())[1]] == [1, 1]
    monkeypatch.undo()
    assert [fill(module())[1]] == [1]
