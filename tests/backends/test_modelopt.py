"""modelopt's preparation for TensorRT, an example: real on a CPU where modelopt is installed, refusals everywhere."""

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="layers are torch's")

import torch
from torch import nn
from toys import LIBRARY_WARNINGS

from bakeoff.backends import backend_names, resolve_backend
from bakeoff.backends.backend import BuildContext, Prepared, Unsupported
from bakeoff.backends.graphs import check_not_quantised, export, operators
from bakeoff.backends.torch_compile import compile_whole
from bakeoff.backends.torch_internals import inductor_settings
from bakeoff.models import resolve_component
from bakeoff.models.component import LEAST_SQNR_DB
from bakeoff.plan.request import Request
from bakeoff.plan.suites import compositions
from bakeoff.worker.build import check_quantisation, layer_bytes

BACKEND = resolve_backend("modelopt")
Options = BACKEND.options

pytestmark = LIBRARY_WARNINGS


class Decoder(nn.Module):
    """A convolution and two linear layers; the last is used by a part of its weight only."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, padding=1)
        self.proj_out = nn.Sequential(nn.Linear(16, 32))
        self.part = nn.Linear(32, 64)
        self.unused = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
        hidden = self.proj_out(self.conv(x).flatten(2).transpose(1, 2))
        return (nn.functional.linear(hidden, self.part.weight[32:]),)


def drawn(seed: str) -> dict[str, torch.Tensor]:
    return {"x": torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(len(seed))).bfloat16()}


def context(folder: Path) -> BuildContext:
    return BuildContext("modelopt", "cpu", "bf16", 1, folder, folder, drawn)


def decoder() -> nn.Module:
    torch.manual_seed(0)
    return Decoder().bfloat16().eval().requires_grad_(False)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Prepared, float]:
    """The prepared decoder, and its SQNR in dB against the given one."""
    pytest.importorskip("modelopt", reason="it quantises")
    module, inputs = decoder(), drawn("measured")
    with torch.no_grad():
        expected = module(*inputs.values())[0].double()
        made = BACKEND.prepare(module, inputs, Options(least=0), context(tmp_path_factory.mktemp("modelopt")))
        error = made.module(*inputs.values())[0].double() - expected
    return made, float(20 * torch.log10(expected.norm() / error.norm()))


def test_convolutions_and_linear_layers_are_calibrated(prepared: tuple[Prepared, float]) -> None:
    """modelopt's own preset would leave `proj_out` out by its name."""
    made, sqnr = prepared
    assert made.quantised == dict.fromkeys(("conv", "proj_out.0"), "fp8 calibrated")
    assert made.skipped == {"part": "not called", "unused": "not called"}
    assert made.facts == {"quantise_nodes": 4, "calibration_sets": 4}
    assert LEAST_SQNR_DB["fp8"] < sqnr < 45, "neither unquantised nor outside its budget"


def test_the_graph_is_what_torch_tensorrt_converts(prepared: tuple[Prepared, float]) -> None:
    """Each quantiser keeps its module path, by which the NVFP4 converter tells weights from inputs."""
    made, _ = prepared
    check_not_quantised(made.module, "torch_tensorrt", "no")
    program = export(made.module, drawn("calibration 0"))
    assert operators(program.graph)["tensorrt.quantize_op"] == 4
    assert set(resolve_backend("tensorrt").quantise_operators) >= {"tensorrt.quantize_op"}
    nodes = [node for node in program.graph.nodes if "quantize_op" in str(node.target)]
    paths = [list(node.meta["nn_module_stack"].values())[-1][0] for node in nodes]
    parts = ("input_quantizer", "weight_quantizer")
    assert paths == [f"{layer}.{part}" for layer in ("conv", "proj_out.0") for part in parts]
    assert all(node.args[2:] == (8, 4, False, False) for node in nodes), "e4m3, by the converter's arguments"


def test_under_torch_compile_scales_are_constants_of_the_graph(prepared: tuple[Prepared, float]) -> None:
    """The converter reads their values (2.13: conversion/impl/quantize.py asks `amax.numel()`)."""
    made, _ = prepared
    seen = []

    def record(graph, _inputs):
        seen.append(graph)
        return graph.forward

    torch._dynamo.reset()
    with torch.no_grad(), inductor_settings(freezing=True):
        compile_whole(made.module, record)(*drawn("measured").values())
    (graph,) = seen
    assert len(graph.graph.find_nodes(op="placeholder")) == 1
    assert operators(graph.graph)["tensorrt.quantize_op"] == 4


def test_it_counts_as_quantised_although_its_weights_keep_their_size(prepared: tuple[Prepared, float]) -> None:
    made, _ = prepared
    size = layer_bytes(made.module)
    assert check_quantisation(made, {}, size, size) == (made, None)


def test_a_quantiser_that_pytorch_runs_is_a_fallback(prepared: tuple[Prepared, float]) -> None:
    (check,) = prepared[0].ran_instead
    assert "emulation" in check(frozenset({"tensorrt.quantize_op", "aten.relu"}), False)
    engine = "[QUANTIZE]-[aten_ops.tensorrt.quantize_op.default]-[conv.input_quantizer/quantize_op]"
    assert check(frozenset({engine}), True) == ""


def test_nothing_to_quantise_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="no layer: the component has none"):
        BACKEND.prepare(nn.Identity(), drawn(""), Options(), context(tmp_path))
    with pytest.raises(Unsupported, match="432 elements, fewer than 65536"):
        BACKEND.prepare(decoder(), drawn(""), Options(), context(tmp_path))


@pytest.mark.parametrize(
    ("kind", "found", "needed"), [("fp8", (8, 0), "8.9"), ("nvfp4", (9, 0), "10.0"), ("nvfp4", (8, 9), "10.0")]
)
def test_older_gpus_are_refused_before_anything_is_quantised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, found: tuple[int, int], needed: str
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: found)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA A100")
    on_cuda = replace(context(tmp_path), device="cuda")
    with pytest.raises(Unsupported, match=f"needs compute capability {needed}.*use tensorrt-aot"):
        BACKEND.prepare(decoder(), drawn(""), Options(kind, least=0), on_cuda)


def test_only_tensorrt_builds_it() -> None:
    builders = [resolve_backend(name) for name in backend_names() if resolve_backend(name).build]
    taken = {one.name for one in builders if BACKEND.unsupported_builder(Options(), one) is None}
    assert taken == {"tensorrt", "tensorrt-aot", "tensorrt-rtx"}
    fp4 = {one.name for one in builders if BACKEND.unsupported_builder(Options("nvfp4"), one) is None}
    assert fp4 == {"tensorrt", "tensorrt-aot"}


@pytest.mark.parametrize("component", ["wm", "image", "audio", "matrix-vae"])
def test_a_cuda_sweep_has_fp8_rows_for_tensorrt(component: str) -> None:
    taken = compositions(Request(component), resolve_component(component), "cuda")
    builders = [one.steps[1].backend.name for one in taken if one.steps[0].backend is BACKEND]
    assert builders == ["tensorrt-aot"]
