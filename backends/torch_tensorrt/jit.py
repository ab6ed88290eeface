"""TensorRT inside torch.compile: dynamo captures one graph, torch_tensorrt converts the operators TensorRT supports.

Weights are frozen into the engines, as in deployment. Without `freezing` torch.compile passes parameters as inputs,
which TensorRT can neither fold nor rearrange (pytorch/TensorRT#3216); with `cudagraphs` its runtime then copies all
weights at each call, since it copies every input (core/runtime/execute_engine.cpp, 2.11 to 2.13). A failed build is
always an error here, while torch_tensorrt by default continues with PyTorch's graph and a warning. Never run on a real
engine yet: the machines it was written on have no TensorRT libraries, so tests use a fake of torch_tensorrt.

For a range of sizes the example inputs are marked with both ends (`torch._dynamo.mark_dynamic`), as torch_tensorrt
documents (docsrc/user_guide/compilation/dynamic_shapes.rst, 2.13.0): an engine's profile is the range of the graph's
symbols, and is tuned for the example's size (dynamo/partitioning/common.py, construct_dynamic_input, 18 in 2.13.0).
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from bakeoff.backends.backend import (
    Backend,
    BuildContext,
    DefaultOptions,
    Engine,
    Proof,
)
from bakeoff.backends.graphs import TORCH, check_not_quantised, operators
from bakeoff.backends.torch_compile import CompiledEngine, CompileLog, compile_whole
from bakeoff.backends.torch_internals import marked, separate_sizes
from bakeoff.backends.torch_tensorrt.external import asked, externalise
from bakeoff.backends.torch_tensorrt.proof import (
    Converted,
    PartitionLog,
    builder_errors,
    capture_partition_log,
    prove,
    read_converted,
    trace_engines,
)
from bakeoff.backends.torch_tensorrt.settings import (
    QUANTISE_OPERATORS,
    QUANTISED_ADVICE,
    REQUIRES,
    check_outside,
    check_symbols,
    in_own_mode,
    load_library,
    one_size_only,
    settings,
    unsupported_settings,
)

if TYPE_CHECKING:
    from torch import Tensor, fx, nn


@dataclass(frozen=True, slots=True)
class Options:
    optimization_level: int = 3
    """How long TensorRT's builder searches for fast kernels, from 0 to 5."""
    min_block_size: int = 1
    """Smallest number of operators in an engine; PyTorch runs smaller groups. torch_tensorrt's own default is 5."""
    cudagraphs: bool = False
    freezing: bool = True
    """Whether weights are constants of the engines; if not, they are inputs."""
    external: str = ""
    """Submodules that PyTorch runs, each as one custom operator, joined by `+`: `blocks.3.attention`."""


def _unsupported(options: Options, _device: str, _dtype: str) -> str | None:
    return unsupported_settings(options.optimization_level, options.min_block_size)


@dataclass(slots=True)
class _Compiler:
    """The compiler function that torch.compile calls: runs torch_tensorrt, and keeps its graphs and results."""

    backend: Any
    settings: Mapping[str, Any]
    external: Mapping[str, str]
    """The qualified name of each external operator, by the option that asks for it."""
    partition_log: PartitionLog = field(default_factory=PartitionLog)
    log: CompileLog = field(default_factory=CompileLog)
    graph_operators: Counter[str] = field(default_factory=Counter)
    """Number of each operator in the graphs, counted before torch_tensorrt changes them."""
    results: "list[fx.GraphModule]" = field(default_factory=list)
    compiler_name: str = "tensorrt"

    def __call__(self, graph: "fx.GraphModule", inputs: "list[Tensor]") -> Any:
        self.graph_operators.update(operators(graph.graph))
        with self.log.compiling(graph), capture_partition_log() as captured, builder_errors():
            compiled = self.backend(graph, inputs, options=dict(self.settings))
        check_outside(self.external, captured.unconverted)
        self.partition_log.text += captured.text
        self.results.append(compiled)
        return compiled

    def prove(self) -> Proof:
        if not self.results:
            return Proof(fell_back="eager: dynamo captured no graph")
        found = [read_converted(result) for result in self.results]
        engines = {f"{index}.{name}": data for index, part in enumerate(found) for name, data in part.engines.items()}
        outside: Counter[str] = Counter()
        for part in found:
            outside.update(part.outside)
        proof = prove(Converted(engines, outside), self.partition_log, self.graph_operators, self.log.graph_hash)
        return replace(
            proof, graphs=len(self.results), graph_breaks=self.log.graph_breaks, recompiles=self.log.recompiles
        )


def _one_size_only(options: Options) -> str | None:
    return one_size_only(options.cudagraphs, options.external)


def _build(module: "nn.Module", inputs: "Mapping[str, Tensor]", options: Options, context: BuildContext) -> Engine:
    check_not_quantised(module, "torch_tensorrt", QUANTISED_ADVICE)
    library = load_library()
    if context.sizes:
        check_symbols()
    module, external = externalise(module, inputs, options.external)
    known = {entry.name for entry in fields(library.dynamo.CompilationSettings)}
    wanted: dict[str, Any] = {
        "optimization_level": options.optimization_level,
        "min_block_size": options.min_block_size,
    }
    compiler = _Compiler(
        library.dynamo.backend.torch_tensorrt_backend, settings(wanted, known, context), asked(external)
    )
    compiled = in_own_mode(library, options.cudagraphs, compile_whole(module, compiler))
    engine = CompiledEngine(
        compiled, compiler.log, compiler.prove, trace_engines, options.freezing, options.cudagraphs, rebinding=True
    )
    if context.sizes:
        with separate_sizes():
            engine.bind(marked(inputs, context.sizes))()
    return engine


BACKEND = Backend(
    name="tensorrt",
    summary="torch.compile with TensorRT engines, by torch_tensorrt",
    build=_build,
    options=Options,
    defaults=(
        DefaultOptions(Options(), devices=("cuda",), dtypes=("bf16",)),
        DefaultOptions(Options(cudagraphs=True), devices=("cuda",), suite="full"),
        DefaultOptions(Options(freezing=False), devices=("cuda",), suite="full"),
        DefaultOptions(Options(freezing=False, cudagraphs=True), devices=("cuda",), suite="full"),
        DefaultOptions(Options(optimization_level=5), devices=("cuda",), suite="full"),
    ),
    requires=(TORCH, *REQUIRES),
    devices=("cuda",),
    unsupported_options=_unsupported,
    unsupported_sizes=_one_size_only,
    own_attention=True,
    quantise_operators=QUANTISE_OPERATORS,
    checks="dynamo captured one graph, and it holds at least one TensorRT engine; other operators are listed",
    same_when_traced=("cuda",),
    caches=True,
    weight_copies=3.0,
    gpu_weight_copies=2.0,
    host_weight_copies=2.0,
    searches=True,
)
