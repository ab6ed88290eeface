"""Helpers for backends that run under torch.compile: a log of their compilations, and the engine that they return.

torch.compile compiles during the first call of the module. So settings that compilation needs are set during the first
call of the engine and restored after it.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from inspect import signature
from typing import TYPE_CHECKING, Any

from bakeoff.backends.backend import Call, Engine, Outputs, Proof
from bakeoff.backends.graphs import graph_hash, operators
from bakeoff.backends.port import NOTHING_CARRIED, Port, port_buffers
from bakeoff.backends.torch_internals import (
    CompileActivity,
    captured_functions,
    compile_id,
    generated_code,
    inductor_settings,
    library_calls,
    read_counters,
    recompile_reasons,
    snapshot,
)
from bakeoff.backends.tracing import Trace

if TYPE_CHECKING:
    from torch import Tensor, fx, nn


@dataclass(slots=True)
class CompileLog:
    """The compilations of one engine; those of other engines in the process do not count."""

    graphs: "list[fx.Graph]" = field(default_factory=list)
    """One graph for each compilation; more than one means that dynamo recompiled."""
    activity: CompileActivity = field(default_factory=CompileActivity)
    """Inductor's counts while this engine's graphs were compiled."""
    library_calls: Counter[str] = field(default_factory=Counter)
    """Calls of libraries and ATen in the code that inductor generated, by name."""
    captured_functions: int = 0
    """Number of functions in that code that inductor runs as CUDA graphs, if its settings say so."""
    graph_breaks: int = 0
    """Breaks during the first call; expected to be 0, since torch.compile(fullgraph=True) raises at a break."""
    compile_ids: list[str] = field(default_factory=list)

    @contextmanager
    def compiling(self, graph: "fx.GraphModule") -> Iterator[None]:
        """Log the compilation of one graph; open this context in the function that dynamo calls to compile it."""
        self.graphs.append(graph.graph)
        self.compile_ids.append(compile_id())
        before = snapshot()
        with generated_code() as modules:
            yield
        self.activity += snapshot() - before
        self.library_calls += library_calls(modules)
        self.captured_functions += captured_functions(modules)

    @property
    def operators(self) -> Counter[str]:
        """Number of each operator in all graphs, by name."""
        found: Counter[str] = Counter()
        for graph in self.graphs:
            found += operators(graph)
        return found

    @property
    def graph_hash(self) -> str:
        return graph_hash(self.graphs)

    @property
    def recompiles(self) -> tuple[str, ...]:
        """Dynamo's reasons for compiling this engine again.

        The first compilation is left out: modules of one class share code objects, so dynamo reports the first
        compilation of a second engine as a recompilation.
        """
        return recompile_reasons(self.compile_ids[1:])


@dataclass(slots=True)
class CompiledEngine(Engine):
    """A module under torch.compile, which compiles it at the first call of any bound inputs."""

    compiled: Callable[..., Outputs]
    log: CompileLog
    prover: Callable[[], Proof]
    tracer: Callable[[Call], Trace]
    freezing: bool
    """Whether to compile with inductor's `freezing`, which is set during the first call only."""
    copying: bool = False
    """Whether each call copies its inputs into the buffers of a captured graph."""
    rebinding: bool = False
    """Value of `Engine.rebinds`."""
    one_pool: bool = False
    """Whether outputs lie in a memory pool that all such engines of the process share, so that a call of any may
    overwrite them."""
    _run: Callable[..., Outputs] = field(init=False)

    def __post_init__(self) -> None:
        self._run = self._first

    def bind(self, inputs: "Mapping[str, Tensor]") -> Call:
        tensors = tuple(inputs.values())
        return lambda: self._run(*tensors)

    def _first(self, *tensors: "Tensor") -> Outputs:
        # Freezing must be set before dynamo runs, so an option of torch.compile or compile_fx is too late: dynamo reads
        # the global setting to decide whether parameters are constants (torch._dynamo.utils.is_parameter_freezing), and
        # inductor folds only constants.
        before = snapshot()
        with inductor_settings(freezing=True) if self.freezing else nullcontext():
            outputs = self.compiled(*tensors)
        self.log.graph_breaks += (snapshot() - before).graph_breaks
        self._run = self.compiled
        return outputs

    def port(
        self,
        inputs: "Mapping[str, Tensor]",
        outputs: Sequence[str],
        carried: Mapping[str, str] = NOTHING_CARRIED,
        shared: bool = False,
    ) -> Port:
        """Return a port, as Engine.port does; outputs that another engine's call may overwrite are copied."""
        if not self.one_pool:
            return Engine.port(self, inputs, outputs, carried, shared)
        buffers = port_buffers(inputs, shared)
        return Port(buffers, self.bind(buffers), outputs, carried, clones=True)

    def rebinds(self) -> bool:
        return self.rebinding

    def copies_inputs(self) -> bool:
        return self.copying

    def activity(self) -> Mapping[str, int]:
        return read_counters("stats", "aot_autograd", "inductor")

    def compilations(self) -> int:
        return len(self.log.graphs)

    def prove(self) -> Proof:
        return self.prover()

    def trace(self, call: Call) -> Trace:
        return self.tracer(call)


def compile_whole(
    module: "nn.Module", compiler: Callable[["fx.GraphModule", "list[Tensor]"], Any]
) -> Callable[..., Outputs]:
    """Wrap the module in torch.compile as one graph with static shapes; a graph break raises at the first call.

    Its compilations are counted separately from those of other modules of its class, of which dynamo allows eight in a
    process (torch._dynamo.config.recompile_limit). Versions of torch without `isolate_recompiles` cannot do that: with
    them the first call of a ninth engine raises.
    """
    import torch

    own: dict[str, Any] = (
        {"isolate_recompiles": True} if "isolate_recompiles" in signature(torch.compile).parameters else {}
    )
    return torch.compile(module, backend=compiler, fullgraph=True, dynamic=False, **own)
