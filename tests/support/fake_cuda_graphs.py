"""CUDA graphs of a made-up torch.cuda: what a capture runs is recorded, and repeated in place by a replay.

As with a real CUDA graph, a capture computes no readable values, and a replay reads and writes the captured addresses
(CUDA C++ programming guide, graphs). The names and parameters are those of torch/cuda/graphs.py (2.13), which
tests/backends/test_capture.py compares. `log` has the calls in order.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from bakeoff.backends import capture
from bakeoff.backends.backend import Call, Engine, Outputs


class Graph(TorchDispatchMode):
    """A graph of the operators that are dispatched in a capture, and of the opaque calls of a `Compiled`."""

    ignore_compile_internals: Any = classmethod(lambda _: True)  # a capture runs compiled code

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple[Callable[..., Any], Any, Any, list[Tensor]]] = []
        self.replays = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.add(function, args, kwargs or {})

    def add(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        given = {tensor.untyped_storage().data_ptr() for tensor in _tensors((args, kwargs))}
        fresh = [tensor for tensor in _tensors(result) if tensor.untyped_storage().data_ptr() not in given]
        self.steps.append((function, args, kwargs, fresh))
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


@dataclass
class FakeCuda:
    """What was called, and the graph that is being captured."""

    log: list[str] = field(default_factory=list)
    capturing: Graph | None = None
    opaque: bool = False
    """Whether captures record the whole calls of a `Compiled`, whose kernels no dispatcher sees."""
    pools: int = 0

    def pool(self) -> str:
        self.pools += 1
        self.log.append("graph_pool_handle")
        return f"pool {self.pools}"

    @contextmanager
    def on(self, stream: "FakeStream") -> Iterator[None]:
        self.log.append(f"on {stream.name}")
        yield
        self.log.append("off")

    @contextmanager
    def graph(self, cuda_graph: Graph, pool: object = None) -> Iterator[None]:
        self.log.append(f"capture {pool}")
        self.capturing = cuda_graph
        try:
            with torch.no_grad():
                if self.opaque:
                    yield
                else:
                    with cuda_graph:
                        yield
        finally:
            self.capturing = None
        for *_, fresh in cuda_graph.steps:
            for result in fresh:
                if result.is_floating_point():
                    result.fill_(float("nan"))


@dataclass
class FakeStream:
    cuda: FakeCuda
    name: str
    cuda_stream: int = 7

    def wait_stream(self, other: "FakeStream") -> None:
        self.cuda.log.append(f"{self.name} waits for {other.name}")


class Compiled(Engine):
    """A real engine, of which a capture records each call as a whole."""

    def __init__(self, engine: Engine, cuda: FakeCuda) -> None:
        self.engine, self.cuda = engine, cuda

    def bind(self, inputs: Mapping[str, Tensor]) -> Call:
        bound, tensors = self.engine.bind(inputs), list(inputs.values())

        def run(*_read: Tensor) -> Outputs:
            return bound()

        def call() -> Outputs:
            self.cuda.log.append("call")
            graph = self.cuda.capturing
            return run() if graph is None else graph.add(run, tensors, {})

        return call

    def __getattribute__(self, name: str) -> Any:
        mine = name in ("engine", "cuda", "bind", "__class__")
        return object.__getattribute__(self, name) if mine else getattr(object.__getattribute__(self, "engine"), name)


def install(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    """Have this process capture by the fake."""
    cuda = FakeCuda()
    current = FakeStream(cuda, "current")

    class Stream(FakeStream):
        def __init__(self) -> None:
            super().__init__(cuda, "side")
            cuda.log.append("Stream")

    for name, value in {
        "Stream": Stream,
        "current_stream": lambda: current,
        "stream": cuda.on,
        "graph_pool_handle": cuda.pool,
        "CUDAGraph": Graph,
        "graph": cuda.graph,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    return cuda


def install_for_compiled(monkeypatch: pytest.MonkeyPatch, *modules: Any) -> FakeCuda:
    """Have these backends capture by the fake, whose graphs then hold whole calls of their engines."""
    cuda = install(monkeypatch)
    cuda.opaque = True
    for module in (*modules, capture):
        monkeypatch.setattr(module, "capture", lambda engine, inputs: _CAPTURE(Compiled(engine, cuda), inputs))
    return cuda


_CAPTURE = capture.capture
