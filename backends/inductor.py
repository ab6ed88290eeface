"""torch.compile with its own compiler, inductor: C++ with OpenMP on a CPU, Triton on CUDA.

The whole module is captured as one graph (`fullgraph=True`) with static shapes, so a graph break is a failed build and
never a silently slower row. `freezing` folds constants and packs weights and exists on CPU only; `mode` takes torch's
own names. Convolutions and large products stay calls into oneDNN, cuDNN or cuBLAS unless autotuning finds better.
"""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bakeoff.backends.backend import (
    Backend,
    BuildContext,
    Choice,
    Engine,
    ModuleEngine,
    Outputs,
    Proof,
    Requirement,
)

if TYPE_CHECKING:
    from torch import Tensor, nn

_COUNTER_GROUPS = ("stats", "aot_autograd", "inductor")


@dataclass(frozen=True, slots=True)
class Options:
    mode: Literal["default", "reduce-overhead", "max-autotune"] = "default"
    freezing: bool = False


def _objection(options: Options, device: str, _dtype: str) -> str:
    if options.freezing and device != "cpu":
        return "freezing is for CPU: weight packing is what it buys there"
    if options.mode == "reduce-overhead" and device == "cpu":
        return "reduce-overhead means CUDA graphs; on a CPU it compiles the same code as default"
    return ""


def _host_gap(device: str) -> str:
    if device == "cpu" and not (
        shutil.which(os.environ.get("CXX", "")) or shutil.which("g++") or shutil.which("clang++")
    ):
        return "no C++ compiler found (looked for $CXX, g++, clang++); install g++"
    return ""


def _environment(cache_dir: Path) -> Mapping[str, str]:
    return {"TORCHINDUCTOR_CACHE_DIR": str(cache_dir / "inductor"), "TRITON_CACHE_DIR": str(cache_dir / "triton")}


def _counters() -> Mapping[str, int]:
    from torch._dynamo.utils import counters

    return {f"{group}.{name}": int(count) for group in _COUNTER_GROUPS for name, count in counters[group].items()}


def _prove() -> Proof:
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
    return Proof(
        fell_back=fell_back,
        graphs=captured,
        graph_breaks=sum(counters["graph_break"].values()),
        recompiles=tuple(entry.recompile_reason for entry in compiled if entry.recompile_reason),
        operators_inside={"captured calls": int(counters["stats"]["calls_captured"])},
        operators_outside={"library kernel calls": int(counters["inductor"]["extern_calls"])},
        facts={
            "kernels_generated": metrics.generated_kernel_count,
            "vectorised_cpp_kernels": metrics.generated_cpp_vec_kernel_count,
            "graph_cache_hits": int(counters["inductor"]["fxgraph_cache_hit"]),
        },
    )


def _build(module: "nn.Module", _inputs: "Mapping[str, Tensor]", options: Options, _context: BuildContext) -> Engine:
    import torch
    from torch._inductor import list_mode_options

    settings: dict[str, Any] = dict(list_mode_options(options.mode))
    if options.freezing:
        settings["freezing"] = True
    compiled = torch.compile(module, fullgraph=True, dynamic=False, options=settings)
    if not settings.get("triton.cudagraphs"):
        return ModuleEngine(compiled, _prove, _counters)

    def replay(*tensors: "Tensor") -> Outputs:
        torch.compiler.cudagraph_mark_step_begin()
        outputs: Outputs = compiled(*tensors)
        return outputs

    return ModuleEngine(replay, _prove, _counters)


BACKEND = Backend(
    name="inductor",
    summary="torch.compile: one graph, static shapes, C++ or Triton kernels",
    build=_build,
    options=Options,
    requires=(Requirement("torch", "pip install 'bakeoff[cpu]' or 'bakeoff[gpu]'"),),
    choices=(
        Choice(Options()),
        Choice(Options(freezing=True), devices=("cpu",)),
        Choice(Options(mode="reduce-overhead"), devices=("cuda",)),
        Choice(Options(mode="max-autotune"), devices=("cuda",)),
        Choice(Options(mode="max-autotune", freezing=True), devices=("cpu",), suite="full"),
    ),
    caches=True,
    weight_copies=2.0,
    environment=_environment,
    host_gap=_host_gap,
    objection=_objection,
)
