"""How a subject's module is built: nothing but its parameters may be left without values."""

from collections.abc import Callable

import pytest

pytest.importorskip("torch", reason="modules are torch's")

import torch
from normed import SIDE, WIDTH
from torch import Tensor, nn

from bakeoff.models import component_names, resolve_component
from bakeoff.process.jobs import Subject
from bakeoff.worker.subject import build_module, load_subject

NORMED = Subject("normed:SPEC", "plain", "classify", 1, 3, 0, "", "cpu", 1)


def built(make: Callable[[], nn.Module]) -> tuple[nn.Module, list[str]]:
    """The module, and the devices on which it was built, in order."""
    devices = []

    def build() -> nn.Module:
        devices.append(torch.empty(0).device.type)
        return make()

    return build_module(build, 0), devices


class Reads(nn.Module):
    """A constructor that reads values, as models do whose layers drop out at rates from a linspace."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Dropout(rate) for rate in torch.linspace(0, 0.5, 3).tolist()])


class Holds(nn.Module):
    """Tensors outside of parameters and buffers."""

    def __init__(self, kind: type) -> None:
        super().__init__()
        ones = torch.ones(2)
        self.held: dict[str, Tensor] | list[Tensor] | Tensor = {"a": ones} if kind is dict else [ones]
        if kind is Tensor:
            self.held = ones


MAKERS = [Reads, lambda: nn.BatchNorm1d(2), lambda: Holds(dict), lambda: Holds(list), lambda: Holds(Tensor)]


def test_buffers_of_a_users_own_module_have_the_values_of_its_constructor() -> None:
    loaded = load_subject(NORMED)
    module = loaded.module
    for norm in (layer for layer in module.modules() if isinstance(layer, nn.BatchNorm2d)):
        assert torch.equal(norm.get_buffer("running_mean"), torch.zeros(WIDTH))
        assert torch.equal(norm.get_buffer("running_var"), torch.ones(WIDTH))
        assert norm.weight.mean() == pytest.approx(1.0, abs=0.3), "gains are drawn around 1"
    assert torch.equal(module.get_buffer("position_ids"), torch.arange(SIDE))
    assert torch.equal(module.get_buffer("mask"), torch.ones(SIDE, SIDE).tril())
    assert torch.equal(module.plain, torch.full((WIDTH,), 2.0))
    first, second = (module(*inputs.values())[0] for inputs in loaded.sets[:2])
    assert torch.isfinite(first).all()
    assert float((first - second).norm() / first.norm()) > 1e-3


def test_random_buffers_are_the_same_in_every_worker_and_leave_the_global_generator_alone() -> None:
    torch.manual_seed(1)
    expected = torch.rand(4)
    torch.manual_seed(1)
    first = load_subject(NORMED).module.get_buffer("noise")
    assert torch.equal(torch.rand(4), expected)
    assert torch.equal(load_subject(NORMED).module.get_buffer("noise"), first)


@pytest.mark.parametrize("make", MAKERS)
def test_what_would_lack_values_is_built_on_the_cpu(make: Callable[[], nn.Module]) -> None:
    module, devices = built(make)
    assert devices == ["meta", "cpu"]
    assert not any(tensor.is_meta for tensor in module.state_dict().values())


@pytest.mark.parametrize("name", component_names())
def test_the_labs_own_components_are_built_on_the_meta_device_alone(name: str) -> None:
    component = resolve_component(name)
    config = component.preset("tiny").config
    network = component.network_module()
    for workload in component.workload_names(config):
        assert built(lambda workload=workload: network.build(config, workload, 1))[1] == ["meta"]
