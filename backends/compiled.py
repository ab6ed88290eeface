"""What backends that torch.compile calls share: the log of what they were given, and the engine around the result.

torch.compile compiles at the first call, not when it is asked. So what must hold while it compiles holds during the
first call of the engine, and is restored after it.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bakeoff.backends.backend import Call, Engine, Outputs, Proof
from bakeoff.backends.exported import graph_hash, operators
from bakeoff.backends.torch_internals import (
    CompileActivity,
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
    """What one engine's compiler was given and did; nothing of other engines in the process."""

    graphs: "list[fx.Graph]" = field(default_factory=list)
    """One for each compilation: more than one means that dynamo recompiled."""
    activity: CompileActivity = field(default_factory=CompileActivity)
    """Inductor's, while this engine's graphs were compiled."""
    library_calls: Counter[str] = field(default_factory=Counter)
    """Calls into libraries and ATen in the code that inductor wrote, by name."""
    graph_breaks: int = 0
    """During the first call. torch.compile(fullgraph=True) raises at a break, so that any other number is an error."""
    compile_ids: list[str] = field(default_factory=list)

    @contextmanager
    def compiling(self, graph: "fx.GraphModule") -> Iterator[None]:
        """Around the compilation of one graph, within the function that dynamo calls."""
        self.graphs.append(graph.graph)
        self.compile_ids.append(compile_id())
        before = snapshot()
        with generated_code() as modules:
            yield
        self.activity += snapshot() - before
        self.library_calls += library_calls(modules)

    @property
    def operators(self) -> Counter[str]:
        """Operators of all graphs, by name."""
        found: Counter[str] = Counter()
        for graph in self.graphs:
            found += operators(graph)
        return found

    @property
    def graph_hash(self) -> str:
        return graph_hash(self.graphs)

    @property
    def recompiles(self) -> tuple[str, ...]:
        """Dynamo's reasons to compile this engine again.

        Engines of one class share its code objects, so that dynamo calls the first compilation of the second engine a
        recompilation too: it is left out.
        """
        return recompile_reasons(self.compile_ids[1:])


@dataclass(slots=True)
class CompiledEngine(Engine):
    """A module under torch.compile, which compiles it at the first call of whichever set of inputs."""

    compiled: Callable[..., Outputs]
    log: CompileLog
    prover: Callable[[], Proof]
    tracer: Callable[[Call], Trace]
    freezing: bool
    """Compile with inductor's `freezing`, which is on during the first call alone."""
    _run: Callable[..., Outputs] = field(init=False)

    def __post_init__(self) -> None:
        self._run = self._first

    def bind(self, inputs: "Mapping[str, Tensor]") -> Call:
        tensors = tuple(inputs.values())
        return lambda: self._run(*tensors)

    def _first(self, *tensors: "Tensor") -> Outputs:
        # As an option of torch.compile or of compile_fx freezing comes too late: dynamo asks for it when it decides
        # whether parameters are constants (torch._dynamo.utils.is_parameter_freezing), and only constants are folded.
        before = snapshot()
        with inductor_settings(freezing=True) if self.freezing else nullcontext():
            outputs = self.compiled(*tensors)
        self.log.graph_breaks += (snapshot() - before).graph_breaks
        self._run = self.compiled
        return outputs

    def activity(self) -> Mapping[str, int]:
        return read_counters("stats", "aot_autograd", "inductor")

    def prove(self) -> Proof:
        return self.prover()

    def trace(self, call: Call) -> Trace:
        return self.tracer(call)


def compile_whole(
    module: "nn.Module", compiler: Callable[["fx.GraphModule", "list[Tensor]"], Any]
) -> Callable[..., Outputs]:
    """The module under torch.compile as one graph of static shapes; a graph break raises at the first call."""
    import torch

    compiled: Callable[..., Outputs] = torch.compile(module, backend=compiler, fullgraph=True, dynamic=False)
    return compiled
