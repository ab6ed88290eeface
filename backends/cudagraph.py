"""Eager PyTorch captured as a CUDA graph and replayed: shows the cost of kernel launches, without any fusion.

A graph reads and writes fixed addresses, so each bound set of inputs has its own capture. All captures share one memory
pool: a later capture may place its outputs in memory that an earlier one freed, and a replay of the earlier one then
overwrites them. So outputs are valid only until the next call with any set of inputs. A port's capture has its own
pool.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bakeoff.backends.backend import (
    Backend,
    BuildContext,
    Call,
    DefaultOptions,
    Engine,
    Outputs,
    Proof,
)
from bakeoff.backends.channels_last import CONVOLUTIONS, store_channels_last
from bakeoff.backends.eager import Options
from bakeoff.backends.graphs import TORCH
from bakeoff.backends.port import NOTHING_CARRIED, Port, port_buffers

if TYPE_CHECKING:
    from torch import Tensor, nn

_WARM_UPS = 3
"""Number of calls before the first capture, in which libraries choose kernels and allocate workspaces."""


@dataclass(slots=True)
class _Captured(Engine):
    module: "nn.Module"
    pool: Any
    facts: Mapping[str, int] = field(default_factory=dict)
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

        tensors = tuple(inputs.values())
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            outputs: Outputs = self.module(*tensors)
        self.graphs.append(graph)
        replay, kept = graph.replay, (outputs, tensors)  # the graph uses the memory of both

        def call() -> Outputs:
            replay()
            return kept[0]

        return call

    def captures(self) -> bool:
        return True

    def activity(self) -> Mapping[str, int]:
        return {"captures": len(self.graphs)}

    def compilations(self) -> int:
        return len(self.graphs)

    def prove(self) -> Proof:
        captured = len(self.graphs)
        return Proof(
            fell_back="" if captured else "eager: nothing was captured",
            graphs=min(captured, 1),
            facts={"captures": captured, **self.facts},
        )

    def close(self) -> None:
        for graph in self.graphs:
            graph.reset()
        self.graphs.clear()


def _build(module: "nn.Module", inputs: "Mapping[str, Tensor]", options: Options, _context: BuildContext) -> Engine:
    import torch

    facts = {"channels_last_weights": store_channels_last(module, inputs)} if options.channels_last else {}
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(_WARM_UPS):
            module(*inputs.values())
    torch.cuda.current_stream().wait_stream(stream)
    return _Captured(module, torch.cuda.graph_pool_handle(), facts)


BACKEND = Backend(
    name="cudagraph",
    summary="eager, captured as a CUDA graph and replayed: saves launches, fuses nothing",
    build=_build,
    options=Options,
    defaults=(
        DefaultOptions(Options(), devices=("cuda",), dtypes=("bf16",), suite="quick"),
        DefaultOptions(Options(channels_last=True), devices=("cuda",), dtypes=("bf16",), layers=CONVOLUTIONS),
    ),
    requires=(TORCH,),
    devices=("cuda",),
    checks="calls replay a captured graph and dispatch no operators",
    binds_memory=True,
    same_when_traced=("cuda",),
)
