"""The cudagraph backend with a fake capture, which logs the operators that run and repeats them in place at a replay.

As with a real CUDA graph, a capture computes no readable values, and a replay reads and writes the captured addresses
(CUDA C++ programming guide, graphs).
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch captures graphs")

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from toys import Toy, build_toy

from bakeoff.backends.cudagraph import BACKEND
from bakeoff.backends.port import Port
from bakeoff.record.policy import Policy
from bakeoff.worker.checks.fresh_inputs import call_with_fresh_inputs
from bakeoff.worker.clocks.clock import TimingConfig
from bakeoff.worker.measure import measure_input_copy


class Graph(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple[Any, Any, Any, list[Tensor]]] = []
        self.replays = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        given = {tensor.untyped_storage().data_ptr() for tensor in _tensors((args, kwargs))}
        fresh = [tensor for tensor in _tensors(result) if tensor.untyped_storage().data_ptr() not in given]
        self.steps.append((function, args, kwargs or {}, fresh))
        return result

    def replay(self) -> None:
        self.replays += 1
        for function, args, kwargs, fresh in self.steps:
            result = _tensors(function(*args, **kwargs))
            for kept, new in zip(fresh, result[-len(fresh) :] if fresh else [], strict=True):
                kept.copy_(new)

    def reset(self) -> None:
        self.steps.clear()


def _tensors(value: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


@contextmanager
def capture(graph: Graph, pool: object) -> Iterator[None]:
    assert pool == "pool"
    with torch.no_grad(), graph:
        yield
    for _, _, _, fresh in graph.steps:
        for result in fresh:
            if result.is_floating_point():
                result.fill_(float("nan"))


@pytest.fixture
def fake_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = SimpleNamespace(wait_stream=lambda _other: None)
    for name, value in {
        "Stream": lambda: stream,
        "current_stream": lambda: stream,
        "stream": lambda _stream: nullcontext(),
        "graph_pool_handle": lambda: "pool",
        "CUDAGraph": Graph,
        "graph": capture,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)


@pytest.fixture
def toy(request: pytest.FixtureRequest, tmp_path: Path) -> Toy:
    request.getfixturevalue("fake_cuda")
    return build_toy("world/cudagraph/fp32", tmp_path)


@pytest.mark.usefixtures("fake_cuda")
def test_weights_are_laid_out_before_the_capture(tmp_path: Path) -> None:
    made = build_toy("picture/cudagraph[channels_last]/fp32", tmp_path)
    assert made.error() < 1e-5
    assert made.proof.facts["channels_last_weights"] > 0


def test_replays_give_what_eager_gives_for_each_set(toy: Toy) -> None:
    assert toy.error() < 1e-6


def test_each_set_of_inputs_is_captured_once_and_only_replayed(toy: Toy) -> None:
    before = dict(toy.engine.activity())
    for _ in range(3):
        for call in toy.built.calls:
            call()
    assert toy.engine.activity() == before == {"captures": len(toy.sets)}


def test_a_replay_reads_the_callers_memory(toy: Toy) -> None:
    call, inputs = toy.built.calls[0], toy.sets[0]
    first = [output.clone() for output in call()]
    for tensor in inputs.values():
        tensor.mul_(0.5)
    again = call()
    assert any(not torch.equal(one, other) for one, other in zip(first, again, strict=True))
    for one, other in zip(again, toy.module(*inputs.values()), strict=True):
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-6)


def test_fresh_inputs_are_captured_once_and_replayed(toy: Toy) -> None:
    expected = toy.module(*toy.sets[1].values())
    config = TimingConfig("cpu", Policy(), lambda _index, _outputs: None)
    fresh = call_with_fresh_inputs(toy.engine, toy.sets, config, seed=0)
    assert toy.engine.captures()
    assert toy.engine.activity() == {"captures": len(toy.sets) + 1}
    for one, other in zip(fresh.outputs, expected, strict=True):
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-6)


def test_bound_sets_do_not_write_into_each_other(toy: Toy) -> None:
    first, second = toy.built.calls[:2]
    kept = [output.clone() for output in first()]
    second()
    assert all(torch.equal(one, other) for one, other in zip(first(), kept, strict=True))


def test_the_proof_counts_captures(toy: Toy) -> None:
    proof = toy.proof
    assert (proof.fell_back, proof.graphs, proof.facts["captures"]) == ("", 1, len(toy.sets))
    toy.engine.close()
    assert toy.proof.fell_back.startswith("eager")


def test_a_cpu_is_unsupported() -> None:
    assert "cpu" in BACKEND.unsupported(BACKEND.options(), "cpu", "bf16")


def test_a_port_replays_what_is_written_into_its_inputs(toy: Toy) -> None:
    port = toy.engine.port(toy.sets[0], ("y",))
    captured = dict(toy.engine.activity())
    for inputs in toy.sets:
        for name, buffer in port.inputs.items():
            buffer.copy_(inputs[name])
        port.call()
        (wanted,) = toy.module(*inputs.values())
        assert torch.allclose(port.outputs["y"], wanted, rtol=1e-5, atol=1e-6)
    assert toy.engine.activity() == captured
    assert toy.engine.compilations() == len(toy.sets) + 1


def test_a_port_carries_outputs_by_copying_and_captures_once(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    pools: list[object] = []
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: "pool of a port")
    monkeypatch.setattr(torch.cuda, "graph", lambda graph, pool: pools.append(pool) or capture(graph, "pool"))
    port = toy.engine.port(toy.sets[0], ("y",), {"y": "x"})
    assert pools == ["pool of a port"]
    captured = toy.engine.compilations()
    values = dict(toy.sets[0])
    for _ in range(3):
        port.call()
        (values["x"],) = toy.module(*values.values())
        assert port.advance() == values["x"].nbytes
        assert torch.allclose(port.inputs["x"], values["x"], rtol=1e-5, atol=1e-6)
    assert type(port) is Port
    assert toy.engine.compilations() == captured


def test_feeding_it_is_measured_as_copies_into_what_it_replays(toy: Toy) -> None:
    port = toy.engine.port(toy.sets[0], ("y",))
    config = TimingConfig("cpu", Policy(), lambda _index, _outputs: None)
    copied = measure_input_copy(toy.engine, port.inputs, toy.sets[1], config)
    assert copied is not None
    assert not copied.in_call
    assert copied.bytes == sum(tensor.numel() * 4 for tensor in toy.sets[1].values())
    assert len(copied.samples_ns) >= 20
    port.call()
    (wanted,) = toy.module(*toy.sets[1].values())
    assert torch.allclose(port.outputs["y"], wanted, rtol=1e-5, atol=1e-6), "every input was copied"
