"""Ports: a call computes the outputs of what was last written into the port's inputs, for every backend."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="inputs are tensors")

import torch
from torch import Tensor, nn
from toys import LIBRARY_WARNINGS, Toy, build_toy, relative

from bakeoff import backends
from bakeoff.backends import resolve_backend
from bakeoff.backends.backend import BuildContext, ModuleEngine
from bakeoff.backends.port import Port, buffers_like
from bakeoff.models.errors import BakeoffError
from bakeoff.worker.torch_flags import flags

pytestmark = LIBRARY_WARNINGS
WORKLOAD = "stream"
"""Two inputs, two outputs."""
NAMES = ("video", "frames")
HONEST = ("POOLED", "STRIDED", "COPIES_OUT", "DELEGATES", "REUSES_OUTPUT")


@pytest.fixture(autouse=True)
def _work_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch._dynamo.reset()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))


def feed(port: Port, values: Mapping[str, Tensor]) -> None:
    assert port.inputs.keys() == values.keys()
    for name, buffer in port.inputs.items():
        buffer.copy_(values[name])


def check(toy: Toy) -> Port:
    """Feed one port with every set in turn, twice."""
    given = [{name: tensor.clone() for name, tensor in inputs.items()} for inputs in toy.sets]
    with flags(toy.dtype, 1):  # dynamo guards on them
        port = toy.engine.port(toy.sets[0], NAMES)
        port.call()
        for index in (*range(len(toy.sets)), *range(len(toy.sets))):
            feed(port, toy.sets[index])
            port.call()
            assert tuple(port.outputs) == NAMES
            for found, wanted in zip(port.outputs.values(), toy.expected[index], strict=True):
                assert relative(found, wanted) < 1e-5
    for inputs, before in zip(toy.sets, given, strict=True):
        assert all(torch.equal(tensor, before[name]) for name, tensor in inputs.items()), "a caller's input changed"
    return port


@pytest.mark.parametrize("name", HONEST)
def test_engines_with_buffers_of_their_own_compute_what_is_written(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(backends._TABLE, "honest", f"selftest_backends.unusual:{name}")
    toy = build_toy(f"{WORKLOAD}/honest/fp32", tmp_path)
    check(toy)
    toy.engine.close()


@pytest.mark.parametrize("name", ["eager", "aoti", "onnxruntime", "openvino"])
def test_inputs_that_are_not_contiguous_are_fed_too(name: str, tmp_path: Path) -> None:
    backend = resolve_backend(name)
    missing = backend.unavailable(backend.options(), "cpu")
    if missing:
        pytest.skip(missing)

    class Doubled(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor]:
            return (x * 2,)

    x = torch.randn(3, 4).t()
    assert not x.is_contiguous()
    context = BuildContext("", "cpu", "fp32", 1, tmp_path, tmp_path / "cache", lambda _seed: {})
    assert backend.build is not None
    with flags("fp32", 1):
        port = backend.build(Doubled().eval(), {"x": x}, backend.options(), context).port({"x": x}, ("y",))
        for value in (x, x + 1):
            port.inputs["x"].copy_(value)
            port.call()
            assert torch.allclose(port.outputs["y"], value * 2)


def doubling() -> tuple[ModuleEngine, dict[str, Tensor]]:
    function: Callable[..., tuple[Tensor, ...]] = lambda x: (x * 2,)  # noqa: E731
    return ModuleEngine(function), {"x": torch.ones(2)}


def test_outputs_before_the_first_call_are_refused() -> None:
    engine, inputs = doubling()
    with pytest.raises(BakeoffError) as refused:
        _ = engine.port(inputs, ("y",)).outputs
    assert refused.value.code == "wrong-output"


def test_another_number_of_outputs_is_refused() -> None:
    engine, inputs = doubling()
    port = engine.port(inputs, ("y", "z"))
    port.call()
    with pytest.raises(BakeoffError) as refused:
        _ = port.outputs
    assert refused.value.code == "wrong-output"
    assert "y, z" in str(refused.value)


def test_buffers_are_writable_even_if_the_inputs_are_not() -> None:
    with torch.inference_mode():
        inputs = {"x": torch.ones(2)}
        buffers = buffers_like(inputs)
    buffers["x"].add_(1)
    assert torch.equal(inputs["x"], torch.ones(2))


def test_buffers_keep_strides_unless_contiguous_ones_are_wanted() -> None:
    x = torch.randn(3, 4).t()
    assert buffers_like({"x": x})["x"].stride() == x.stride()
    assert buffers_like({"x": x}, contiguous=True)["x"].is_contiguous()
