"""torch.compile with its own compiler, inductor: C++ with OpenMP on a CPU, Triton on CUDA.

The whole module is captured as one graph (`fullgraph=True`) with static shapes, so a graph break is a failed build and
never a silently slower row. `freezing` folds constants and packs weights and exists on CPU only; `mode` takes torch's
own names. Convolutions and large products stay calls into oneDNN, cuDNN or cuBLAS unless autotuning finds better.
"""

import os
import re
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bakeoff.backends.backend import (
    Backend,
    BuildContext,
    Capability,
    DefaultOptions,
    Engine,
    Evidence,
    Footprint,
    ModuleEngine,
    Outputs,
    Proof,
)
from bakeoff.backends.exported import TORCH, graph_hash, operators
from bakeoff.backends.tracing import OWN_KERNELS

if TYPE_CHECKING:
    from torch import Tensor, fx, nn

FREEZING_ON_CUDA = "freezing packs weights for CPU kernels only; leave it out on cuda"
_COUNTER_GROUPS = ("stats", "aot_autograd", "inductor")
_LIBRARY_CALL = re.compile(r"\b(?:extern_kernels|torch\.ops|aten)\.([\w.]+)\(")


@dataclass(frozen=True, slots=True)
class Options:
    mode: Literal["default", "reduce-overhead", "max-autotune"] = "default"
    freezing: bool = False


def _unsupported(options: Options, device: str, _dtype: str) -> str | None:
    if options.freezing and device != "cpu":
        return FREEZING_ON_CUDA
    if options.mode == "reduce-overhead" and device == "cpu":
        return "mode=reduce-overhead needs CUDA graphs, which a CPU does not have; use mode=default"
    return None


def missing_compiler(_options: Any, device: str) -> str | None:
    """Why inductor's C++ cannot be compiled on this host; None if it can, and on CUDA."""
    if device == "cpu" and not (
        shutil.which(os.environ.get("CXX", "")) or shutil.which("g++") or shutil.which("clang++")
    ):
        return "no C++ compiler found (looked for $CXX, g++, clang++); install g++"
    return None


def compiler_environment(cache_dir: Path) -> Mapping[str, str]:
    """Where inductor and Triton keep what they compiled."""
    return {"TORCHINDUCTOR_CACHE_DIR": str(cache_dir / "inductor"), "TRITON_CACHE_DIR": str(cache_dir / "triton")}


def _counters() -> Mapping[str, int]:
    from torch._dynamo.utils import counters

    return {f"{group}.{name}": int(count) for group in _COUNTER_GROUPS for name, count in counters[group].items()}


@dataclass(slots=True)
class _Compiler:
    """Inductor as torch.compile calls it, keeping the graphs that it was given."""

    settings: Mapping[str, Any]
    graphs: list["fx.GraphModule"] = field(default_factory=list)
    compiler_name: str = "inductor"

    def __call__(self, graph: "fx.GraphModule", inputs: list["Tensor"]) -> Any:
        from torch._inductor.compile_fx import compile_fx

        self.graphs.append(graph)
        return compile_fx(graph, inputs, config_patches=dict(self.settings))

    def prove(self) -> Proof:
        from torch._dynamo.utils import counters, get_compilation_metrics
        from torch._inductor import metrics

        captured = int(counters["stats"]["unique_graphs"])
        lowered = sum(count for name, count in counters["inductor"].items() if name.startswith("fxgraph_cache_"))
        fell_back = ""
        if captured == 0:
            fell_back = "eager: dynamo captured no graph"
        elif lowered == 0:
            fell_back = "the captured graph, operator by operator: inductor never compiled it"
        compiled = [entry for entry in get_compilation_metrics() if entry.graph_op_count]
        inside: Counter[str] = Counter()
        for graph in self.graphs:
            inside.update(operators(graph.graph))
        return Proof(
            fell_back=fell_back,
            graphs=captured,
            graph_breaks=sum(counters["graph_break"].values()),
            recompiles=tuple(entry.recompile_reason for entry in compiled if entry.recompile_reason),
            operators_inside=inside,
            operators_outside=_library_calls(),
            facts={
                "kernels_generated": metrics.generated_kernel_count,
                "vectorised_cpp_kernels": metrics.generated_cpp_vec_kernel_count,
                "graph_cache_hits": int(counters["inductor"]["fxgraph_cache_hit"]),
            },
            graph_hash=graph_hash([graph.graph for graph in self.graphs]),
        )


def _library_calls() -> dict[str, int]:
    """Calls in the code that inductor wrote which are not its own kernels: oneDNN, cuDNN, BLAS and ATen, by name."""
    from torch._inductor.codecache import PyCodeCache

    found: Counter[str] = Counter()
    for module in PyCodeCache.modules:
        source = Path(module.__file__ or "").read_text(encoding="utf-8") if module.__file__ else ""
        _, _, calls = source.partition("def call(")
        found.update(name.removesuffix(".default") for name in _LIBRARY_CALL.findall(calls.partition("\ndef ")[0]))
    return dict(found)


def _build(module: "nn.Module", _inputs: "Mapping[str, Tensor]", options: Options, context: BuildContext) -> Engine:
    import torch
    from torch._inductor import config, list_mode_options

    settings: dict[str, Any] = dict(list_mode_options(options.mode))
    if options.freezing:
        # As an option of torch.compile it comes too late: dynamo asks for it when it decides whether parameters are
        # constants, and without them nothing is packed (torch._dynamo.utils.is_parameter_freezing).
        config.freezing = True
    if context.trace:
        settings["cpp.enable_kernel_profile"] = True
    compiler = _Compiler(settings)
    compiled = torch.compile(module, backend=compiler, fullgraph=True, dynamic=False)
    if not settings.get("triton.cudagraphs"):
        return ModuleEngine(compiled, compiler.prove, _counters, OWN_KERNELS)

    def replay(*tensors: "Tensor") -> Outputs:
        torch.compiler.cudagraph_mark_step_begin()
        outputs: Outputs = compiled(*tensors)
        return outputs

    return ModuleEngine(replay, compiler.prove, _counters, OWN_KERNELS)


BACKEND = Backend(
    name="inductor",
    summary="torch.compile: one graph, static shapes, C++ or Triton kernels",
    build=_build,
    options=Options,
    defaults=(
        DefaultOptions(Options(), devices=("cpu",), dtypes=("bf16",)),
        DefaultOptions(Options(freezing=True), devices=("cpu",), dtypes=("bf16",)),
        DefaultOptions(Options(), devices=("cuda",)),
        DefaultOptions(Options(mode="reduce-overhead"), devices=("cuda",)),
        DefaultOptions(Options(mode="max-autotune"), devices=("cuda",)),
        DefaultOptions(Options(mode="max-autotune", freezing=True), devices=("cpu",), suite="full"),
    ),
    capability=Capability(requires=(TORCH,), missing=missing_compiler, unsupported=_unsupported),
    evidence=Evidence(checks="dynamo captured one graph without a break and inductor compiled it", uses_inductor=True),
    footprint=Footprint(caches=True, weight_copies=2.0, environment=compiler_environment),
)
