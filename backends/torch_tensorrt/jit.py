"""TensorRT inside torch.compile: dynamo captures one graph, torch_tensorrt converts what TensorRT has layers for.

torch.compile hands parameters over as inputs, which TensorRT cannot fold or arrange (pytorch/TensorRT#3216); `freezing`
makes them constants of the engine. A build that fails is always an error here: torch_tensorrt's own default is to go on
with PyTorch's graph and a warning. Not one engine has been built by us: the machines that this was written on have no
TensorRT libraries.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from bakeoff.backends.backend import (
    Backend,
    BuildContext,
    Capability,
    DefaultOptions,
    Engine,
    Evidence,
    Footprint,
    Proof,
)
from bakeoff.backends.compiled import CompiledEngine, CompileLog, compile_whole
from bakeoff.backends.exported import TORCH, check_not_quantised, operators
from bakeoff.backends.torch_tensorrt.library import REQUIRES, load_library
from bakeoff.backends.torch_tensorrt.partitions import PartitionLog, capture_partition_log
from bakeoff.backends.torch_tensorrt.proof import Converted, prove, read_converted, trace_engines
from bakeoff.backends.torch_tensorrt.settings import cache_settings, settings, unsupported_settings

if TYPE_CHECKING:
    from torch import Tensor, fx, nn


@dataclass(frozen=True, slots=True)
class Options:
    optimization_level: int = 3
    """0 to 5: how long TensorRT's builder searches."""
    min_block_size: int = 1
    """Operators of the smallest engine; torch_tensorrt's own 5 leaves small ones to PyTorch."""
    cudagraphs: bool = False
    freezing: bool = False
    engine_cache: bool = False
    """Keep built engines; only refittable ones can be kept."""


def _unsupported(options: Options, _device: str, _dtype: str) -> str | None:
    return unsupported_settings(options.optimization_level, options.min_block_size)


@dataclass(slots=True)
class _Compiler:
    """torch_tensorrt's backend as torch.compile calls it, keeping what went in and what came out."""

    backend: Any
    settings: Mapping[str, Any]
    told: PartitionLog = field(default_factory=PartitionLog)
    log: CompileLog = field(default_factory=CompileLog)
    inside: Counter[str] = field(default_factory=Counter)
    """Operators of the graphs, counted before torch_tensorrt changes them."""
    results: "list[fx.GraphModule]" = field(default_factory=list)
    compiler_name: str = "tensorrt"

    def __call__(self, graph: "fx.GraphModule", inputs: "list[Tensor]") -> Any:
        self.inside.update(operators(graph.graph))
        with self.log.compiling(graph), capture_partition_log() as told:
            compiled = self.backend(graph, inputs, options=dict(self.settings))
        self.told.text += told.text
        self.results.append(compiled)
        return compiled

    def prove(self) -> Proof:
        if not self.results:
            return Proof(fell_back="eager: dynamo captured no graph")
        found = [read_converted(result) for result in self.results]
        engines = {f"{index}.{name}": plan for index, part in enumerate(found) for name, plan in part.engines.items()}
        left: Counter[str] = Counter()
        for part in found:
            left.update(part.left)
        proof = prove(Converted(engines, left), self.told, self.inside, self.log.graph_hash)
        return replace(
            proof, graphs=len(self.results), graph_breaks=self.log.graph_breaks, recompiles=self.log.recompiles
        )


def _build(module: "nn.Module", _inputs: "Mapping[str, Tensor]", options: Options, context: BuildContext) -> Engine:
    check_not_quantised(module, "torch_tensorrt", "it lowers modelopt's quantize operators, not torchao's scaled_mm")
    library = load_library()
    known = {entry.name for entry in fields(library.dynamo.CompilationSettings)} | {"engine_cache_dir"}
    wanted = {"optimization_level": options.optimization_level, "min_block_size": options.min_block_size}
    if options.engine_cache:
        wanted |= cache_settings(context.cache_dir)
    library.runtime.set_cudagraphs_mode(options.cudagraphs)
    compiler = _Compiler(library.dynamo.backend.torch_tensorrt_backend, settings(wanted, known, context))
    compiled = compile_whole(module, compiler)
    return CompiledEngine(compiled, compiler.log, compiler.prove, trace_engines, options.freezing)


BACKEND = Backend(
    name="tensorrt",
    summary="torch.compile with TensorRT engines, by torch_tensorrt",
    build=_build,
    options=Options,
    defaults=(
        DefaultOptions(Options(), devices=("cuda",)),
        DefaultOptions(Options(cudagraphs=True), devices=("cuda",)),
        DefaultOptions(Options(freezing=True, cudagraphs=True), devices=("cuda",), suite="full"),
        DefaultOptions(Options(optimization_level=5), devices=("cuda",), suite="full"),
    ),
    capability=Capability(requires=(TORCH, *REQUIRES), devices=("cuda",), unsupported=_unsupported),
    evidence=Evidence(
        checks="dynamo captured one graph and at least one TensorRT engine stands in it; operators beside it are named"
    ),
    footprint=Footprint(caches=True, weight_copies=3.0),
)
