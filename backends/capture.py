"""Captures an engine's bound calls as CUDA graphs, which are replayed: one graph for each bound set of inputs.

A graph reads and writes fixed addresses. It reads the caller's tensors in place, so a producer may write into them;
a port copies other new values into its inputs by one list copy. All captures of an engine share one memory pool: a
later capture may place its outputs in memory that an earlier one freed, and a replay of the earlier one then
overwrites them. So outputs are valid only until the next call with any set of inputs. A port's capture has its own
pool.

What torch asks of a capture (torch/cuda/graphs.py, `graph` and `make_graphed_callables`, 2.13): calls on a side stream
before it, no synchronisation with the host and no other stream without an event within it. What is known of engines:
- inductor's code launches on the current stream. Its modes that capture by themselves are refused.
- AOTInductor runs on the current stream, "without thread synchronization logic", which torch offers for CUDA graphs
  (torch/_inductor/__init__.py, aoti_load_package, `run_single_threaded`, 2.13).
- TensorRT's engines run on the caller's stream unless it is the default one (core/runtime/execute_engine.cpp, 266 to
  275, torch_tensorrt 2.13.0), and torch_tensorrt captures whole programs likewise, after three calls on a side stream
  (dynamo/runtime/_CudaGraphsTorchTensorRTModule.py, warm_up).

An H200 has run the capture of eager. No card has run that of an engine of a compiler.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from bakeoff.backends.backend import Call, Engine, ModuleEngine, Outputs, Proof, Unsupported
from bakeoff.backends.port import NOTHING_CARRIED, Port, buffers_like, port_buffers
from bakeoff.backends.torch_internals import copier
from bakeoff.backends.tracing import Trace

if TYPE_CHECKING:
    from torch import Tensor

    from bakeoff.backends.format import Run

_WARM_UPS = 3
"""Number of calls before the first capture, in which libraries choose kernels and allocate workspaces."""
ONE_SIZE = "graph captures a CUDA graph for one size; leave it or --sizes out"


def unsupported_graph(graph: bool, device: str) -> str | None:
    """Return why the option `graph` cannot be used on this device; None if it is not set or can be."""
    return "graph needs CUDA graphs, which a CPU does not have; leave it out" if graph and device == "cpu" else None


@dataclass(slots=True)
class CapturedEngine(Engine):
    """An engine whose bound calls are captured when they are bound, and replayed by each call; made by `capture`."""

    engine: Engine
    pool: Any
    graphs: "list[Any]" = field(default_factory=list)

    def bind(self, inputs: "Mapping[str, Tensor]") -> Call:
        return self._capture(inputs, self.pool)

    def port(
        self,
        inputs: "Mapping[str, Tensor]",
        outputs: Sequence[str],
        carried: Mapping[str, str] = NOTHING_CARRIED,
        shared: bool = False,
    ) -> Port:
        """Return a port, as Engine.port does. Only the port's own calls overwrite its outputs."""
        import torch

        buffers = port_buffers(inputs, shared)
        return Port(buffers, self._capture(buffers, torch.cuda.graph_pool_handle()), outputs, carried)

    def _capture(self, inputs: "Mapping[str, Tensor]", pool: Any) -> Call:
        import torch

        bound, graph = self.engine.bind(inputs), torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=pool):
                outputs = bound()
        except RuntimeError as error:
            reason = _not_captured(error)
            if not reason:
                raise
            raise Unsupported(f"CUDA cannot capture these calls: {reason}; use them without a graph") from error
        self.graphs.append(graph)
        replay, kept = graph.replay, (outputs, bound)  # the graph uses the memory of both

        def call() -> Outputs:
            replay()
            return kept[0]

        return call

    def captures(self) -> bool:
        return True

    def activity(self) -> Mapping[str, int]:
        return {**self.engine.activity(), "captures": len(self.graphs)}

    def compilations(self) -> int:
        return self.engine.compilations() + len(self.graphs)

    def prove(self) -> Proof:
        proof, captured = self.engine.prove(), len(self.graphs)
        lacking = "" if captured else "calls without a CUDA graph: nothing was captured"
        return replace(
            proof,
            fell_back=proof.fell_back or lacking,
            graphs=min(captured, 1) if proof.graphs is None else proof.graphs,
            facts={"captures": captured, **proof.facts},
        )

    def trace(self, call: Call) -> Trace:
        return self.engine.trace(call)

    def close(self) -> None:
        for graph in self.graphs:
            graph.reset()
        self.graphs.clear()
        self.engine.close()


def _not_captured(error: RuntimeError) -> str:
    """Return CUDA's reason why calls cannot be captured; "" for an error that is no reason against capturing.

    The messages of all of CUDA's errors of captures contain `captur` (CUDA Runtime API, cudaError_t, 900 to 908). If a
    call fails within a capture, so does ending the capture, and the call's error is the context of that one.
    """
    first = error.__context__ or error
    return str(first).partition("\n")[0] if "captur" in str(first) else ""


def capture(engine: Engine, inputs: "Mapping[str, Tensor]") -> CapturedEngine:
    """Return the engine as one that captures what it is bound to.

    It is called with these inputs first: once as without a graph, so that it compiles and tunes as usual, then on a
    side stream.
    """
    import torch

    call = engine.bind(inputs)
    call()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(_WARM_UPS):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    return CapturedEngine(engine, torch.cuda.graph_pool_handle())


def replaying(run: "Run") -> "Run":
    """Return an opened program as one graph, captured at the first call: for artifacts of engines with `graph`.

    A call copies its inputs into those of the graph by list copies, and the outputs to new memory. All calls must have
    the shapes, dtypes and strides of the first.
    """
    bound: list[tuple[dict[str, Tensor], Call]] = []

    def call(tensors: "Sequence[Tensor]") -> "Sequence[Tensor]":
        inputs = {str(place): tensor for place, tensor in enumerate(tensors)}
        if not bound:
            buffers = buffers_like(inputs)
            engine = ModuleEngine(lambda *given: tuple(run(given)))
            bound.append((buffers, capture(engine, buffers).bind(buffers)))
        buffers, replay = bound[0]
        copier(buffers, inputs)()
        return [output.clone() for output in replay()]

    return call
