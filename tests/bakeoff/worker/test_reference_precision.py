"""Where references are computed in fp64: by memory and fp64 rate of the device, on cards made up for the test."""

from dataclasses import replace

import pytest

pytest.importorskip("torch", reason="modules are torch's")

import torch

from bakeoff.machine import host
from bakeoff.models import resolve_component
from bakeoff.models.component import Work
from bakeoff.worker.reference import precision
from bakeoff.worker.reference.precision import (
    Calls,
    Precision,
    convolution_flops,
    fp64_seconds,
    in_first_that_fits,
    product_flops,
    reference_precisions,
)
from bakeoff.worker.work import count_work

GIB = 1 << 30


def module_of(parameters: int) -> torch.nn.Module:
    module = torch.nn.Module()
    module.weight = torch.nn.Parameter(torch.empty(parameters, device="meta"), requires_grad=False)
    return module


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """A GPU by the TFLOP/s of its fp64 products and convolutions and free GiB, on a host with 64 GiB free."""
    (products, convolutions), free_gib = request.param
    monkeypatch.setattr(precision, "product_flops", lambda _device, _size: products * 1e12)
    monkeypatch.setattr(precision, "convolution_flops", lambda _device, _channels: convolutions * 1e12)
    monkeypatch.setattr(host, "available_bytes", lambda _device: 64 * GIB)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free_gib * GIB, 80 * GIB))


def chosen(component: str, preset: str, workload: str) -> Precision:
    made = resolve_component(component)
    config = made.preset(preset).config
    work = count_work(made, config, made.workload(config, workload, 1), 1)
    return best(module_of(made.preset(preset).parameters), work.io_elements, [(work, 6)], "cuda")


def products(flops: float) -> Calls:
    return [(Work(round(flops), 0, 0), 1)]


def best(module: torch.nn.Module, io_elements: int, calls: Calls, device: str) -> Precision:
    return reference_precisions(module, io_elements, calls, device)[0]


B200, H100, RTX_4090 = (37.0, 20.0), (60.0, 20.0), (1.2, 1.0)


@pytest.mark.parametrize("card", [(H100, 78), (B200, 178)], indirect=True)
@pytest.mark.parametrize(("component", "preset", "workload"), [("wm", "1b", "step"), ("matrix-vae", "full", "steady3")])
@pytest.mark.usefixtures("card")
def test_large_presets_are_checked_in_fp64_on_a_data_centre_card(component: str, preset: str, workload: str) -> None:
    assert chosen(component, preset, workload) == Precision("fp64", "cuda")


@pytest.mark.parametrize("card", [(RTX_4090, 2)], indirect=True)
@pytest.mark.usefixtures("card")
def test_what_does_not_fit_on_the_card_is_computed_on_the_cpu_or_in_fp32() -> None:
    assert chosen("wm", "1b", "step") == Precision("fp64", "cpu")
    made = resolve_component("wm")
    config = made.preset("1b").config
    work = count_work(made, config, made.workload(config, "step", 1), 1)
    brought = reference_precisions(module_of(10**9), work.io_elements, [(work, 1)], "cuda", runs_on_host=False)
    assert brought == (Precision("fp32", "cuda"),), "it may have kernels for the card alone"
    assert best(module_of(10**9), 0, products(1e16), "cuda") == Precision("fp32", "cuda")


@pytest.mark.parametrize("card", [((0.45, 0.45), 22)], indirect=True)
@pytest.mark.usefixtures("card")
def test_a_card_that_is_slow_in_fp64_is_known_by_its_product() -> None:
    calls = products(40 * 0.4 * 0.45e12)
    assert fp64_seconds(calls, "cuda") == pytest.approx(40)
    assert best(module_of(10), 0, calls, "cuda") == Precision("fp64", "cuda")
    assert best(module_of(10), 0, 2 * calls, "cuda") == Precision("fp32", "cuda")


@pytest.mark.parametrize("card", [((60.0, 1.0), 78)], indirect=True)
@pytest.mark.usefixtures("card")
def test_convolutions_have_a_rate_of_their_own() -> None:
    """The product's says 3 s of the three calls of matrix-vae: fp64 tensor cores do not compute convolutions."""
    made = resolve_component("matrix-vae")
    config = made.preset("full").config
    work = count_work(made, config, made.workload(config, "steady3", 1), 1)
    assert fp64_seconds([(work, 3)], "cuda") > 150
    assert chosen("matrix-vae", "full", "steady3") == Precision("fp32", "cuda")
    assert fp64_seconds([(replace(work, convolution_flops=0), 3)], "cuda") < 4


def test_the_rates_are_those_of_one_product_and_of_one_convolution(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter((10.0, 10.5, 20.0, 20.25))
    monkeypatch.setattr(precision.time, "perf_counter", lambda: next(seconds))
    assert product_flops("cpu", 128) == 2 * 128**3 / 0.5
    assert convolution_flops("cpu", 2) == 2 * (2 * 4 * 64 * 64) * (2 * 27) / 0.25


def test_a_cpu_has_a_minute() -> None:
    assert best(module_of(10), 0, products(1e11), "cpu") == Precision("fp64", "cpu")
    assert best(module_of(10), 0, products(1e12), "cpu") == Precision("fp32", "cpu")


WAYS = (Precision("fp64", "cuda"), Precision("fp64", "cpu"), Precision("fp32", "cuda"))


def test_where_memory_runs_out_all_the_same_the_next_way_is_taken() -> None:
    tried = []

    def run(way: Precision) -> str:
        tried.append(way)
        if way.device == "cuda":
            raise torch.OutOfMemoryError("CUDA out of memory")
        return way.dtype

    assert in_first_that_fits(WAYS, run) == "fp64"
    assert tried == [*WAYS[:2]]
    with pytest.raises(torch.OutOfMemoryError):
        in_first_that_fits(WAYS[::2], run)
