"""Where references are computed in fp64: by memory and fp64 rate of the device, on cards made up for the test."""

from dataclasses import replace

import pytest

pytest.importorskip("torch", reason="modules are torch's")

import torch

from bakeoff.machine import host
from bakeoff.machine.host import read_host
from bakeoff.models import resolve_component
from bakeoff.worker.reference.precision import Precision, fp64_flops, reference_precision

GIB = 1 << 30


def module_of(parameters: int) -> torch.nn.Module:
    module = torch.nn.Module()
    module.weight = torch.nn.Parameter(torch.empty(parameters, device="meta"), requires_grad=False)
    return module


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """A GPU by name and free GiB, on a host with 64 GiB free."""
    name, free_gib = request.param
    monkeypatch.setattr(host, "read_host", lambda: replace(read_host(), gpus=({"name": name, "uuid": "GPU-1"},)))
    monkeypatch.setattr(host, "available_bytes", lambda _device: 64 * GIB)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free_gib * GIB, 80 * GIB))


def chosen(component: str, preset: str, workload: str) -> Precision:
    made = resolve_component(component)
    config = made.preset(preset).config
    work = made.workload(config, workload, 1).work
    return reference_precision(module_of(made.parameters(config)), work.io_elements, 4 * work.flops, "cuda")


@pytest.mark.parametrize("card", [("NVIDIA H100 80GB HBM3", 78), ("NVIDIA H200", 139)], indirect=True)
@pytest.mark.parametrize(("component", "preset", "workload"), [("wm", "1b", "step"), ("matrix-vae", "full", "steady3")])
@pytest.mark.usefixtures("card")
def test_large_presets_are_checked_in_fp64_on_a_data_centre_card(component: str, preset: str, workload: str) -> None:
    assert chosen(component, preset, workload) == Precision("fp64", "cuda")


@pytest.mark.parametrize("card", [("NVIDIA GeForce RTX 4090", 2)], indirect=True)
@pytest.mark.usefixtures("card")
def test_what_does_not_fit_on_the_card_is_computed_on_the_cpu_or_in_fp32() -> None:
    assert chosen("wm", "1b", "step") == Precision("fp64", "cpu")
    assert reference_precision(module_of(10**9), 0, 10**16, "cuda") == Precision("fp32", "cuda")


@pytest.mark.parametrize("card", [("NVIDIA L4", 22)], indirect=True)
@pytest.mark.usefixtures("card")
def test_a_card_that_is_slow_in_fp64_is_known() -> None:
    flops = round(40 * fp64_flops("cuda"))
    assert reference_precision(module_of(10), 0, flops, "cuda") == Precision("fp64", "cuda")
    assert reference_precision(module_of(10), 0, 2 * flops, "cuda") == Precision("fp32", "cuda")


def test_a_cpu_has_a_minute() -> None:
    assert reference_precision(module_of(10), 0, 10**11, "cpu") == Precision("fp64", "cpu")
    assert reference_precision(module_of(10), 0, 10**12, "cpu") == Precision("fp32", "cpu")
