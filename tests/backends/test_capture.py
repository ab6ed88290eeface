"""Capture of any engine by a fake CUDA graph: data flow, the order of calls, and what is refused.

The fake cannot show that CUDA captures an engine; tests marked `gpu` do (test_feeding.py, test_gpu_backends.py).
"""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch captures graphs")

import torch
from fake_cuda_graphs import FakeCuda, install, install_for_compiled
from fake_torch_tensorrt import pinned
from torch import Tensor
from toys import LIBRARY_WARNINGS, NEEDS_COMPILER, build_toy, check_misfits

from bakeoff.backends import aoti, inductor, resolve_backend
from bakeoff.backends.backend import Call, Engine, ModuleEngine, Outputs, Unsupported
from bakeoff.backends.capture import capture, replaying
from bakeoff.backends.format import Opening
from bakeoff.backends.port import Port
from bakeoff.backends.torch_tensorrt import ahead_of_time
from bakeoff.backends.torch_tensorrt.ahead_of_time import FORMAT
from bakeoff.models.options import options_of
from bakeoff.variant import parse_use
from bakeoff.worker.torch_flags import flags

WARM_UP = ["call", "Stream", "side waits for current", "on side", *["call"] * 3, "off", "current waits for side"]


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    return install(monkeypatch)


@LIBRARY_WARNINGS
@NEEDS_COMPILER
@pytest.mark.parametrize("text", ["inductor[freezing,graph]", "aoti[graph]"])
def test_a_compiled_engine_is_captured_for_each_set_and_only_replayed(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    torch._dynamo.reset()
    cuda = install_for_compiled(monkeypatch, inductor, aoti)
    toy = build_toy(f"world/{text}/fp32", tmp_path)
    captures = [line for pair in [["capture pool 1", "call"]] * len(toy.sets) for line in pair]
    assert cuda.log == [*WARM_UP, "graph_pool_handle", *captures]
    assert toy.error() < 1e-5
    assert len(cuda.log) == len(WARM_UP) + 1 + len(captures), "a replay calls no engine"
    proof, compilations = toy.proof, toy.engine.compilations()
    assert (proof.fell_back, proof.facts["captures"]) == ("", len(toy.sets))
    assert toy.engine.captures()
    assert not toy.engine.rebinds()
    with flags("fp32", 1):
        port = toy.engine.port(toy.sets[0], ("y",))
        assert type(port) is Port
        for inputs, expected in zip(toy.sets, toy.expected, strict=True):
            port.feed(inputs)
            port.call()
            torch.testing.assert_close(port.outputs["y"], expected[0], rtol=1e-5, atol=1e-6)
        for name, tensor in port.inputs.items():  # a producer may write in place
            tensor.copy_(toy.sets[0][name])
        port.call()
        torch.testing.assert_close(port.outputs["y"], toy.expected[0][0], rtol=1e-5, atol=1e-6)
        if text.startswith("aoti"):
            check_misfits(toy)
    assert toy.engine.compilations() == compilations + 1
    toy.engine.close()


@LIBRARY_WARNINGS
def test_tensorrt_ahead_of_time_is_captured_from_outside_of_its_runtime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the fake of torch_tensorrt: its own mode stays off, and an artifact is captured where it is opened."""
    cuda = install_for_compiled(monkeypatch, ahead_of_time)
    with pinned() as fake:
        toy = build_toy("world/tensorrt-aot[graph]/fp32", tmp_path)
        assert toy.error() < 1e-6
        assert (toy.engine.captures(), toy.engine.copies_inputs()) == (True, False)
        assert (toy.proof.fell_back, toy.proof.facts["captures"]) == ("", len(toy.sets))
        assert fake.switches == [False], "only the fixture's"
        (saved,) = (tmp_path / "cache").glob("*.ep")
        run = FORMAT.read(saved, (), Opening("cpu", "fp32", 1, ahead_of_time.Options(graph=True)))
        cuda.log.clear()
        for inputs, expected in zip(toy.sets, toy.expected, strict=True):
            (output,) = run([*inputs.values()])
            torch.testing.assert_close(output, expected[0])
        assert [line for line in cuda.log if line.startswith("capture")] == ["capture pool 2"]
    assert {kernel.own for kernel in toy.engine.trace(toy.built.calls[0]).kernels} == {True}


def test_the_order_of_calls_and_that_torch_has_them(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    class Noting(Engine):
        def bind(self, inputs: Mapping[str, Tensor]) -> Call:
            def call() -> Outputs:
                cuda.log.append("call")
                return (inputs["x"] * 2,)

            return call

    inputs = {"x": torch.ones(2)}
    engine = capture(Noting(), inputs)
    replay = engine.bind(inputs)
    assert cuda.log == [*WARM_UP, "graph_pool_handle", "capture pool 1", "call"]
    inputs["x"].fill_(3)
    assert torch.equal(replay()[0], torch.full((2,), 6.0))
    assert replay()[0] is replay()[0]
    monkeypatch.undo()
    assert [*inspect.signature(torch.cuda.graph).parameters][:2] == ["cuda_graph", "pool"]
    for name in ("replay", "reset"):
        assert callable(getattr(torch.cuda.CUDAGraph, name))
    for name in ("Stream", "current_stream", "stream", "graph_pool_handle"):
        assert callable(getattr(torch.cuda, name))


def failing(end: str) -> Any:
    """torch.cuda.graph as it raises where a call cannot be captured: first the call, then the end of the capture."""

    class Graph:
        def __init__(self, cuda_graph: object, pool: object) -> None:
            pass

        def __enter__(self) -> None:
            pass

        def __exit__(self, *_raised: object) -> None:
            if end:
                raise RuntimeError(end)

    return Graph


@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize(
    ("first", "end", "reason"),
    [
        (
            RuntimeError("CUDA error: operation not permitted when stream is capturing\nSearch for ..."),
            "CUDA error: operation failed due to a previous error during capture",
            "operation not permitted when stream is capturing; use them",
        ),
        (None, "CUDA error: capturing stream has unjoined work", "capturing stream has unjoined work"),
        (torch.OutOfMemoryError("CUDA out of memory"), "CUDA error: previous error during capture", None),
        (RuntimeError("shapes differ"), "", None),
    ],
)
def test_what_cuda_does_not_capture_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, first: Exception | None, end: str, reason: str | None
) -> None:
    """And any other error of a call, such as too little memory, stays what it is."""
    calls = 0

    def function(x: Tensor) -> Outputs:
        nonlocal calls
        calls += 1
        if calls > 4 and first is not None:
            raise first
        return (x * 2,)

    engine = capture(ModuleEngine(function), {"x": torch.ones(2)})
    monkeypatch.setattr(torch.cuda, "graph", failing(end))
    with pytest.raises(Unsupported if reason else RuntimeError, match=reason) as raised:
        engine.bind({"x": torch.ones(2)})
    if reason is None:
        assert not isinstance(raised.value, Unsupported)
        assert first in (raised.value, raised.value.__context__)
    assert "nothing was captured" in engine.prove().fell_back


@pytest.mark.usefixtures("cuda")
def test_an_artifact_replays_and_its_outputs_stay() -> None:
    ran = []

    def run(tensors: Any) -> Any:
        ran.append(list(tensors))
        return [tensors[0] * 2 + tensors[1]]

    program = replaying(run)
    first = program([torch.ones(2), torch.ones(2)])
    calls = len(ran)
    second = program([torch.full((2,), 5.0), torch.ones(2)])
    assert torch.equal(first[0], torch.full((2,), 3.0))
    assert torch.equal(second[0], torch.full((2,), 11.0))
    assert len(ran) == calls == 5, "four calls before the capture, and the captured one"


@pytest.mark.parametrize(
    ("text", "device", "said"),
    [
        ("inductor[graph]", "cpu", "a CPU does not have"),
        ("aoti[graph]", "cpu", "a CPU does not have"),
        ("inductor[mode=reduce-overhead,graph]", "cuda", "captures by itself"),
        ("inductor[mode=max-autotune,graph]", "cuda", "captures by itself"),
        ("tensorrt-aot[cudagraphs,graph]", "cuda", "leave one out"),
        ("inductor[mode=max-autotune-no-cudagraphs,freezing,graph]", "cuda", None),
        ("aoti[graph]", "cuda", None),
        ("tensorrt-aot[graph]", "cuda", None),
    ],
)
def test_options_that_capture_twice_or_on_a_cpu_are_refused(text: str, device: str, said: str | None) -> None:
    name, options = parse_use(text)
    backend = resolve_backend(name)
    given = options_of(backend, options or {})
    reason = backend.unsupported(given, device, "bf16")
    assert said in reason if said else reason is None
    sized = backend.unsupported_sizes
    assert callable(sized)
    assert sized(given) is not None
    assert callable(backend.binds_memory)
    assert backend.binds_memory(given)
